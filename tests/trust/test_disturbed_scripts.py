"""What a script does to its surroundings while it is recorded: the disk fills up, folders change, output is closed."""

import subprocess
from functools import cache
from pathlib import Path

import pytest
import torch

from forks import Command, run_in_forks
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


Done = dict[str, tuple[subprocess.CompletedProcess[str], Path]]
WAYS = {
    "the disk fills up": (f"if step == 2: {FULL}", ROOM),
    "the disk is full": (f"if step == 0: {FULL.replace('20_000', '1')}", ROOM),
    "another folder": ("os.makedirs(str(step), exist_ok=True), os.chdir(str(step))", "pass"),
    "deleted": ("step == 2 and shutil.rmtree('rec', ignore_errors=True)", "pass"),
    "streams closed": ("pass", "sys.stdout.close(), sys.stderr.close()"),
    "descriptor closed": ("pass", "os.close(1)"),
}
"""What a script does in each step, and at its end."""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Every disturbed script recorded, and the folder of its recording; its own result is never another one."""
    folders = {way: tmp_path_factory.mktemp("disturbed") for way in WAYS}
    for way, (disturb, end) in WAYS.items():
        (folders[way] / "script.py").write_text(SCRIPT.format(disturb=disturb, end=end))
    commands = [
        Command(["run", "-o", "rec", "script.py"], folder, {"RESULT": str(folder / "result")})
        for folder in folders.values()
    ]
    found = dict(zip(WAYS, run_in_forks(*commands), strict=True))
    assert all((folder / "result").read_bytes() == expected() for folder in folders.values())
    return {way: (found[way], folders[way] / "rec") for way in WAYS}


def test_disk_that_fills_up_is_an_exit_code_of_its_own(done: Done) -> None:
    answer, recording = done["the disk fills up"]
    assert answer.returncode == cli.INCOMPLETE
    assert "INCOMPLETE" in answer.stdout
    assert "recording stopped at 'step1/" in answer.stdout
    found = load(recording)
    assert not found.complete
    assert found.steps == (0,)


def test_disk_that_is_full_from_the_start_is_no_success(done: Done) -> None:
    answer, recording = done["the disk is full"]
    assert answer.returncode not in (0, 1, cli.INTERNAL_ERROR)
    assert "nothing was recorded" in answer.stderr
    assert not (recording / "manifest.json").exists()


def test_script_may_change_its_folder(done: Done) -> None:
    answer, recording = done["another folder"]
    assert answer.returncode == 0, answer.stderr
    found = load(recording)
    assert found.complete
    assert found.steps == (0, 1, 2, 3)
    assert not list(recording.parent.rglob("0/rec"))


def test_recording_that_is_deleted_under_way_is_incomplete(done: Done) -> None:
    answer, recording = done["deleted"]
    assert answer.returncode in (cli.INCOMPLETE, cli.WRONG_USE)
    assert not (recording / "manifest.json").exists() or not load(recording).complete


@pytest.mark.parametrize("way", ["streams closed", "descriptor closed"])
def test_script_may_close_its_output(done: Done, way: str) -> None:
    answer, recording = done[way]
    assert answer.returncode == 0, answer.stderr
    assert load(recording).complete
