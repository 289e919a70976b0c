"""Kills watched trainings at random moments and has their recordings fail at random places, and counts what went wrong.

    python -m trust.harm [--kills 300] [--faults 120] [--seed 0] [--framework torch]

Each training is a process of its own, forked from one that has imported the framework. After a kill every finished
step must be in the recording with the numbers of the undisturbed run; after a fault the training must have come to its
end with the numbers of the unwatched run; and neither recording may be complete or pass a comparison.
"""

from __future__ import annotations

import argparse
import mmap
import os
import pickle
import random
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from reprod_log.alignment import align
from reprod_log.capture import watch
from reprod_log.errors import ReprodLogError, UnreadableFile
from reprod_log.recording import Recording
from reprod_log.recording.stores import load
from trust.watched_training import ERRORS, PLACES, TRAININGS, failing, train

LENGTH = 30
"""Steps of a training that is to be killed."""
SMALL, LARGE = 4, 6000
"""Widths of a step that is on disk when the program goes on, and of one that is written on a thread of its own."""
MOST_BEHIND = 2


def long_training(framework: str, path: Path, width: int, progress: mmap.mmap) -> None:
    training = TRAININGS[framework](width)
    with watch(training.model, optimizer=training.optimizer, save=path) as run:
        for number in range(LENGTH):
            training.step(2 + number)
            run.end_step()
            progress[:8] = struct.pack("<q", number + 1)


def forked(work: object) -> int:
    """The number of a child that does `work` and ends with 0."""
    number = os.fork()
    if number == 0:
        code = 1
        try:
            # The library may warn of what is being provoked here.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            work()  # type: ignore[operator]
            code = 0
        finally:
            os._exit(code)
    return number


class Harm:
    """Disturbs the trainings of one framework, and counts."""

    def __init__(self, framework: str, folder: Path, seed: int) -> None:
        self.framework, self.folder = framework, folder
        self.chance = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._progress = mmap.mmap(-1, 16)
        self._whole: dict[int, tuple[Recording, float]] = {}

    def whole(self, width: int) -> tuple[Recording, float]:
        """The recording of the undisturbed training, and the seconds that it took."""
        if width not in self._whole:
            path = self.folder / f"whole{width}"
            for _ in range(2):
                # The second one finds everything loaded, as those that are killed will.
                began = time.monotonic()
                number = forked(lambda: long_training(self.framework, path, width, self._progress))
                assert os.waitpid(number, 0)[1] == 0
                usual = time.monotonic() - began
            self._whole[width] = load(path), usual
        return self._whole[width]

    def kill(self, name: str) -> None:
        width = LARGE if self.chance.random() < 0.25 else SMALL
        reference, usual = self.whole(width)
        path = self.folder / name
        self._progress[:8] = struct.pack("<q", 0)
        number = forked(lambda: long_training(self.framework, path, width, self._progress))
        # By steps and not by the clock alone: on a busy machine no training takes its usual time.
        self.wait_for(number, self.chance.randrange(LENGTH))
        time.sleep(self.chance.uniform(0, usual / LENGTH))
        os.kill(number, signal.SIGKILL)
        killed = os.WIFSIGNALED(os.waitpid(number, 0)[1])
        (finished,) = struct.unpack("<q", self._progress[:8])
        self.counts["kills" if killed else "came to their end before the kill"] += 1
        self.counts["steps finished before a kill"] += finished
        try:
            found = load(path)
        except UnreadableFile:
            if finished:
                self.problems.append(f"{name}: {finished} steps were finished and nothing can be read")
            return
        behind = MOST_BEHIND if width == LARGE else 0
        lost = finished - behind - len({entry.key.step for entry in found})
        if lost > 0:
            self.counts["steps lost"] += lost
            self.problems.append(f"{name}: {lost} of {finished} finished steps are missing")
        # A kill may come when all is done.
        self.check(name, found, reference, may_pass=found.keys == reference.keys)

    def wait_for(self, number: int, step: int) -> None:
        """Until the training has finished so many steps, or has ended."""
        while struct.unpack("<q", self._progress[:8])[0] < step:
            if os.waitid(os.P_PID, number, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return
            time.sleep(0.001)

    def fault(self, name: str) -> None:
        path = self.folder / name
        place, error = self.chance.choice(PLACES), self.chance.choice(list(ERRORS))
        at = self.chance.choice((1, 1, 2, 3, 5, 8, 13))
        answer = self.folder / f"{name}.answer"

        def work() -> None:
            with failing(place, ERRORS[error], at) as fault:
                outcome = train(self.framework, path)
            answer.write_bytes(pickle.dumps((fault.happened, outcome.numbers, len(outcome.warnings))))

        status = os.waitpid(forked(work), 0)[1]
        told = f"{name}: {error} at call {at} of {place}"
        if status or not answer.exists():
            self.counts["trainings ended by us"] += 1
            self.problems.append(f"{told} ended the training")
            return
        happened, numbers, warned = pickle.loads(answer.read_bytes())
        self.counts["faults" if happened else "trainings in which the fault found no call"] += 1
        if numbers != self.unwatched:
            self.counts["trainings with other numbers"] += 1
            self.problems.append(f"{told} changed the numbers of the training")
        if warned != int(happened):
            self.problems.append(f"{told} gave {warned} warnings")
        self.check(told, load(path), self.undisturbed, may_pass=not happened)

    def prepare(self) -> None:
        """What faults are measured against; and the framework has loaded all it needs before the first fork."""
        self.unwatched = train(self.framework, watched=False).numbers
        train(self.framework, self.folder / "undisturbed")
        self.undisturbed = load(self.folder / "undisturbed")

    def check(self, name: str, found: Recording, reference: Recording, *, may_pass: bool) -> None:
        """What is there is right, and it is complete and passes only where it may."""
        wrong = [str(entry.key) for entry in found if entry.hash != reference[entry.key].hash]
        try:
            passed = align(reference, found).passed
        except ReprodLogError:
            passed = False
        if wrong or ((found.complete or passed) and not may_pass) or (passed and not found.complete):
            self.counts["wrong verdicts"] += 1
            self.problems.append(
                f"{name}: complete is {found.complete}, passed is {passed}, {len(wrong)} wrong entries {wrong[:3]}"
            )


def run(framework: str, kills: int, faults: int, seed: int, folder: Path) -> Harm:
    harm = Harm(framework, folder, seed)
    harm.prepare()
    for number in range(kills):
        harm.kill(f"kill{number}")
    for number in range(faults):
        harm.fault(f"fault{number}")
    return harm


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--faults", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--framework", choices=sorted(TRAININGS), action="append")
    given = parser.parse_args()
    chosen = given.framework or sorted(TRAININGS)
    bad = 0
    for framework in chosen:
        __import__(framework)
        with tempfile.TemporaryDirectory() as folder:
            harm = run(framework, given.kills // len(chosen), given.faults // len(chosen), given.seed, Path(folder))
        for what in ("steps lost", "trainings ended by us", "trainings with other numbers", "wrong verdicts"):
            harm.counts.setdefault(what, 0)
        print(framework, *(f"{count} {what}" for what, count in harm.counts.items()), sep="; ", flush=True)
        for problem in harm.problems:
            print(f"  {problem}", flush=True)
        bad += len(harm.problems)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
