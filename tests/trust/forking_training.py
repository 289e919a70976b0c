"""Watched trainings that fork, each in its own way (python -m trust.forking_training torch FOLDER)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from reprod_log.capture import watch
from trust.watched_training import STEPS, TRAININGS, Paddle, Torch

MANY = 5
"""Steps that a child trains: more than the parent, so that what it wrote would stay."""


def child(work: Callable[[], NoReturn]) -> None:
    number = os.fork()
    if number == 0:
        signal.alarm(30)
        work()
    _, status = os.waitpid(number, 0)
    assert status == 0, status


def trained(training: Torch | Paddle) -> NoReturn:
    for _ in range(MANY):
        training.step(7)
    os._exit(0)


def calls(training: Torch | Paddle, path: Path) -> None:
    """A child trains the model."""
    with watch(training.model, optimizer=training.optimizer, save=path):
        for number in range(STEPS):
            training.step(number)
            child(lambda: trained(training))


def locked(training: Torch | Paddle, path: Path) -> None:
    """Another thread is inside the recording when the process is forked."""
    inside, go_on = threading.Event(), threading.Event()

    def record() -> None:
        inside.set()
        go_on.wait(60)

    with watch(training.model, optimizer=training.optimizer, save=path) as run:
        for number in range(STEPS):
            training.step(number)
            if number == 1:
                held = threading.Thread(target=run.session.guard.attempt, args=(record,))
                held.start()
                inside.wait(60)
                child(lambda: trained(training))
                go_on.set()
                held.join()


def leaves(training: Torch | Paddle, path: Path) -> None:
    """A child comes to the end of its parent's block."""
    with watch(training.model, optimizer=training.optimizer, save=path) as run:
        for number in range(STEPS):
            training.step(number)
            forked = os.fork()
            if forked == 0:
                for _ in range(MANY):
                    training.step(7)
                    run.log("metric", 1.0)
                    run.end_step()
                break
            assert os.waitpid(forked, 0)[1] == 0
    if forked == 0:
        os._exit(0)


class Rows:
    """Data whose making takes a training."""

    def __init__(self, training: Torch | Paddle) -> None:
        self.training = training

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, place: int) -> float:
        for _ in range(MANY):
            self.training.step(7)
        return float(place)


def workers(training: Torch | Paddle, path: Path) -> None:
    """The worker of a data loader trains the model."""
    loader: Iterable[Any]
    if isinstance(training, Torch):
        from torch.utils.data import DataLoader

        loader = DataLoader(Rows(training), batch_size=1, num_workers=1, timeout=60)  # type: ignore[arg-type]
    else:
        import paddle

        class Dataset(Rows, paddle.io.Dataset):  # type: ignore[misc]
            pass

        loader = paddle.io.DataLoader(Dataset(training), batch_size=1, num_workers=1, timeout=60)
    with watch(training.model, optimizer=training.optimizer, save=path):
        for number, _ in enumerate(loader):
            training.step(number)


WAYS = {one.__name__: one for one in (calls, locked, leaves, workers)}

if __name__ == "__main__":
    for name, way in WAYS.items():
        way(TRAININGS[sys.argv[1]](), Path(sys.argv[2]) / name)
