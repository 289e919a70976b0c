"""detail="sketch": what is kept of a watched model, in which order, and that two frameworks' sketches meet."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import paddle
import pytest
import torch

from reprod_log.alignment import align
from reprod_log.capture import flatten, watch
from reprod_log.errors import UsageError
from reprod_log.recording import Recording
from reprod_log.recording.sketch import Sketching, sketch_of, stored_sketch
from reprod_log.transfer import transfer_weights


def large_model(lab):
    class Large(lab.Module):
        def __init__(self):
            super().__init__()
            self.wide = lab.nn.Linear(3, 400)
            self.narrow = lab.nn.Linear(400, 2)

        def forward(self, x):
            return self.narrow(self.wide(x))

    return Large()


def test_sketch_keeps_small_tensors_whole_and_of_others_sketch_and_statistics(lab, tmp_path):
    recordings = []
    for detail in ("full", "sketch"):
        lab.seed(0)
        model = large_model(lab)
        with watch(model, detail=detail, save=tmp_path / detail) as run:
            (model(lab.tensor(2, 3)) ** 2).sum().backward()
        recordings.append(run.recording)
    full, sketched = recordings
    assert full.keys == sketched.keys
    for one, two in zip(full, sketched, strict=True):
        assert (one.hash, one.shape, one.dtype) == (two.hash, two.shape, two.dtype)
        if one.array().size <= Sketching().size:
            assert two.array().tobytes() == one.array().tobytes()
        else:
            found = stored_sketch(two)
            again = sketch_of(one.array(), form=found.form)
            assert (found.values.tobytes(), found.summary) == (again.values.tobytes(), again.summary)
    assert {entry.detail for entry in sketched} == {"full", "sketch"}


def test_size_of_sketches_can_be_chosen_and_wrong_ones_are_refused(lab):
    model = large_model(lab)
    with watch(model, detail={"forward": "sketch:64"}) as run:
        model(lab.tensor(2, 3))
    outputs = [entry for entry in run.recording if entry.detail == "sketch"]
    assert outputs
    assert all(stored_sketch(entry).made == Sketching(64) for entry in outputs)
    for wrong in ("sketch:x", "sketch:3", "sketchy", {"forward": "sketch:64", "loss": "sketch:128"}):
        with pytest.raises(UsageError, match="sketch"):
            watch(model, detail=wrong)


def test_budget_turns_sketches_into_summaries(lab):
    model = large_model(lab)
    with watch(model, detail="sketch", budget=3000) as run:
        (model(lab.tensor(2, 3)) ** 2).sum().backward()
    assert {entry.detail for entry in run.recording} == {"full", "sketch", "summary"}
    assert any("budget" in note for note in map(str, run.recording.notes))


def test_budget_turns_whole_tensors_into_sketches_and_leaves_room_for_them(lab):
    model = large_model(lab)
    with watch(model, budget=21_000) as run:
        (model(lab.tensor(2, 3)) ** 2).sum().backward()
    assert {entry.detail for entry in run.recording} >= {"full", "sketch"}
    stored = {entry.hash: entry.nbytes for entry in run.recording if entry.detail == "full" and entry.shape}
    assert 0 < sum(stored.values()) <= 18_900


def test_integers_are_kept_whole_because_no_estimate_can_say_that_they_are_equal(lab):
    model = lab.nn.Embedding(5, 4)
    with watch(model, detail="sketch") as run:
        model(lab.of(np.arange(600) % 5))
    assert run.recording["step0/data/#0:input.0"].detail == "full"
    assert run.recording["step0/forward/#0:output"].detail == "sketch"


def recorded(model, inputs, convert, optimizer) -> Recording:
    with watch(model, optimizer=optimizer, detail="sketch") as run:
        outputs = model(**{name: convert(array) for name, array in inputs.items()})
        (next(tensor for _, tensor in flatten(outputs)) ** 2).mean().backward()
        optimizer.step()
    return run.recording


@pytest.mark.parametrize("name", ["vit", "bert", "lstm_classifier"])
def test_sketches_of_both_frameworks_meet_whatever_the_layout_of_their_weights(name):
    """Linear weights are transposed, q, k and v packed or split, position embeddings found by value."""
    pair = import_module(f"models_pairs.{name}")
    ours, theirs, inputs = pair.build_torch(), pair.build_paddle(), pair.make_inputs(0)
    for model in (ours, theirs):
        model.train() if name == "lstm_classifier" else model.eval()
    transfer_weights(ours, theirs, inputs=inputs)
    reference = recorded(ours, inputs, torch.tensor, torch.optim.SGD(ours.parameters(), 0.01))
    candidate = recorded(theirs, inputs, paddle.to_tensor, paddle.optimizer.SGD(0.01, parameters=theirs.parameters()))
    alignment = align(reference, candidate)
    assert alignment.passed, str(alignment)
    viewed = [row for row in alignment.comparison.rows if row.view and row.measurement and row.measurement.estimate]
    assert viewed or name == "lstm_classifier"


@pytest.mark.parametrize("swapped", [False, True])
def test_packed_attention_meets_split_attention_and_exchanged_parts_are_seen(swapped):
    ours = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    theirs = paddle.nn.MultiHeadAttention(32, 4)
    values = {name: tensor.detach().numpy() for name, tensor in ours.named_parameters()}
    for place, name in enumerate(("q_proj", "k_proj", "v_proj")):
        there = getattr(theirs, ("k_proj", "q_proj", "v_proj")[place] if swapped else name)
        there.weight.set_value(np.ascontiguousarray(values["in_proj_weight"][32 * place : 32 * place + 32].T))
        there.bias.set_value(values["in_proj_bias"][32 * place : 32 * place + 32])
    theirs.out_proj.weight.set_value(np.ascontiguousarray(values["out_proj.weight"].T))
    theirs.out_proj.bias.set_value(values["out_proj.bias"])
    x = np.random.default_rng(0).standard_normal((4, 9, 32)).astype(np.float32)
    recordings = []
    for model, tensor in ((ours, torch.tensor(x)), (theirs, paddle.to_tensor(x))):
        with watch(model, detail="sketch", phases=["data", "forward", "parameter"]) as run:
            model(tensor, tensor, tensor)
        recordings.append(run.recording)
    alignment = align(*recordings, limits=["rel_l2:1e-5"], allow_unmatched=["*output.1", "*input*"])
    weight = next(one for one in alignment.verdict.judgements if one.key == "step0/parameter/in_proj_weight")
    assert "estimated from sketches" in str(weight.reason)
    assert weight.status.passed is not swapped
    row = alignment.row(weight.key)
    assert row is not None
    assert row.measurement is not None
    assert row.measurement.rel_l2 < 1e-9 or swapped


def test_channels_last_meets_channels_first():
    ours, theirs = torch.nn.Conv2d(3, 8, 3), paddle.nn.Conv2D(3, 8, 3, data_format="NHWC")
    theirs.weight.set_value(ours.weight.detach().numpy())
    theirs.bias.set_value(ours.bias.detach().numpy())
    x = np.random.default_rng(0).standard_normal((2, 3, 12, 12)).astype(np.float32)
    recordings = []
    for model, tensor in ((ours, torch.tensor(x)), (theirs, paddle.to_tensor(x.transpose(0, 2, 3, 1)))):
        with watch(model, detail="sketch", phases=["forward"], inputs=False) as run:
            model(tensor)
        recordings.append(run.recording)
    alignment = align(*recordings)
    row = alignment.row("step0/forward/#0:output")
    assert row is not None
    assert "channels last" in str(row.view)
    assert alignment.passed, str(alignment)
