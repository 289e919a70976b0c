"""Scripts that call models of two frameworks: what is recorded is what was asked for, or nothing."""

import textwrap

import pytest

from reprod_log import align, align_models, transfer_weights, watch
from reprod_log.capture.script import run_script
from reprod_log.errors import CaptureError, UsageError
from reprod_log.recording.stores import load

MODELS = """
    import numpy as np, paddle, torch
    torch.manual_seed(0)
    m = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    p = paddle.nn.Sequential(paddle.nn.Linear(4, 8), paddle.nn.ReLU(), paddle.nn.Linear(8, 2))
    for i in (0, 2):
        p[i].weight.set_value(m[i].weight.detach().numpy().T)
        p[i].bias.set_value(m[i].bias.detach().numpy())
    x = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)
"""
TORCH = "m(torch.tensor(x)).sum().backward()\n"
PADDLE = "p(paddle.to_tensor(x)).sum().backward()\n"
WRONG = "(3 * p(paddle.to_tensor(x))).sum().backward()\n"


@pytest.fixture
def script(tmp_path):
    def write(*lines, name="train.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(MODELS) + "".join(lines))
        return path

    return write


@pytest.mark.parametrize(
    "own",
    [
        "from reprod_log import transfer_weights\ntransfer_weights(m, p)\n",
        "from reprod_log import transfer_weights\ntransfer_weights(m, p, inputs=(x,))\n",
        "from reprod_log import align_models\nassert align_models(m, p, (x,), quick=True).passed\n",
    ],
    ids=["transfer", "transfer with inputs", "align_models"],
)
def test_what_we_run_ourselves_is_not_heard_when_a_script_is_recorded(own, script):
    reference = run_script(script(TORCH))
    candidate = run_script(script(own, PADDLE))
    assert candidate.provenance.framework == "paddle"
    assert not candidate.notes
    assert align(reference, candidate).passed


def test_what_we_run_ourselves_is_not_heard_when_a_model_is_watched():
    import numpy as np
    import paddle
    import torch

    m, p = torch.nn.Linear(4, 2), paddle.nn.Linear(4, 2)
    with watch(p) as run:
        transfer_weights(m, p)
        assert align_models(m, p, (np.ones((2, 4), "float32"),), quick=True).passed
        p(paddle.ones([3, 4]))
    assert run.recording.steps == (0,)
    assert run.recording["step0/data/#0:input.0"].shape == (3, 4)


@pytest.mark.parametrize("lines", [(TORCH, WRONG), (PADDLE, TORCH)])
def test_models_of_two_frameworks_are_refused_when_nobody_chose(lines, script, tmp_path):
    with pytest.raises(UsageError, match="models of .* and of .*--framework torch"):
        run_script(script(*lines), save=tmp_path / "rec")
    reference = run_script(script(TORCH), framework="torch")
    assert not align(reference, load(tmp_path / "rec")).passed


def test_models_of_two_frameworks_are_refused_when_the_script_catches_everything(script, tmp_path):
    careless = f"try:\n    {WRONG}except Exception:\n    pass\n"
    with pytest.raises(UsageError, match="--framework paddle"):
        run_script(script(TORCH, careless), save=tmp_path / "rec")
    assert not load(tmp_path / "rec").complete


def test_chosen_framework_is_recorded_when_models_of_both_are_called(script):
    reference = run_script(script(TORCH, WRONG), framework="torch")
    good, wrong = (run_script(script(TORCH, one), framework="paddle") for one in (PADDLE, WRONG))
    assert [one.provenance.framework for one in (reference, good, wrong)] == ["torch", "paddle", "paddle"]
    assert align(reference, good).passed
    assert not align(reference, wrong).passed
    assert [str(note) for note in good.notes] == ["models of torch were called too; they are not in this recording"]
    assert good.provenance.extra["run"]["framework"] == "paddle"


def test_module_without_parameters_does_not_decide_when_it_is_called_first(script):
    recording = run_script(script("torch.nn.Flatten()(torch.tensor(x))\n", PADDLE, "torch.nn.ReLU()(torch.ones(2))\n"))
    assert recording.provenance.framework == "paddle"
    assert not recording.notes


def test_framework_that_is_not_called_is_told(script):
    with pytest.raises(CaptureError, match="no module of paddle .it called models of 'torch'"):
        run_script(script(TORCH), framework="paddle")
    with pytest.raises(UsageError, match="framework must be one of"):
        run_script(script(TORCH), framework="tensorphlow")
