"""A forked process that calls a watched model neither hangs nor reaches the recording of its parent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from forks import Command, run_in_forks
from reprod_log.recording.stores import load
from trust.watched_training import train

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_forked_process_does_not_reach_the_recording(framework: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trust.forking_training", framework, str(tmp_path)],
        capture_output=True, text=True, timeout=300, cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    train(framework, tmp_path / "alone")
    alone = load(tmp_path / "alone")
    for way in ("calls", "locked", "leaves", "workers"):
        forked = load(tmp_path / way)
        assert forked.complete
        assert forked.keys == alone.keys
        assert [entry.hash for entry in forked] == [entry.hash for entry in alone]
        assert sorted(os.listdir(tmp_path / way / "shards")) == sorted(os.listdir(tmp_path / "alone" / "shards"))


SCRIPT = """
import os, sys
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    number = os.fork()
    if number == 0:
        model(torch.zeros(1, 2)).sum().backward()
        optimizer.step()
        if step == 0:
            sys.exit(0)
        break
    assert os.waitpid(number, 0)[1] == 0
print("at the end")
"""


def test_forked_process_of_a_recorded_script_ends_with_the_script(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    ways = ((), ("--dtype", "float64"))
    for done in run_in_forks(*(Command(["run", *more, "-o", "rec", "script.py"], tmp_path) for more in ways)):
        assert done.returncode == 0, done.stderr
        # Two of the three children break out of the loop and come to the end of the script, as the parent does.
        assert done.stdout.count("at the end") == 3
        assert done.stdout.count("entries") == 1
    found = load(tmp_path / "rec")
    assert found.complete
    assert len({entry.key.step for entry in found}) == 3
