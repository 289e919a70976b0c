"""reprod run on scripts of both frameworks, each in its own process, then compare and judge without either."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reprod_log import load
from reprod_log.cli import run

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("scripts")
    for name, text in (("weights.py", WEIGHTS), ("torch_train.py", TORCH), ("paddle_train.py", PADDLE)):
        (place / name).write_text(text)
    record(place, "torch_train.py", "ref")
    record(place, "torch_train.py", "ref", "--dtype", "float64")
    for target, wrong in (("good", "0"), ("bad", "1e-5")):
        record(place, "paddle_train.py", target, arguments=(wrong,))
        record(place, "paddle_train.py", target, "--dtype", "float64", arguments=(wrong,))
    return place


def record(place: Path, script: str, target: str, *options: str, arguments: tuple[str, ...] = ()) -> None:
    command = [sys.executable, "-m", "reprod_log", "run", "-o", target, *options, script, *arguments]
    answer = subprocess.run(
        command, cwd=place, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )
    assert answer.returncode == 0, answer.stderr


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
    assert run(["judge", str(folder / "bad.json"), "--accept", "*"]) == 0
    capsys.readouterr()
    assert run(["judge", str(folder / "bad.json"), "--policy", "guess"]) == 2
    assert "fixed or calibrated" in capsys.readouterr().err


def test_failure_of_the_script_is_told_as_its_own(folder: Path) -> None:
    (folder / "fails.py").write_text(TORCH + "\nraise RuntimeError('boom')\n")
    command = [sys.executable, "-m", "reprod_log", "run", "-o", "failed", "fails.py"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert result.returncode == 1
    assert "RuntimeError: boom" in result.stderr
    assert "entries of 3 steps, is in failed" in result.stderr
    assert "bug in reprod_log" not in result.stderr
    assert "runpy" not in result.stderr


def test_float64_pass_that_fails_leaves_the_recording_whole(folder: Path) -> None:
    # A loss written out, with targets that stay in float32 whatever the model is.
    wide = "if net(torch.tensor(X)).dtype == torch.float64: raise RuntimeError('float32 and float64 do not mix')\n"
    (folder / "narrow.py").write_text(TORCH.replace("for _ in range(3):", wide + "for _ in range(3):"))
    command = [sys.executable, "-m", "reprod_log", "run", "-o", "narrow"]
    assert subprocess.run([*command, "narrow.py"], cwd=folder, capture_output=True).returncode == 0
    before = load(folder / "narrow")
    result = subprocess.run(
        [*command, "--dtype", "float64", "narrow.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert "narrow is unchanged and does not have this pass" in result.stderr
    after = load(folder / "narrow")
    assert after.complete
    assert (after.runs, len(after)) == (before.runs, len(before))


def test_limits_and_the_calibrated_policy_exclude_each_other(folder: Path) -> None:
    command = [sys.executable, "-m", "reprod_log", "judge", "any.json", "--policy", "calibrated", "--limit", "rel_l2:1"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert result.returncode == 2
    assert "--limit requires the fixed policy" in result.stderr


def test_script_that_raises_leaves_what_was_recorded(folder: Path) -> None:
    (folder / "raises.py").write_text(TORCH + "\nraise SystemExit(7)\n")
    command = [sys.executable, "-m", "reprod_log", "run", "-o", "raised", "raises.py"]
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert answer.returncode == 7
    assert "the script exited with 7; " in answer.stderr
    assert load(folder / "raised").steps == (0, 1, 2)


def test_interrupted_script_says_what_was_recorded_and_leaves_with_130(folder: Path) -> None:
    (folder / "stops.py").write_text(TORCH + "\nraise KeyboardInterrupt\n")
    command = [sys.executable, "-m", "reprod_log", "run", "-o", "stopped", "stops.py"]
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert answer.returncode == 130
    assert "interrupted; " in answer.stderr
    assert answer.stderr.rstrip().endswith("entries of 3 steps, is in stopped")
    assert load(folder / "stopped").steps == (0, 1, 2)


def test_script_that_leaves_with_0_is_a_whole_run(folder: Path) -> None:
    (folder / "leaves.py").write_text(TORCH + "\nraise SystemExit(0)\n")
    command = [sys.executable, "-m", "reprod_log", "run", "-o", "left", "--layers", "0", "--layers", "x9", "leaves.py"]
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("left: ")
    assert "note: no layer or parameter matches 'x9'" in answer.stdout
    assert load(folder / "left").complete


def test_missing_script_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "-o", str(tmp_path / "rec"), str(tmp_path / "none.py")]) == 2
    assert "no script" in capsys.readouterr().err
