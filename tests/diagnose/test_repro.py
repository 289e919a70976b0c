"""`reprod repro` writes a script that runs by itself and shows the difference."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest
import torch

from reprod_log import align
from reprod_log.capture import watch
from reprod_log.cli import run
from reprod_log.diagnose.repro import write_repro
from reprod_log.errors import UsageError
from reprod_log.recording.stores import load
from reprod_log.transfer import transfer_weights


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Two recordings of a network whose port has another epsilon, and their saved alignment."""
    torch.manual_seed(0)
    ours = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.LayerNorm(6), torch.nn.Linear(6, 2))
    theirs = paddle.nn.Sequential(paddle.nn.Linear(4, 6), paddle.nn.LayerNorm(6, epsilon=1e-3), paddle.nn.Linear(6, 2))
    transfer_weights(ours, theirs, on_difference="report")
    data = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    for name, model, tensor in (("ref", ours, torch.from_numpy(data)), ("cand", theirs, paddle.to_tensor(data))):
        with watch(model, save=tmp_path / name):
            model(tensor).mean().backward()
    align(tmp_path / "ref", tmp_path / "cand").save(tmp_path / "alignment.json")
    return tmp_path


def test_script_of_the_divergent_layer_runs_and_shows_the_difference(recorded: Path) -> None:
    assert run(["repro", str(recorded / "alignment.json"), "-o", str(recorded / "out")]) == 0
    answer = subprocess.run(
        [sys.executable, str(recorded / "out" / "repro.py")], capture_output=True, text=True, check=True
    )
    said = next(line for line in answer.stdout.splitlines() if line.startswith("largest difference"))
    assert float(said.split(":")[1].split()[0]) > 1e-4
    assert "LayerNorm" in answer.stdout


def test_script_of_a_sound_layer_shows_no_difference(recorded: Path) -> None:
    script = write_repro(load(recorded / "ref"), load(recorded / "cand"), layer="0", folder=recorded / "sound")
    answer = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    said = next(line for line in answer.stdout.splitlines() if line.startswith("largest difference"))
    assert float(said.split(":")[1].split()[0]) < 1e-5


def test_layer_that_does_not_exist_is_refused_by_name(recorded: Path) -> None:
    with pytest.raises(UsageError, match="no layer 'nowhere'"):
        write_repro(load(recorded / "ref"), load(recorded / "cand"), layer="nowhere", folder=recorded / "out")


def test_whole_model_is_refused_with_what_to_do(recorded: Path) -> None:
    with pytest.raises(UsageError, match="--layer"):
        write_repro(load(recorded / "ref"), load(recorded / "cand"), layer="", folder=recorded / "out")
