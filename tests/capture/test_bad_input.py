"""Wrong use gets a message that says what, where, and what to do."""

import numpy as np
import pytest

from reprod_log.capture import watch
from reprod_log.errors import CaptureError, UsageError
from reprod_log.frameworks import framework_of


def test_model_of_an_unknown_framework_is_refused_by_name():
    class Model:
        pass

    with pytest.raises(CaptureError, match=r"Model cannot be watched.*'paddle'.*'torch'.*run\.log"):
        watch(Model())
    with pytest.raises(CaptureError, match=r"builtins\.function cannot be watched"):
        framework_of(len.__class__ and (lambda x: x))


def test_tensor_in_place_of_a_model_is_refused(lab):
    with pytest.raises(UsageError, match="not a module"):
        watch(lab.tensor(2, 3))
    with pytest.raises(UsageError, match="not an optimizer"):
        watch(lab.models.Mlp(), optimizer=lab.models.Mlp())


def test_models_of_two_frameworks_are_refused():
    import paddle
    import torch

    with pytest.raises(UsageError, match="different frameworks"):
        watch({"a": torch.nn.Linear(1, 1), "b": paddle.nn.Linear(1, 1)})


def test_nothing_recorded_is_an_error_when_the_model_was_never_called(lab):
    model = lab.models.Mlp()
    with pytest.raises(CaptureError, match="no watched model was called"), watch(model):
        model.eval()
    assert lab.hooks(model) == 0


def test_nothing_recorded_is_an_error_when_nothing_was_selected(lab):
    model = lab.models.Mlp()
    with pytest.raises(CaptureError, match="1 step was seen, but none of phases"), watch(model, steps=[5]):
        model(lab.tensor(2, 3))


def test_nothing_recorded_does_not_hide_an_exception_of_the_program(lab):
    with pytest.raises(ZeroDivisionError), watch(lab.models.Mlp()):
        raise ZeroDivisionError


def test_loss_that_is_no_scalar_is_refused_with_its_shape(lab):
    model = lab.models.Mlp()
    with watch(model) as run:
        output = model(lab.tensor(2, 3))
        with pytest.raises(CaptureError, match=r"the loss 'loss' has shape \[2, 2\].*run\.log"):
            run.loss(output)
        run.log("per_element", output)
    assert run.recording["step0/loss/per_element"].shape == (2, 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"phases": ["forwards"]}, "no such phase: 'forwards'"),
        ({"phases": []}, "nothing would be recorded"),
        ({"detail": "sketch:few"}, "sketch:1024"),
        ({"detail": "tiny"}, "'full', 'sketch', 'summary'"),
        ({"detail": None}, "'full', 'sketch', 'summary'.* not None"),
        ({"detail": 5}, "'full', 'sketch', 'summary'.* not 5"),
        ({"save": 5}, "saved to a path, not to 5"),
        ({"detail": {"forwards": "full"}}, "phases that do not exist"),
        ({"steps": [-1]}, "steps must be"),
        ({"steps": 0}, "steps must be"),
        ({"layers": []}, "layers must be patterns"),
        ({"inputs": "sometimes"}, "inputs must be"),
        ({"budget": -1}, "budget must be"),
        ({"save": "recording.zip"}, "cannot tell the format from the suffix"),
        ({"step_after": "g"}, "not an optimizer here; there are none"),
    ],
)
def test_impossible_options_are_refused(lab, options, said):
    with pytest.raises(UsageError, match=said):
        watch(lab.models.Mlp(), **options)


def test_logging_after_the_block_is_refused(lab):
    model = lab.models.Mlp()
    with watch(model) as run:
        model(lab.tensor(2, 3))
    with pytest.raises(UsageError, match="the `with` block has ended"):
        run.log("x", 1.0)
    assert run.step_number == 1


@pytest.mark.parametrize("name", ["", "a/b", "a:b", 3])
def test_impossible_names_of_models_are_refused(lab, name):
    with pytest.raises(UsageError, match="must have names"):
        watch({name: lab.models.Mlp()})


@pytest.mark.parametrize(
    ("name", "value", "phase", "said"),
    [
        ("x", 1.0, "nowhere", "no such phase"),
        ("a#1", 1.0, "metric", "cannot be a name"),
        ("x", object(), "metric", "cannot make a numpy array"),
    ],
)
def test_impossible_values_are_refused_when_logged(lab, name, value, phase, said):
    model = lab.models.Mlp()
    with watch(model) as run:
        model(lab.tensor(2, 3))
        with pytest.raises(UsageError, match=said):
            run.log(name, value, phase=phase)


def test_anything_can_be_logged_by_hand(lab):
    model = lab.models.Mlp()
    with watch(model) as run:
        model(lab.tensor(2, 3))
        run.log("box", {"score": 0.5, "size": (np.ones(2), lab.tensor(2))}, phase="metric")
        run.log("lr", 0.1, phase="lr")
        run.log("again", 1, phase="metric")
        run.log("again", 2, phase="metric")
    keys = run.recording.keys
    assert {"step0/metric/box:score", "step0/metric/box:size.0", "step0/metric/box:size.1", "step0/lr/lr"} <= set(keys)
    assert [int(run.recording[f"step0/metric/again{call}"].array()) for call in ("", "#1")] == [1, 2]
