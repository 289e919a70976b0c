"""Records in forked children that die by SIGKILL, and says what each of them had finished (run as a program).

    python kill_server.py FOLDER WIDTH boundaries            one child for every operation on the disk, killed there
    python kill_server.py FOLDER WIDTH random COUNT SEED     children killed from outside some time after a random step

WIDTH is how large a step is: from 20,000 on it is written on a thread of its own.

Forking from a process that has imported everything makes a child cost milliseconds. Prints one line per child:
the name of its recording, the steps it had finished, whether it had closed the recording.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import sys
import time
from pathlib import Path

import numpy as np

from reprod_log.recording import Provenance
from reprod_log.recording.recorder import Recorder
from trust.faulty_files import Layer, faulty, kill

STEPS = 6


def values(step: int, width: int) -> dict[str, np.ndarray]:
    """What is recorded in a step; the frozen weight is stored once and referred to afterwards."""
    return {
        f"step{step}/forward/fc#0:output": np.full((4, width), float(step), np.float32),
        f"step{step}/parameter/frozen": np.arange(1000.0),
        f"step{step}/loss/loss": np.array(0.5 + step),
    }


def record(path: Path, width: int, progress: mmap.mmap) -> None:
    recorder = Recorder(path, provenance=Provenance(framework="numpy"))
    for step in range(STEPS):
        for key, array in values(step, width).items():
            recorder.add(key, array)
        recorder.end_step()
        progress[:8] = struct.pack("<q", step + 1)
    recorder.close()
    progress[8:9] = b"\1"


def child(path: Path, width: int, progress: mmap.mmap, at: int) -> int:
    """Forks a child that records and dies at operation `at` (0: by the parent's hand)."""
    progress[:9] = struct.pack("<q", 0) + b"\0"
    number = os.fork()
    if number == 0:
        try:
            if at:
                with faulty(Layer(path.parent, at, kill)):
                    record(path, width, progress)
            else:
                record(path, width, progress)
        finally:
            os._exit(0)
    return number


def finished(progress: mmap.mmap) -> int:
    """How many steps a child has finished."""
    (steps,) = struct.unpack("<q", progress[:8])
    return int(steps)


def main(folder: Path, width: int, how: str, count: int = 0, seed: int = 0) -> None:
    progress = mmap.mmap(-1, 16)
    chance = random.Random(seed)
    began = time.monotonic()
    os.waitpid(child(folder / "whole", width, progress, 0), 0)
    usual = time.monotonic() - began
    at = 0
    while True:
        at += 1
        path = folder / f"killed{at}"
        number = child(path, width, progress, at if how == "boundaries" else 0)
        if how == "random":
            # Some time after some step: a time alone would say little on a machine that does other things as well.
            wanted, patience = chance.randint(0, STEPS), time.monotonic() + 10
            while finished(progress) < wanted and time.monotonic() < patience:
                time.sleep(usual / 1000)
            time.sleep(chance.uniform(0, usual / STEPS))
            os.kill(number, signal.SIGKILL)
        _, status = os.waitpid(number, 0)
        print(path.name, finished(progress), progress[8], flush=True)
        survived = not os.WIFSIGNALED(status)
        if (how == "boundaries" and survived) or (how == "random" and at == count):
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:]))
