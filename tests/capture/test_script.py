"""Scripts that know nothing of us are recorded as they run."""

import runpy
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from reprod_log.capture import watch
from reprod_log.capture.script import run_script
from reprod_log.errors import CaptureError, UsageError
from reprod_log.recording.stores import load

TORCH = """
    import sys
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        x = torch.arange(6, dtype=torch.float32).reshape(2, 3) * (step + 1)
        loss = nn.CrossEntropyLoss()(model(x), torch.tensor([0, 1]))
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            result = [parameter.double().sum().item() for parameter in model.parameters()]
"""

PADDLE = """
    import sys
    import paddle
    from paddle import nn

    paddle.seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    optimizer = paddle.optimizer.AdamW(parameters=model.parameters(), learning_rate=0.1)
    for step in range(3):
        x = paddle.arange(6, dtype="float32").reshape([2, 3]) * (step + 1)
        loss = nn.CrossEntropyLoss()(model(x), paddle.to_tensor([0, 1]))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        result = [parameter.astype("float64").sum().item() for parameter in model.parameters()]
"""

SCRIPTS = {"torch": TORCH, "paddle": PADDLE}


@pytest.fixture
def script(tmp_path):
    def write(text, more="", name="train.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text) + textwrap.dedent(more))
        return path

    return write


def patched():
    import paddle
    import torch

    return (
        torch.nn.Module.__call__,
        torch.optim.Optimizer.__init__,
        torch.autograd.backward,
        paddle.nn.Layer.__call__,
        paddle.optimizer.AdamW.__init__,
        paddle.base.core.eager.run_backward,
        list(sys.meta_path),
        list(sys.path),
        list(sys.argv),
    )


@pytest.mark.parametrize("framework", SCRIPTS)
def test_script_is_recorded_without_a_change_to_it(framework, script, tmp_path):
    before = patched()
    recording = run_script(script(SCRIPTS[framework]), save=tmp_path / "rec")
    assert patched() == before
    assert recording.steps == (0, 1, 2)
    keys = set(recording.keys)
    for step in range(3):
        assert {
            f"step{step}/data/#0:input.0",
            f"step{step}/data/CrossEntropyLoss#0:input.1",
            f"step{step}/forward/0#0:output",
            f"step{step}/forward/CrossEntropyLoss#0:output",
            f"step{step}/loss/loss",
            f"step{step}/backward/0#0:output",
            f"step{step}/gradient/0.weight:raw",
            f"step{step}/lr/optimizer:group0",
            f"step{step}/update/2.bias",
            f"step{step}/optimizer/0.weight:exp_avg_sq",
        } <= keys
    assert not any("#1" in key for key in keys)
    assert recording.provenance.framework == framework
    assert recording.provenance.weights_hash
    assert load(tmp_path / "rec").keys == recording.keys


def test_both_scripts_have_the_same_keys(script):
    keys = [set(run_script(script(text)).keys) for text in SCRIPTS.values()]
    assert keys[0] == keys[1]


@pytest.mark.parametrize("framework", SCRIPTS)
def test_script_computes_the_same_when_recorded(framework, script, tmp_path, monkeypatch):
    more = "\n    from pathlib import Path\n    Path(sys.argv[1]).write_text(repr(result))\n"
    path = script(SCRIPTS[framework], more)
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "alone")])
    runpy.run_path(str(path))
    run_script(path, [str(tmp_path / "watched")])
    assert (tmp_path / "alone").read_text() == (tmp_path / "watched").read_text()


@pytest.mark.parametrize("framework", SCRIPTS)
def test_framework_is_found_when_the_script_imports_it_first(framework, script, tmp_path):
    path = script(SCRIPTS[framework])
    program = (
        "import sys; from reprod_log.capture.script import run_script\n"
        f"assert {framework!r} not in sys.modules\n"
        f"recording = run_script({str(path)!r}, save={str(tmp_path / 'rec')!r})\n"
        "print(len(recording.steps), sorted(set(sys.modules) & {'torch', 'paddle'}))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip().splitlines()[-1] == f"3 ['{framework}']"


@pytest.mark.parametrize(("framework", "steps"), [*((framework, None) for framework in SCRIPTS), ("torch", 1)])
def test_script_runs_in_float64_with_the_same_weights(framework, steps, script):
    # All of it, even if only its first step is recorded.
    text = SCRIPTS[framework]
    single, double = (run_script(script(text), dtype=dtype, steps=steps) for dtype in (None, "float64"))
    assert set(single.keys) == set(double.keys)
    for entry in single:
        wide = double[entry.key]
        if entry.dtype == "float32":
            assert wide.dtype == "float64", str(entry.key)
            if entry.key.phase in ("data", "forward", "loss", "gradient") and entry.key.step == 0:
                np.testing.assert_allclose(wide.array(), entry.array(), rtol=1e-5, atol=1e-6, err_msg=str(entry.key))
    assert double.provenance.dtype == "float64"


@pytest.mark.parametrize(
    ("ending", "error"),
    [("sys.exit(3)", SystemExit), ("sys.exit()", SystemExit), ("raise ZeroDivisionError('late')", ZeroDivisionError)],
)
def test_recording_is_saved_whatever_the_script_ends_with(ending, error, script, tmp_path):
    before = patched()
    with pytest.raises(error) as raised:
        run_script(script(TORCH, f"\n    {ending}\n"), save=tmp_path / "rec")
    assert patched() == before
    saved = load(tmp_path / "rec")
    assert saved.complete == (ending == "sys.exit()")
    assert saved.steps == (0, 1, 2)
    if ending == "sys.exit(3)":
        assert raised.value.code == 3
    assert any("cut short" in note for note in map(str, saved.notes)) == (ending != "sys.exit()")


def test_arguments_and_neighbouring_modules_are_found(script, tmp_path):
    script("import torch\nmodel = torch.nn.Linear(2, 2)\n", name="neighbour.py")
    text = "import sys, torch\nfrom neighbour import model\nassert __name__ == '__main__'\n"
    more = "assert sys.argv[1:] == ['--size', '3'], sys.argv\nmodel(torch.ones(1, 2))\n"
    recording = run_script(script(text, more), ["--size", "3"])
    assert "step0/forward/#0:output" in recording
    sys.modules.pop("neighbour")


GAN = """
    import torch
    from torch import nn

    class Trainer:
        def __init__(self):
            self.generator = nn.Linear(2, 3)
            self.discriminator = nn.Sequential(nn.Linear(3, 1))
            self.g = torch.optim.SGD(self.generator.parameters(), 0.1)
            self.d = torch.optim.SGD(self.discriminator.parameters(), 0.1)

        def run(self):
            for _ in range(2):
                for optimizer in (self.d, self.g):
                    optimizer.zero_grad()
                    self.discriminator(self.generator(torch.ones(4, 2))).mean().backward()
                    optimizer.step()

    Trainer().run()
"""


def test_several_models_get_the_names_of_their_variables(script):
    recording = run_script(script(GAN))
    assert recording.steps == (0, 1, 2, 3)
    assert "step0/forward/generator#0:output" in recording
    assert "step0/forward/discriminator.0#0:output" in recording
    assert {module.path for module in recording.modules} == {"generator", "discriminator", "discriminator.0"}
    assert "step0/lr/optimizer1:group0" in recording
    assert recording.provenance.extra["optimizers"]["optimizer0"]["parameters"] == [
        "generator.weight",
        "generator.bias",
    ]


def test_options_of_watch_are_taken(script):
    recording = run_script(script(TORCH), phases=["forward"], layers=["2"], steps=[1], detail="summary", run="mine")
    assert {entry.key.step for entry in recording} == {1}
    assert {entry.detail for entry in recording} == {"summary"}
    assert {entry.key.path for entry in recording} == {"2"}
    assert recording.runs == ("mine",)


def test_script_that_watches_itself_is_not_disturbed(script, tmp_path):
    more = f"""
    from reprod_log.capture import watch
    with watch(model, save={str(tmp_path / "own")!r}):
        model(torch.ones(2, 3))
    """
    recording = run_script(script(TORCH, more), save=tmp_path / "rec")
    own = load(tmp_path / "own")
    assert own.steps == (0,)
    assert recording.steps == (0, 1, 2, 3)


def test_compiled_model_is_recorded_at_its_boundary(script):
    text = """
    import torch
    model = torch.compile(torch.nn.Sequential(torch.nn.Linear(2, 2)), backend="eager")
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
    """
    recording = run_script(script(text))
    assert "step1/forward/#0:output" in recording
    assert any("it is compiled" in note for note in map(str, recording.notes))


def test_nothing_recorded_is_an_error(script):
    with pytest.raises(CaptureError, match="called no module of"):
        run_script(script("print('hello')\n"))


def test_missing_script_and_wrong_dtype_are_refused(script, tmp_path):
    with pytest.raises(UsageError, match="there is no script"):
        run_script(tmp_path / "none.py")
    with pytest.raises(UsageError, match="dtype must be"):
        run_script(script(TORCH), dtype="int8")


def test_recording_of_a_script_is_that_of_watch(script, tmp_path):
    import torch

    recording = run_script(script(TORCH))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    with watch(model, optimizer=optimizer) as run:
        for step in range(3):
            optimizer.zero_grad()
            x = torch.arange(6, dtype=torch.float32).reshape(2, 3) * (step + 1)
            torch.nn.CrossEntropyLoss()(model(x), torch.tensor([0, 1])).backward()
            optimizer.step()
    ours = {key: run.recording[key].hash for key in run.recording.keys}
    theirs = {key: recording[key].hash for key in recording.keys if "CrossEntropyLoss" not in key}
    assert ours == theirs
    assert run.recording.provenance.weights_hash == recording.provenance.weights_hash
