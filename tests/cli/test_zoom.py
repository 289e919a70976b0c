"""reprod zoom: sketches of two scripts, each in its own process, then a closer look at the first place they part."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reprod_log import Recording, load
from reprod_log.cli import run
from reprod_log.recording.recorder import Recorder

WEIGHTS = """
import numpy as np
rng = np.random.default_rng(0)
W1, W2 = rng.normal(size=(40, 30)).astype("float32") / 6, rng.normal(size=(30, 40)).astype("float32") / 6
X, Y = rng.normal(size=(4, 20, 30)).astype("float32"), rng.normal(size=(20, 30)).astype("float32")
"""
TORCH = """
import torch
from weights import *
net = torch.nn.Sequential(torch.nn.Linear(30, 40, bias=False), torch.nn.Tanh(), torch.nn.Linear(40, 30, bias=False))
with torch.no_grad():
    net[0].weight.copy_(torch.tensor(W1)); net[2].weight.copy_(torch.tensor(W2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x in X:
    loss = ((net(torch.tensor(x)) - torch.tensor(Y)) ** 2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
"""
PADDLE = """
import sys, paddle
from weights import *
WRONG_FROM = int(sys.argv[1])
class Net(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.head, self.body = paddle.nn.Linear(40, 30, bias_attr=False), paddle.nn.Linear(30, 40, bias_attr=False)
        self.step = 0
    def forward(self, x):
        inside = paddle.tanh(self.body(x))
        return self.head(inside if self.step < WRONG_FROM else inside.round(decimals=1))
net = Net()
net.body.weight.set_value(W1.T); net.head.weight.set_value(W2.T)
opt = paddle.optimizer.SGD(0.1, parameters=net.parameters())
for x in X:
    loss = ((net(paddle.to_tensor(x)) - paddle.to_tensor(Y)) ** 2).mean()
    loss.backward(); opt.step(); opt.clear_grad(); net.step += 1
"""
LIMIT = ("--limit", "rel_l2:1e-4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("zoom")
    for name, text in (("weights.py", WEIGHTS), ("torch_train.py", TORCH), ("paddle_train.py", PADDLE)):
        (place / name).write_text(text)
    for target, script in (("ref", ["torch_train.py"]), ("bad", ["paddle_train.py", "2"])):
        command = [sys.executable, "-m", "reprod_log", "run", "-o", target, "--detail", "sketch", *script]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        answer = subprocess.run(command, cwd=place, capture_output=True, text=True, env=environment, check=False)
        assert answer.returncode == 0, answer.stderr
    return place


def zoom(folder: Path, candidate: str, *options: str) -> int:
    return run(["zoom", str(folder / "ref"), str(folder / candidate), "-o", str(folder / "look"), *LIMIT, *options])


def test_place_is_found_by_sketches_and_looked_at_in_full(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["compare", str(folder / "ref"), str(folder / "bad"), *LIMIT, "--json", str(folder / "bad.json")]) == 1
    rough = json.loads((folder / "bad.json").read_text())
    assert rough["first_divergence"] == "step2/forward/2#0:output"
    capsys.readouterr()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))
    assert zoom(folder, "bad", "--yes", "--report", str(folder / "look.json"), "--language", "zh") == 1
    said = capsys.readouterr()
    assert "未对齐" in said.out
    assert "::error title=reprod_log::NOT ALIGNED" in said.out
    assert (folder / "summary.md").read_text(encoding="utf-8").startswith("## ✗ NOT ALIGNED")
    assert f"已写入：{folder / 'look.json'}" in said.out
    assert "首个分歧：第 2 步 · forward · 2 ↔ head · output" in said.out
    assert "did not repeat itself" not in said.err
    for side, layer in (("reference", "2"), ("candidate", "head")):
        found = load(folder / "look" / side)
        assert found.steps == (2,)
        assert {entry.detail for entry in found} == {"full"}
        assert {entry.key.path for entry in found if entry.key.phase == "forward"} == {layer}
        assert f"step2/forward/{layer}#0:input.0" in found
    fine = json.loads((folder / "look.json").read_text())
    rows = {row["key"]: row for row in fine["comparison"]["rows"]}
    # In full it is seen that what goes into the layer is wrong already, and by how much each element.
    assert fine["first_divergence"] == "step2/forward/2#0:input.0"
    assert rows["step2/forward/2#0:input.0"]["measurement"]["max_abs"] == pytest.approx(0.05, rel=0.05)
    assert rows["step2/gradient/2.weight:raw"]["measurement"]["max_abs"] > 0
    assert "transposed" in rows["step2/gradient/2.weight:raw"]["view"]


def test_nothing_is_run_when_all_passes_or_nobody_agrees(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("something was run"))
    # A recording against itself passes and proves nothing.
    assert zoom(folder, "ref") == 4
    assert "nothing to zoom into" in capsys.readouterr().out
    monkeypatch.setattr("typer.confirm", lambda question: False)
    assert zoom(folder, "bad") == 1
    assert "--step 2 " in capsys.readouterr().out


def test_question_without_an_answer_is_wrong_use(folder: Path) -> None:
    command = [sys.executable, "-m", "reprod_log", "zoom", "ref", "bad", "-o", "none", *LIMIT]
    answer = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert "give --yes" in answer.stderr


def test_a_run_that_does_not_repeat_itself_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.run

    def other_run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if "--layers" not in command:
            return real(command, **options)
        layer = command[command.index("--layers") + 1]
        recorder = Recorder(command[command.index("-o") + 1])
        recorder.add(f"step2/forward/{layer}#0:output", np.ones((20, 30), np.float32))
        recorder.close()
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", other_run)
    assert zoom(folder, "bad", "--yes") == 0
    said = capsys.readouterr().err
    assert "the reference did not repeat itself: 1 of 1 entry" in said
    assert "the candidate did not repeat itself" in said


def test_recordings_that_do_not_say_how_they_were_made_are_refused_with_advice(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Recording.from_arrays({"step0/forward/fc#0:output": np.ones(3)}).save(tmp_path / "a")
    Recording.from_arrays({"step0/forward/fc#0:output": np.zeros(3)}).save(tmp_path / "b")
    assert run(["zoom", str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(tmp_path / "look")]) == 2
    said = capsys.readouterr().err
    assert "--reference-run" in said
    assert "steps=[0]" in said


def test_a_script_that_fails_is_not_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "fails.py").write_text("raise SystemExit(3)\n")
    assert zoom(folder, "bad", "--yes", "--reference-run", str(folder / "fails.py")) == 2
    assert "ended with 3" in capsys.readouterr().err
