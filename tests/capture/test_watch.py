"""What a watched training loop leaves in its recording, and in which order."""

import numpy as np
import pytest

from reprod_log.capture import watch
from reprod_log.errors import UsageError
from reprod_log.recording import PHASES
from reprod_log.recording.stores import load


def phases_of(recording, step):
    return list(dict.fromkeys(entry.key.phase for entry in recording if entry.key.step == step))


def test_every_phase_is_recorded_in_execution_order_when_training(lab, trained):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters(), momentum=0.9)
    with watch(model, optimizer=optimizer) as run:
        trained(lab, model, optimizer, steps=2)
    present = [phase for phase in PHASES if phase not in ("clip", "metric", "buffer")]
    assert phases_of(run.recording, 0) == present
    assert phases_of(run.recording, 1) == present
    assert run.recording.steps == (0, 1)
    assert run.recording.complete


def test_values_are_those_of_the_framework_when_recorded(lab):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters(), lr=0.5)
    before = {name: value.detach().numpy().copy() for name, value in model.named_parameters()}
    batch = lab.tensor(5, 3)
    with watch(model, optimizer=optimizer) as run:
        output = model(batch)
        loss = (output**2).mean()
        loss.backward()
        gradients = {name: value.grad.numpy().copy() for name, value in model.named_parameters()}
        optimizer.step()
    get = lambda key: run.recording[key].array()  # noqa: E731
    np.testing.assert_array_equal(get("step0/data/#0:input.0"), batch.numpy())
    np.testing.assert_array_equal(get("step0/forward/#0:output"), output.detach().numpy())
    np.testing.assert_array_equal(get("step0/forward/fc2#0:output"), output.detach().numpy())
    np.testing.assert_array_equal(get("step0/loss/loss"), loss.detach().numpy())
    np.testing.assert_allclose(get("step0/backward/fc2#0:output"), 2 * output.detach().numpy() / 10, rtol=1e-6)
    for name, value in model.named_parameters():
        np.testing.assert_array_equal(get(f"step0/gradient/{name}:raw"), gradients[name])
        np.testing.assert_array_equal(get(f"step0/parameter/{name}"), value.detach().numpy())
        np.testing.assert_array_equal(get(f"step0/update/{name}"), value.detach().numpy() - before[name])
    assert get("step0/lr/optimizer:group0") == 0.5


def test_layer_inputs_name_their_producer_in_the_first_step_only(lab, trained):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer) as run:
        trained(lab, model, optimizer, steps=2)
    recording = run.recording
    assert recording["step0/forward/fc2#0:input.0"].meta["from"] == "step0/forward/act#0:output"
    assert recording["step0/forward/fc1#0:input.0"].meta["from"] == "step0/data/#0:input.0"
    assert "step1/forward/fc2#0:input.0" not in recording


def test_input_made_between_layers_has_no_producer(lab):
    class Glued(lab.Module):
        def __init__(self):
            super().__init__()
            self.a = lab.nn.Linear(3, 3)
            self.b = lab.nn.Linear(3, 3)

        def forward(self, x):
            return self.b(self.a(x) * 2)

    model = Glued()
    with watch(model) as run:
        model(lab.tensor(2, 3))
    assert "from" not in run.recording["step0/forward/b#0:input.0"].meta
    assert run.recording["step0/forward/a#0:input.0"].meta["from"] == "step0/data/#0:input.0"


@pytest.mark.parametrize(("inputs", "steps"), [(True, {0, 1}), (False, set()), ("first", {0})])
def test_inputs_are_recorded_as_asked(lab, trained, inputs, steps):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer, inputs=inputs, phases=["forward"]) as run:
        trained(lab, model, optimizer, steps=2)
    assert {entry.key.step for entry in run.recording if entry.key.role.startswith("input")} == steps


def test_entries_carry_what_later_stages_need(lab):
    model = lab.models.Cnn()
    optimizer = lab.adamw(model.parameters())
    with watch(model, optimizer=optimizer) as run:
        model(lab.tensor(2, 2, 4, 4)).sum().backward()
        optimizer.step()
    recording = run.recording
    assert recording["step0/forward/conv#0:output"].layer_type.lower() == "conv2d"
    assert recording["step0/forward/drop#0:output"].meta["training"] is True
    assert recording["step0/gradient/conv.bias:raw"].meta["terms"] == 2 * 4 * 4
    assert "terms" not in recording["step0/gradient/conv.weight:raw"].meta
    mean = "bn.running_mean" if lab.name == "torch" else "bn._mean"
    assert recording[f"step0/buffer/{mean}"].meta["terms"] == 2 * 4 * 4
    kinds = {module.path: module.kind for module in recording.modules}
    assert kinds == {
        "": "",
        "conv": "conv2d",
        "bn": "batchnorm",
        "act": kinds["act"],
        "drop": "dropout",
        "head": "linear",
    }
    by_path = {module.path: module for module in recording.modules}
    assert by_path["drop"].settings["p"] == 0.3
    assert set(by_path["conv"].parameters) == {"weight", "bias"}
    assert by_path["conv"].origin.startswith(lab.name)


def test_optimizer_state_has_the_same_names_in_both_frameworks(lab, trained):
    model = lab.models.Mlp()
    optimizer = lab.adamw(model.parameters())
    with watch(model, optimizer=optimizer, phases=["optimizer"]) as run:
        trained(lab, model, optimizer, steps=3)
    last = [entry for entry in run.recording if entry.key.step == 2]
    assert {(entry.key.path, entry.key.role) for entry in last} == {
        (f"{layer}.{name}", role)
        for layer in ("fc1", "fc2")
        for name in ("weight", "bias")
        for role in ("exp_avg", "exp_avg_sq")
    }
    assert all(entry.meta["optimizer_step"] == 3 for entry in last)


def test_only_chosen_layers_are_recorded(lab, trained):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer, layers="fc2") as run:
        trained(lab, model, optimizer, steps=1)
    paths = {entry.key.path for entry in run.recording if entry.key.phase not in ("data", "loss", "lr")}
    assert paths == {"fc2", "fc2.weight", "fc2.bias"}


def test_only_chosen_steps_are_recorded_and_hooks_go_when_they_are_over(lab, trained):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    call = lab.Module.__call__
    with watch(model, optimizer=optimizer, steps=[1, 2]) as run:
        trained(lab, model, optimizer, steps=3)
        assert lab.Module.__call__ is not call
        trained(lab, model, optimizer, steps=3)
        assert lab.Module.__call__ is call
    assert run.recording.steps == (1, 2)
    assert "step1/forward/fc2#0:input.0" in run.recording


def test_only_chosen_phases_are_recorded(lab, trained):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer, phases=["loss", "gradient"]) as run:
        trained(lab, model, optimizer, steps=1)
    assert {entry.key.phase for entry in run.recording} == {"loss", "gradient"}


def test_name_of_the_pass_stands_in_every_key(lab):
    model = lab.models.Mlp()
    with watch(model, run="float64") as run:
        model(lab.tensor(2, 3))
    assert run.recording.runs == ("float64",)


def test_provenance_says_where_it_came_from(lab, trained):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters(), momentum=0.9)
    with watch(model, optimizer=optimizer) as run:
        trained(lab, model, optimizer, steps=1)
    origin = run.recording.provenance
    assert origin.framework == lab.name
    assert origin.framework_version
    assert (origin.device, origin.dtype) == ("cpu", "float32")
    assert origin.seeds == {lab.name: 0}
    assert (origin.extra["rank"], origin.extra["world_size"]) == (0, 1)
    described = origin.extra["optimizers"]["optimizer"]
    assert described["parameters"] == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    assert described["groups"][0]["momentum"] == 0.9


def test_hash_of_the_weights_tells_initial_weights_apart(lab):
    hashes = []
    for seed in (0, 0, 1):
        lab.seed(seed)
        model = lab.models.Mlp()
        with watch(model) as run:
            model(lab.tensor(2, 3))
        hashes.append((run.recording.provenance.weights_hash, run.recording.provenance.data_hash))
    assert hashes[0] == hashes[1]
    assert hashes[0][0] != hashes[2][0]
    assert hashes[0][1] == hashes[2][1]


def test_recording_on_disk_is_the_one_in_memory(lab, trained, tmp_path):
    recordings = []
    for save in (None, tmp_path / "folder", tmp_path / "one.safetensors"):
        lab.seed(0)
        model = lab.models.Cnn()
        optimizer = lab.adamw(model.parameters())
        with watch(model, optimizer=optimizer, save=save) as run:
            trained(lab, model, optimizer, steps=2, shape=(2, 2, 4, 4))
        recordings.append(run.recording if save is None else load(save))
    memory, *others = recordings
    for other in others:
        assert other.keys == memory.keys
        assert other.modules == memory.modules
        assert all(
            one.hash == two.hash and dict(one.meta) == dict(two.meta) for one, two in zip(memory, other, strict=True)
        )
        for one, two in zip(memory, other, strict=True):
            np.testing.assert_array_equal(one.array(), two.array())


def test_recording_is_refused_before_the_end_of_the_block(lab):
    model = lab.models.Mlp()
    with watch(model) as run:
        model(lab.tensor(2, 3))
        with pytest.raises(UsageError, match="after the `with` block"):
            _ = run.recording
    with pytest.raises(UsageError, match="entered before"), run:
        pass
