"""What a script does to its surroundings while it is recorded: the disk fills up, folders change, output is closed."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

from reprod_log import cli
from reprod_log.recording.stores import load

resource = pytest.importorskip("resource", reason="needs limits of a process")

SCRIPT = """
import os, resource, shutil, sys
import torch
torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    {disturb}
    optimizer.zero_grad()
    model(torch.ones(2, 64)).sum().backward()
    optimizer.step()
{end}
open(os.environ["RESULT"], "wb").write(model.weight.detach().numpy().tobytes())
"""
FULL = "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))"
"""No file may be larger: each write beyond is refused, as on a full disk."""
ROOM = "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))"


@cache
def expected() -> bytes:
    """The weights that the script comes to, disturbed or not."""
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(2, 64)).sum().backward()
        optimizer.step()
    return model.weight.detach().numpy().tobytes()


def recorded(folder: Path, *, disturb: str = "pass", end: str = "pass") -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(SCRIPT.format(disturb=disturb, end=end))
    done = subprocess.run(
        [sys.executable, "-m", "reprod_log", "run", "-o", "rec", "script.py"],
        cwd=folder, env={**os.environ, "RESULT": str(folder / "result")}, capture_output=True, text=True,
    )  # fmt: skip
    assert (folder / "result").read_bytes() == expected()
    return done


def test_disk_that_fills_up_is_an_exit_code_of_its_own(tmp_path: Path) -> None:
    done = recorded(tmp_path, disturb=f"if step == 2: {FULL}", end=ROOM)
    assert done.returncode == cli.INCOMPLETE
    assert "INCOMPLETE" in done.stdout
    assert "recording stopped at 'step1/" in done.stdout
    found = load(tmp_path / "rec")
    assert not found.complete
    assert found.steps == (0,)


def test_disk_that_is_full_from_the_start_is_no_success(tmp_path: Path) -> None:
    done = recorded(tmp_path, disturb=f"if step == 0: {FULL.replace('20_000', '1')}", end=ROOM)
    assert done.returncode not in (0, 1, cli.INTERNAL_ERROR)
    assert "nothing was recorded" in done.stderr
    assert not (tmp_path / "rec" / "manifest.json").exists()


def test_script_may_change_its_folder(tmp_path: Path) -> None:
    done = recorded(tmp_path, disturb="os.makedirs(str(step), exist_ok=True), os.chdir(str(step))")
    assert done.returncode == 0, done.stderr
    found = load(tmp_path / "rec")
    assert found.complete
    assert found.steps == (0, 1, 2, 3)
    assert not list(tmp_path.rglob("0/rec"))


def test_recording_that_is_deleted_under_way_is_incomplete(tmp_path: Path) -> None:
    done = recorded(tmp_path, disturb="step == 2 and shutil.rmtree('rec', ignore_errors=True)")
    assert done.returncode in (cli.INCOMPLETE, cli.WRONG_USE)
    assert not (tmp_path / "rec" / "manifest.json").exists() or not load(tmp_path / "rec").complete


@pytest.mark.parametrize("close", ["sys.stdout.close(), sys.stderr.close()", "os.close(1)"])
def test_script_may_close_its_output(close: str, tmp_path: Path) -> None:
    done = recorded(tmp_path, end=close)
    assert done.returncode == 0, done.stderr
    assert load(tmp_path / "rec").complete
