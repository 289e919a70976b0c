"""reprod run on scripts of both frameworks, each in its own process, then compare and judge without either."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reprod_log import load
from reprod_log.cli import NOT_PROVEN, run

WEIGHTS = """
import numpy as np
rng = np.random.default_rng(0)
W1, B1, W2, B2 = rng.normal(size=(8, 6)), rng.normal(size=8), rng.normal(size=(3, 8)), rng.normal(size=3)
X, Y = rng.normal(size=(5, 6)).astype("float32"), rng.integers(0, 3, size=5)
"""
TORCH = """
import torch
from weights import *
net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
with torch.no_grad():
    for layer, w, b in ((net[0], W1, B1), (net[2], W2, B2)):
        layer.weight.copy_(torch.tensor(w)); layer.bias.copy_(torch.tensor(b))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = torch.nn.functional.cross_entropy(net(torch.tensor(X)), torch.tensor(Y))
    opt.zero_grad(); loss.backward(); opt.step()
"""
PADDLE = """
import sys, paddle
from weights import *
WRONG = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
class Net(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.head, self.body = paddle.nn.Linear(8, 3), paddle.nn.Linear(6, 8)
    def forward(self, x):
        return self.head(paddle.tanh(self.body(x)) * (1 + WRONG))
net = Net()
for layer, w, b in ((net.body, W1, B1), (net.head, W2, B2)):
    layer.weight.set_value(w.T.astype("float32")); layer.bias.set_value(b.astype("float32"))
opt = paddle.optimizer.SGD(0.1, parameters=net.parameters())
for _ in range(3):
    loss = paddle.nn.functional.cross_entropy(net(paddle.to_tensor(X)), paddle.to_tensor(Y))
    loss.backward(); opt.step(); opt.clear_grad()
"""


# Several commands one after the other in one process, which has to load its framework only once.
DRIVER = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from reprod_log.cli import run

found = []
for arguments in json.loads(sys.argv[1]):
    sys.modules.pop("weights", None)
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = run(arguments)
        except SystemExit as leaving:
            code = leaving.code
    found.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(found))
"""
BOTH_DTYPES = ("float32", "float64")
# A loss written out, with targets that stay in float32 whatever the model is.
NARROW = "if net(torch.tensor(X)).dtype == torch.float64: raise RuntimeError('float32 and float64 do not mix')\n"
ENDINGS = {
    "failed": "raise RuntimeError('boom')",
    "raised": "raise SystemExit(7)",
    "stopped": "raise KeyboardInterrupt",
    "left": "raise SystemExit(0)",
}
Answers = dict[str, list[tuple[int, str, str]]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answers]:
    """The folder with all recordings, and what the commands that made each answered: code, output, errors."""
    place = tmp_path_factory.mktemp("scripts")
    texts = {"weights": WEIGHTS, "torch_train": TORCH, "paddle_train": PADDLE}
    texts |= {name: f"{TORCH}\n{ending}\n" for name, ending in ENDINGS.items()}
    texts["narrow"] = TORCH.replace("for _ in range(3):", f"{NARROW}for _ in range(3):")
    for name, text in texts.items():
        (place / f"{name}.py").write_text(text)
    narrow = [["run", "-o", "narrow", "--dtype", dtype, "narrow.py"] for dtype in BOTH_DTYPES]
    layers = {"left": ["--layers", "0", "--layers", "x9"]}
    ended = [["run", "-o", name, *layers.get(name, []), f"{name}.py"] for name in ENDINGS]
    torch = [["run", "-o", "ref", "--dtype", dtype, "torch_train.py"] for dtype in BOTH_DTYPES]
    paddle = [
        ["run", "-o", target, "--dtype", dtype, "paddle_train.py", wrong]
        for target, wrong in (("good", "0"), ("bad", "1e-5"))
        for dtype in BOTH_DTYPES
    ]
    answers: Answers = {}
    for commands in ([*torch, *narrow, *ended], paddle):
        for command, answer in zip(commands, in_one_process(commands, place), strict=True):
            answers.setdefault(command[2], []).append(answer)
    for name in ("ref", "good", "bad"):
        assert [code for code, _, _ in answers[name]] == [0, 0], answers[name]
    return place, answers


def in_one_process(commands: list[list[str]], place: Path) -> list[tuple[int, str, str]]:
    answer = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(commands)],
        cwd=place,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return [(code, out, err) for code, out, err in json.loads(answer.stdout.splitlines()[-1])]


@pytest.fixture
def folder(recorded: tuple[Path, Answers]) -> Path:
    return recorded[0]


@pytest.fixture
def answers(recorded: tuple[Path, Answers]) -> Answers:
    return recorded[1]


def test_script_is_recorded_unchanged_with_both_passes(folder: Path) -> None:
    reference = load(folder / "ref")
    assert reference.runs == ("", "float64")
    assert reference.steps == (0, 1, 2)
    assert reference.provenance.framework == "torch"
    assert "step2/loss/loss" in reference
    assert reference["float64@step0/forward/0#0:output"].dtype == "float64"


def test_right_port_is_aligned_by_the_calibrated_rule(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["compare", str(folder / "ref"), str(folder / "good"), "--json", str(folder / "good.json")])
    assert code == 0, capsys.readouterr().out
    assert json.loads((folder / "good.json").read_text())["policy"]["name"] == "calibrated"


def test_wrong_port_is_found_below_any_usual_threshold(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["compare", str(folder / "ref"), str(folder / "bad"), "--json", str(folder / "bad.json")])
    assert code == 1
    saved = json.loads((folder / "bad.json").read_text())
    # The planted factor sits between two layers: what the second is given is the first that shows it.
    assert saved["first_divergence"] == "step0/forward/2#0:input.0"
    assert run(["compare", str(folder / "ref"), str(folder / "bad"), "--limit", "mean_abs:1e-3"]) == 0


def test_saved_alignment_is_judged_again_without_tensors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["compare", str(folder / "ref"), str(folder / "bad"), "--json", str(folder / "bad.json")])
    assert run(["judge", str(folder / "bad.json")]) == 1
    assert run(["judge", str(folder / "bad.json"), "--limit", "mean_abs:1e-3"]) == 0
    assert run(["judge", str(folder / "bad.json"), "--policy", "calibrated"]) == 1
    assert run(["judge", str(folder / "bad.json"), "--accept", "*"]) == NOT_PROVEN
    capsys.readouterr()
    assert run(["judge", str(folder / "bad.json"), "--policy", "guess"]) == 2
    assert "'fixed', 'calibrated'" in capsys.readouterr().err


def test_failure_of_the_script_is_reported_as_its_own(answers: Answers) -> None:
    ((code, _, err),) = answers["failed"]
    assert code == 1
    assert "RuntimeError: boom" in err
    assert "entries of 3 steps, is in failed" in err
    assert "bug in reprod_log" not in err
    assert "runpy" not in err


def test_float64_pass_that_fails_leaves_the_recording_whole(folder: Path, answers: Answers) -> None:
    (plain, out, _), (wide, _, err) = answers["narrow"]
    assert (plain, wide) == (0, 1)
    assert "narrow is unchanged and does not have this pass" in err
    after = load(folder / "narrow")
    assert after.complete
    assert after.runs == ("",)
    assert out.startswith(f"narrow: {len(after)} entries")


def test_limits_and_the_calibrated_policy_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["judge", "any.json", "--policy", "calibrated", "--limit", "rel_l2:1"]) == 2
    assert "--limit requires the fixed policy" in capsys.readouterr().err


def test_script_that_raises_leaves_what_was_recorded(folder: Path, answers: Answers) -> None:
    ((code, _, err),) = answers["raised"]
    assert code == 7
    assert "the script exited with 7; " in err
    assert load(folder / "raised").steps == (0, 1, 2)


def test_interrupted_script_says_what_was_recorded_and_leaves_with_130(folder: Path, answers: Answers) -> None:
    ((code, _, err),) = answers["stopped"]
    assert code == 130
    assert "interrupted; " in err
    assert err.rstrip().endswith("entries of 3 steps, is in stopped")
    assert load(folder / "stopped").steps == (0, 1, 2)


def test_script_that_leaves_with_0_is_a_whole_run(folder: Path, answers: Answers) -> None:
    ((code, out, err),) = answers["left"]
    assert code == 0, err
    assert out.startswith("left: ")
    assert "note: no layer or parameter matches 'x9'" in out
    assert load(folder / "left").complete


def test_missing_script_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "-o", str(tmp_path / "rec"), str(tmp_path / "none.py")]) == 2
    assert "no script" in capsys.readouterr().err
