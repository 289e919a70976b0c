"""SIGKILL at any moment: what was complete is readable, the rest is said to be missing, and no number is wrong."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reprod_log.errors import UnreadableFile
from reprod_log.recording import Recording
from reprod_log.recording.recorder import Recorder
from reprod_log.recording.stores import load
from trust.kill_server import STEPS, values

HERE = Path(__file__).parent
SMALL, LARGE = 50, 20_000
"""Widths of a step that is on disk when the program goes on, and of one that is written on a thread of its own."""
MOST_AT_ONCE, MOST_BEHIND = 1 << 18, 2
"""The recorder's promise: a step of up to so many bytes is on disk, and others stay at most two steps behind."""
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def serve(folder: Path, *how: object) -> list[tuple[Path, int, bool]]:
    """Recordings of killed children, each with the steps it had finished and whether it had closed."""
    answer = subprocess.run(
        [sys.executable, "-m", "trust.kill_server", str(folder), *map(str, how)],
        capture_output=True, text=True, check=True, cwd=HERE.parent,
    )  # fmt: skip
    lines = [line.split() for line in answer.stdout.splitlines()]
    return [(folder / name, int(steps), closed == "1") for name, steps, closed in lines]


def check(path: Path, finished: int, closed: bool, *, width: int = SMALL, behind: int = 0) -> int:
    """The recording is right as far as it goes; gives back how many steps can be read (-1: nothing was begun).

    `behind` is how many finished steps may still have been on their way to the disk.
    """
    try:
        found = load(path)
    except UnreadableFile:
        assert finished == 0
        return -1
    assert len(found.steps) >= finished - behind
    assert found.complete or not closed
    if found.complete:
        assert found.steps == tuple(range(STEPS))
    expected = [(key, array) for step in range(len(found.steps)) for key, array in values(step, width).items()]
    assert found.keys == tuple(key for key, _ in expected)
    for key, array in expected:
        np.testing.assert_array_equal(found[key].array(), array)
    return len(found.steps)


def test_recording_is_right_at_whichever_operation_it_was_killed(tmp_path: Path) -> None:
    children = serve(tmp_path, SMALL, "boundaries")
    assert len(children) > 6 * STEPS
    readable = [check(*one) for one in children]
    assert readable == sorted(readable), "a later death leaves no less"
    assert set(readable) == set(range(-1, STEPS + 1))
    *killed, survivor = children
    assert survivor[2]
    assert not any(closed for _, _, closed in killed)


def test_recording_is_right_when_killed_at_random_moments(tmp_path: Path) -> None:
    children = serve(tmp_path, SMALL, "random", 200, 7)
    assert len(children) == 200
    readable = [check(*one) for one in children]
    assert len(set(readable)) > STEPS // 2, "the deaths came at too few different moments"


@pytest.mark.parametrize("how", [("boundaries",), ("random", 60, 11)])
def test_steps_that_a_thread_writes_are_right_or_missing_when_killed(how: tuple[object, ...], tmp_path: Path) -> None:
    assert sum(array.nbytes for array in values(0, LARGE).values()) > MOST_AT_ONCE
    children = serve(tmp_path, LARGE, *how)
    readable = [check(*one, width=LARGE, behind=MOST_BEHIND) for one in children]
    assert len(set(readable)) > STEPS // 2, "the deaths came at too few different moments"


def test_place_can_be_recorded_to_again_wherever_it_was_killed(tmp_path: Path) -> None:
    for path, _, _ in serve(tmp_path, SMALL, "boundaries"):
        recorder = Recorder(path)
        recorder.add("step0/loss/loss", np.ones(1))
        again: Recording = recorder.close()
        assert again.complete
        assert load(path).keys == ("step0/loss/loss",)


PROGRAM = """
import sys
import torch
from reprod_log import watch

torch.manual_seed(0)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with watch(model, optimizer=optimizer, save=sys.argv[1]) as run:
    for step in range(10_000):
        loss = model(torch.full((2, 4), float(step))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.end_step()
        print(step, flush=True)
"""


def test_training_in_torch_is_readable_after_it_was_killed(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "rec")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        finished = [int(process.stdout.readline()) for _ in range(12)][-1]
        process.kill()
        finished = max([finished, *map(int, process.stdout.read().split())])
    process.wait()
    found = load(tmp_path / "rec")
    assert not found.complete
    assert len(found.steps) >= finished
    for step in range(len(found.steps) - 1):
        np.testing.assert_array_equal(found[f"step{step}/data/#0:input.0"].array(), float(step))
