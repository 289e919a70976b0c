"""Models that are awkward to watch, the same in both frameworks."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from reprod_log.capture import watch
from reprod_log.errors import UsageError


def arrays(recording):
    return {str(entry.key): entry.array() for entry in recording}


def test_value_before_an_in_place_write_is_recorded_with_its_own_gradient(lab):
    model = lab.models.Mlp(inplace=True)
    with watch(model) as run:
        x = lab.tensor(6, 3)
        (model(x) ** 2).sum().backward()
    found = arrays(run.recording)
    pre, post = found["step0/forward/fc1#0:output"], found["step0/forward/act#0:output"]
    assert (pre < 0).any()
    np.testing.assert_array_equal(post, np.maximum(pre, 0))
    np.testing.assert_array_equal(
        found["step0/backward/fc1#0:output"], found["step0/backward/act#0:output"] * (pre > 0)
    )
    assert (found["step0/backward/act#0:output"] != found["step0/backward/fc1#0:output"]).any()


def test_output_written_in_place_by_its_caller_is_recorded_as_the_layer_gave_it(lab):
    class Writes(lab.Module):
        def __init__(self):
            super().__init__()
            self.fc = lab.nn.Linear(3, 3)

        def forward(self, x):
            return lab.add_in_place(self.fc(x), 1)

    model = Writes()
    with watch(model) as run:
        model(lab.tensor(2, 3)).sum().backward()
    found = arrays(run.recording)
    np.testing.assert_allclose(found["step0/forward/#0:output"], found["step0/forward/fc#0:output"] + 1, rtol=1e-6)
    assert found["step0/backward/fc#0:output"].tolist() == np.ones((2, 3)).tolist()


def test_module_called_several_times_has_an_entry_for_each_call(lab):
    class Twice(lab.Module):
        def __init__(self):
            super().__init__()
            self.fc = lab.nn.Linear(3, 3)

        def forward(self, x):
            return self.fc(self.fc(x) * 2)

    model = Twice()
    with watch(model) as run:
        model(lab.tensor(2, 3)).sum().backward()
    keys = [key for key in run.recording.keys if "/fc#" in key and key.endswith("output")]
    assert keys == [
        "step0/forward/fc#0:output",
        "step0/forward/fc#1:output",
        "step0/backward/fc#1:output",
        "step0/backward/fc#0:output",
    ]
    found = arrays(run.recording)
    weight = model.fc.weight.detach().numpy()
    weight = weight if lab.name == "torch" else weight.T
    expected = found["step0/backward/fc#1:output"] @ weight * 2
    np.testing.assert_allclose(found["step0/backward/fc#0:output"], expected, rtol=1e-5)
    assert found["step0/gradient/fc.weight:raw"].shape == model.fc.weight.grad.numpy().shape


def test_shared_module_and_tied_weight_are_recorded_once_and_their_other_names_kept(lab):
    class Tied(lab.Module):
        def __init__(self):
            super().__init__()
            self.a = lab.nn.Linear(3, 3)
            self.again = self.a
            self.b = lab.nn.Linear(3, 3)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.again(self.a(x)))

    model = Tied()
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer) as run:
        model(lab.tensor(2, 3)).sum().backward()
        optimizer.step()
    recording = run.recording
    assert "step0/forward/a#1:output" in recording
    assert not any("/again" in key for key in recording.keys)
    assert "step0/gradient/a.weight:raw" in recording
    assert "step0/gradient/b.weight:raw" not in recording
    assert recording.provenance.extra["shared_modules"] == {"again": "a"}
    assert recording.provenance.extra["tied_parameters"] == {"b.weight": "a.weight"}


@dataclass
class Answer:
    logits: Any
    hidden: Any = None


Pair = namedtuple("Pair", "left right")

STRUCTURES = {
    "tuple": (lambda x: (x, x * 2), {"output.0", "output.1"}),
    "list": (lambda x: [x, [x * 2]], {"output.0", "output.1.0"}),
    "dict": (lambda x: {"logits": x, "odd/name": x * 2}, {"output.logits", "output.odd_name"}),
    "ordered": (lambda x: OrderedDict(a=x), {"output.a"}),
    "dataclass": (lambda x: Answer(x, (x * 2, None)), {"output.logits", "output.hidden.0"}),
    "namedtuple": (lambda x: Pair(x, x * 2), {"output.left", "output.right"}),
    "with None": (lambda x: (None, x), {"output.1"}),
    "with numbers": (lambda x: (x, 3, "text", 0.5), {"output.0"}),
}


@pytest.mark.parametrize("case", STRUCTURES)
def test_nested_outputs_are_recorded_with_their_gradients(lab, case):
    build, roles = STRUCTURES[case]

    class Nested(lab.Module):
        def __init__(self):
            super().__init__()
            self.fc = lab.nn.Linear(3, 3)

        def forward(self, x):
            return build(self.fc(x))

    class Outer(lab.Module):
        def __init__(self):
            super().__init__()
            self.inner = Nested()
            self.nothing = Nothing()

        def forward(self, x):
            self.nothing(x)
            return tensors_of(self.inner(x))

    class Nothing(lab.Module):
        def forward(self, x):
            return None

    def tensors_of(value):
        if hasattr(value, "backward"):
            return value.sum()
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, Answer):
            value = [value.logits, value.hidden]
        if isinstance(value, (list, tuple)):
            parts = [tensors_of(item) for item in value if item is not None and not isinstance(item, (int, float, str))]
            return sum(parts[1:], parts[0])
        raise AssertionError(value)

    model = Outer()
    with watch(model) as run:
        model(lab.tensor(2, 3)).backward()
    of_inner = [entry.key for entry in run.recording if entry.key.path == "inner" and "output" in entry.key.role]
    assert {key.role for key in of_inner if key.phase == "forward"} == roles
    assert {key.role for key in of_inner if key.phase == "backward"} == roles
    assert not any(entry.key.path == "nothing" and "output" in entry.key.role for entry in run.recording)
    assert run.recording.notes == ()


def test_keyword_inputs_are_recorded_by_name(lab):
    class Masked(lab.Module):
        def forward(self, x, *, mask=None, state=None):
            return x * mask

    model = Masked()
    with watch(model) as run:
        model(lab.tensor(2, 3), mask=lab.tensor(2, 3, seed=1), state={"h": lab.tensor(1, 1)})
    roles = {entry.key.role for entry in run.recording if entry.key.phase == "data"}
    assert roles == {"input.0", "input.mask", "input.state.h"}


def test_object_that_cannot_be_looked_into_is_noted(lab):
    class Box:
        def __init__(self, content):
            self.content = content

    class Boxed(lab.Module):
        def __init__(self):
            super().__init__()
            self.fc = lab.nn.Linear(3, 3)

        def forward(self, x):
            return Box(self.fc(x))

    model = Boxed()
    with watch(model) as run:
        model(lab.tensor(2, 3))
        model(lab.tensor(2, 3))
    assert len([note for note in map(str, run.recording.notes) if "Box" in note]) == 1


def test_submodule_called_on_its_own_is_recorded_with_its_input(lab):
    model = lab.models.Mlp()
    with watch(model) as run:
        hidden = model.fc1(lab.tensor(2, 3))
        model.fc2(hidden)
        model.fc1(lab.tensor(2, 3))
    assert "step0/data/fc1#0:input.0" in run.recording
    assert "step0/forward/fc1#0:output" in run.recording
    assert "step0/forward/fc2#0:output" in run.recording
    assert run.recording.steps == (0, 1)


def test_model_without_gradients_is_recorded_forward_only(lab):
    model = lab.models.Mlp()
    model.eval()
    with lab.no_grad(), watch(model) as run:
        model(lab.tensor(2, 3))
    assert {entry.key.phase for entry in run.recording} == {"data", "forward", "parameter"}
    assert run.recording["step0/forward/fc1#0:output"].meta["training"] is False


def test_model_without_parameters_is_recorded(lab):
    model = lab.relu()
    with watch(model) as run:
        model(lab.tensor(2, 3))
    assert "step0/forward/#0:output" in run.recording


def test_frozen_parameters_have_no_gradient_and_no_update(lab, trained):
    model = lab.models.Mlp()
    for parameter in model.fc1.parameters():
        lab.freeze(parameter)
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer) as run:
        trained(lab, model, optimizer, steps=1)
    by_phase = {phase: {e.key.path for e in run.recording if e.key.phase == phase} for phase in ("gradient", "update")}
    assert by_phase == {"gradient": {"fc2.weight", "fc2.bias"}, "update": {"fc2.weight", "fc2.bias"}}
    assert "step0/parameter/fc1.weight" in run.recording


def test_parameter_thawed_later_has_its_gradient_recorded_from_then_on(lab, trained):
    model = lab.models.Mlp()
    lab.freeze(model.fc1.weight)
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer) as run:
        trained(lab, model, optimizer, steps=1)
        if lab.name == "torch":
            model.fc1.weight.requires_grad_(True)
        else:
            model.fc1.weight.stop_gradient = False
        trained(lab, model, optimizer, steps=2)
    assert "step0/gradient/fc1.weight:raw" not in run.recording
    assert "step2/gradient/fc1.weight:raw" in run.recording


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_block_is_recorded_once_with_its_gradients(lab, reentrant):
    class Checkpointed(lab.Module):
        def __init__(self, plain):
            super().__init__()
            self.stem = lab.nn.Linear(3, 3)
            self.block = lab.nn.Sequential(lab.nn.Linear(3, 3), lab.relu(), lab.nn.Linear(3, 3))
            self.plain = plain

        def forward(self, x):
            x = self.stem(x)
            for _ in range(2):
                x = self.block(x) if self.plain else lab.checkpoint(self.block, x, reentrant=reentrant)
            return x

    recordings = []
    for plain in (True, False):
        lab.seed(3)
        model = Checkpointed(plain)
        with watch(model, inputs=False) as run:
            (model(lab.tensor(4, 3)) ** 2).sum().backward()
        recordings.append(arrays(run.recording))
    plain, checkpointed = recordings
    assert set(plain) == set(checkpointed)
    for key, value in plain.items():
        np.testing.assert_array_equal(value, checkpointed[key], err_msg=key)


def test_children_of_fused_layers_are_noted_as_silent(lab):
    layer = lab.nn.MultiheadAttention(4, 2) if lab.name == "torch" else lab.nn.LSTM(4, 4)

    class Holder(lab.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return (self.layer(x, x, x) if lab.name == "torch" else self.layer(x))[0]

    model = Holder()
    with watch(model) as run:
        model(lab.tensor(2, 3, 4)).sum().backward()
    note = "\n".join(map(str, run.recording.notes))
    assert "did not run as modules of their own" in note
    assert ("layer.out_proj " if lab.name == "torch" else "layer.0.cell ") in note
    weight = "layer.out_proj.weight" if lab.name == "torch" else "layer.weight_ih_l0"
    assert any(key.endswith(f"{weight}:raw") for key in run.recording.keys)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layer_has_output_and_states(lab, kind):
    model = getattr(lab.nn, kind)(4, 5)
    with watch(model) as run:
        model(lab.tensor(2, 3, 4))[0].sum().backward()
    roles = {entry.key.role for entry in run.recording if entry.key.phase == "forward" and entry.key.path == ""}
    states = {"output.1.0", "output.1.1"} if kind == "LSTM" else {"output.1"}
    assert roles == {"input.0", "output.0"} | states
    assert run.recording.modules[0].kind == kind.lower()


def test_unused_layer_is_noted(lab):
    model = lab.models.Mlp()
    model.spare = lab.nn.Linear(2, 2)
    with watch(model) as run:
        model(lab.tensor(2, 3))
    assert any("never called as modules: spare" in note for note in map(str, run.recording.notes))


def test_several_models_are_told_apart_by_name(lab):
    generator, discriminator = lab.nn.Linear(2, 3), lab.nn.Linear(3, 1)
    with watch({"g": generator, "d": discriminator}) as run:
        discriminator(generator(lab.tensor(4, 2))).sum().backward()
    keys = run.recording.keys
    assert "step0/forward/g#0:output" in keys
    assert "step0/gradient/d.weight:raw" in keys
    assert run.recording["step0/forward/d#0:input.0"].meta["from"] == "step0/forward/g#0:output"
    assert {module.path for module in run.recording.modules} == {"g", "d"}


def test_only_what_comes_from_outside_is_data(lab):
    models = {"g": lab.nn.Linear(2, 3), "d": lab.nn.Linear(3, 1), "loss": lab.nn.MSELoss()}
    real, labels = lab.tensor(4, 3), lab.tensor(4, 1)
    with watch(models) as run:
        with run.step():
            fake = models["g"](lab.tensor(4, 2))
            for picture in (real, fake.detach(), fake * 2):
                models["loss"](models["d"](picture), labels)
        with run.step():
            models["d"](fake.detach())
    data = [str(entry.key) for entry in run.recording if entry.key.phase == "data"]
    assert data == [
        "step0/data/g#0:input.0",
        "step0/data/d#0:input.0",
        "step0/data/loss#0:input.1",
        "step0/data/loss#1:input.1",
        "step0/data/loss#2:input.1",
    ]


def test_gradient_that_arrives_twice_is_recorded_twice(lab):
    model = lab.models.Mlp()
    with watch(model) as run:
        output = model(lab.tensor(2, 3))
        output.sum().backward(retain_graph=True)
        (output * 3).sum().backward()
    found = arrays(run.recording)
    assert found["step0/backward/fc2#0:output"].tolist() == np.ones((2, 2)).tolist()
    assert found["step0/backward/fc2#0:output~1"].tolist() == np.full((2, 2), 3).tolist()
    np.testing.assert_array_equal(found["step0/gradient/fc2.bias:raw"], [8, 8])


def test_leaf_returned_as_output_keeps_no_hook(lab):
    class Passing(lab.Module):
        def forward(self, x):
            return x

    x = lab.tensor(2, 3)
    if lab.name == "torch":
        x.requires_grad_(True)
    else:
        x.stop_gradient = False
    model = Passing()
    with watch(model) as run:
        (model(x) * 2).sum().backward()
    assert "step0/backward/#0:output" in run.recording
    if lab.name == "torch":
        assert not x._backward_hooks


def test_paused_part_is_neither_recorded_nor_counted(lab, trained):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer) as run:
        trained(lab, model, optimizer, steps=1)
        with run.paused():
            model(lab.tensor(9, 3))
            trained(lab, model, optimizer, steps=3)
        trained(lab, model, optimizer, steps=1)
    assert run.recording.steps == (0, 1)
    assert not any(entry.shape[:1] == (9,) for entry in run.recording)


def test_layer_pattern_without_a_match_is_refused_with_the_names_there_are(lab):
    model = lab.models.Mlp()
    with pytest.raises(UsageError, match=r"no layer or .*matches 'encoder\.\*'; the model has 'fc1', 'act', 'fc2'"):
        watch(model, layers="encoder.*").__enter__()
    assert lab.hooks(model) == 0


def test_layer_pattern_without_a_match_beside_one_that_fits_is_noted(lab, trained):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with watch(model, layers=["fc1", "fx2*"]) as run:
        trained(lab, model, optimizer, steps=1)
    assert "no layer or parameter matches 'fx2*'; similar: fc2" in " ".join(map(str, run.recording.notes))
    assert not any("'fc1'" in note for note in map(str, run.recording.notes) if note.startswith("no layer"))
