"""What only torch has: compiled and scripted models, wrappers, lazy layers."""

import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

from reprod_log.capture import watch
from reprod_log.recording import Key, Recording


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def test_compiled_model_is_recorded_at_its_boundary_with_a_note():
    model = mlp()
    compiled = torch.compile(model, backend="aot_eager")
    compiled(torch.ones(2, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(compiled, optimizer=optimizer) as run:
        output = compiled(torch.ones(2, 3))
        output.sum().backward()
        optimizer.step()
    keys = run.recording.keys
    np.testing.assert_array_equal(run.recording["step0/forward/#0:output"].array(), output.detach().numpy())
    assert "step0/backward/#0:output" in keys
    assert "step0/gradient/0.weight:raw" in keys
    assert not any("/forward/0#" in key for key in keys)
    assert any("it is compiled" in note and "set_stance" in note for note in map(str, run.recording.notes))
    assert run.recording.modules[0].type == "Sequential"


def test_compiled_model_run_eagerly_is_recorded_inside_when_asked_as_the_note_says():
    model = mlp()
    compiled = torch.compile(model, backend="aot_eager")
    with torch.compiler.set_stance("force_eager"), watch(model) as run:
        compiled(torch.ones(2, 3)).sum().backward()
    assert "step0/forward/0#0:output" in run.recording
    assert "step0/backward/0#0:output" in run.recording


def test_module_compiled_in_place_is_recorded_at_its_boundary_and_left_compiled():
    model = nn.Sequential(mlp(), nn.Linear(2, 2))
    model[0].compile(backend="aot_eager")
    impl = model[0]._compiled_call_impl
    with watch(model) as run:
        model(torch.ones(2, 3)).sum().backward()
    assert "step0/forward/0#0:output" in run.recording
    assert "step0/forward/1#0:output" in run.recording
    assert "step0/forward/0.0#0:output" not in run.recording
    assert model[0]._compiled_call_impl is impl


def test_scripted_model_is_recorded_at_its_boundary_with_a_note():
    script = torch.jit.script(mlp())
    call = type(script).__call__
    with watch(script) as run:
        output = script(torch.ones(2, 3))
    np.testing.assert_array_equal(run.recording["step0/forward/#0:output"].array(), output.detach().numpy())
    assert any("TorchScript" in note for note in map(str, run.recording.notes))
    assert type(script).__call__ is call


def test_wrappers_do_not_show_in_the_names():
    wrapped = nn.DataParallel(mlp())
    with watch(wrapped) as run:
        wrapped(torch.ones(2, 3)).sum().backward()
    assert "step0/forward/0#0:output" in run.recording
    assert "step0/gradient/0.weight:raw" in run.recording
    assert not any("module" in key for key in run.recording.keys)


DISTRIBUTED = """
import os, sys
import numpy as np
import torch
from torch import nn
from reprod_log.capture import watch
from reprod_log.recording import Key, Recording

torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/meet", rank=0, world_size=1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with watch(model, optimizer=optimizer) as run:
    model(torch.ones(2, 3)).sum().backward()
    gradient = model.module[0].weight.grad.clone()
    optimizer.step()
assert "step0/forward/2#0:output" in run.recording
np.testing.assert_array_equal(run.recording["step0/gradient/0.weight:raw"].array(), gradient.numpy())
print("as it should be", flush=True)
# torch's process group waits in its destructor for a thread that may wait for the interpreter lock.
os._exit(0)
"""


def test_distributed_wrapper_does_not_show_in_the_names_and_reduces_before_the_reading(tmp_path):
    command = [sys.executable, "-c", DISTRIBUTED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "as it should be\n", done.stderr


def test_child_called_module_keeps_its_name():
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = nn.Linear(3, 2)

        def forward(self, x):
            return self.module(x)

    model = Holder()
    with watch(model) as run:
        model(torch.ones(2, 3))
    assert "step0/forward/module#0:output" in run.recording


def test_lazy_layer_is_recorded_once_it_has_its_parameters():
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU())
    with watch(model) as run:
        model(torch.ones(2, 3))
        model(torch.ones(2, 3)).sum().backward()
    assert "step0/forward/0#0:output" in run.recording
    assert dict(run.recording.modules[1].parameters) == {"weight": (4, 3), "bias": (4,)}
    assert "step1/gradient/0.weight:raw" in run.recording


def test_tracing_a_watched_model_records_nothing_of_the_trace():
    model = mlp()
    with watch(model) as run:
        traced = torch.jit.trace(model, torch.ones(2, 3), check_trace=False)
        model(torch.ones(2, 3))
    assert run.recording.steps == (0,)
    assert "detach" not in str(traced.graph)


def test_inference_mode_is_recorded():
    model = mlp()
    with torch.inference_mode(), watch(model) as run:
        model(torch.ones(2, 3))
    assert "step0/forward/2#0:output" in run.recording


def test_buffer_replaced_by_a_new_tensor_is_read_anew():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen = self.seen + len(x)
            return x

    model = Counts()
    with watch(model) as run:
        model(torch.ones(2, 3))
        model(torch.ones(2, 3))
    assert [float(run.recording[f"step{step}/buffer/seen"].array()) for step in (0, 1)] == [2, 4]


def test_tensor_that_has_no_values_is_noted_and_training_goes_on():
    class Ghost(nn.Module):
        def forward(self, x):
            return x * 2, torch.ones(2, device="meta")

    model = Ghost()
    with watch(model) as run:
        model(torch.ones(2, 3))
    assert "step0/forward/#0:output.0" in run.recording
    assert any(
        "step0/forward/#0:output.1 was skipped: a tensor on the meta" in note for note in map(str, run.recording.notes)
    )


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_noted_and_training_goes_on(layout):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2)
            self.pad = Padded()

        def forward(self, x):
            return self.pad(self.fc(x))

    class Padded(nn.Module):
        def forward(self, x):
            return torch.nested.to_padded_tensor(x, 0.0)

    def trained(watched):
        torch.manual_seed(0)
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with watch(model, optimizer=optimizer) if watched else nullcontext() as run:
            for _ in range(2):
                nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=layout)
                model(nested).sum().backward()
                optimizer.step()
        return model, run

    alone, _ = trained(False)
    model, run = trained(True)
    assert torch.equal(alone.fc.weight, model.fc.weight)
    assert run.recording.complete
    assert run.recording["step1/forward/pad#0:output"].shape == (2, 4, 2)
    assert any("inside such objects are not recorded" in note for note in map(str, run.recording.notes))


def test_iterator_of_losses_is_left_to_torch():
    model = mlp()
    with watch(model) as run:
        output = model(torch.ones(2, 3))
        torch.autograd.backward(loss for loss in [output.sum(), output.mean()])
    assert model[0].weight.grad is not None
    assert run.recording.complete


@pytest.mark.parametrize("fused", [True, False])
def test_encoder_layer_whose_fused_path_is_lost_is_noted(fused):
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 5, 8)
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(fused)
    try:
        with torch.no_grad():
            alone = model(x)
            with watch(model) as run:
                watched = model(x)
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
    assert any("fused path" in note for note in map(str, run.recording.notes)) == fused
    if not fused:
        assert torch.equal(alone, watched)


def test_optimizer_with_several_groups_has_a_rate_for_each():
    model = mlp()
    optimizer = torch.optim.SGD(
        [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.5}], lr=0.1
    )
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    with watch(model, optimizer=optimizer, phases=["lr"]) as run:
        for _ in range(2):
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
            schedule.step()
    rates = {str(entry.key): float(entry.array()) for entry in run.recording}
    assert rates == {
        "step0/lr/optimizer:group0": 0.1,
        "step0/lr/optimizer:group1": 0.5,
        "step1/lr/optimizer:group0": 0.05,
        "step1/lr/optimizer:group1": 0.25,
    }


def _trained(compiled_from: int, steps: int = 4) -> Recording:
    """A training whose model is compiled inside the block, before the step `compiled_from`."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    inner = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), inner, torch.nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(model, optimizer=optimizer) as run:
        call = model
        for step in range(steps):
            if step == compiled_from:
                call = torch.compile(model, backend="eager")
            optimizer.zero_grad()
            call(torch.ones(5, 6) * step).square().sum().backward()
            optimizer.step()
    return run.recording


@pytest.mark.parametrize("compiled_from", [0, 2])
def test_model_compiled_inside_the_block_is_noted_and_its_steps_are_counted(compiled_from: int) -> None:
    plain, compiled = _trained(99), _trained(compiled_from)
    ours, theirs = ({str(entry.key) for entry in one.entries} for one in (plain, compiled))
    assert theirs < ours
    missing = [Key.parse(key) for key in ours - theirs]
    assert {key.phase for key in missing} == {"data", "forward", "backward"}
    assert {key.step for key in missing} == set(range(compiled_from, 4))
    assert not plain.notes
    notes = [note for note in compiled.notes if note.id == "note.capture.unseen"]
    assert [(note.arguments["first"], note.arguments["count"]) for note in notes] == [
        (compiled_from, 4 - compiled_from)
    ]
    named = {path.removeprefix("the model") for path in notes[0].arguments["paths"]}
    assert {key.path for key in missing if key.phase != "data"} <= named | {"", "1", "2", "2.1"}
