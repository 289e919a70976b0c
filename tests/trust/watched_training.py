"""The same small training in torch and in paddle, watched while something fails inside the recording.

Run as a program it is one watched training whose steps are printed as they end, for whoever wants to kill it:

    python -m trust.watched_training torch RECORDING WIDTH
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.recording import Recording

STEPS = 3

ERRORS: dict[str, Callable[[], Exception]] = {
    "MemoryError": MemoryError,
    "RuntimeError": lambda: RuntimeError("injected"),
    "OSError": lambda: OSError(28, "No space left on device"),
    "UnicodeError": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "injected"),
}

PLACES = (
    # where the framework calls us
    "capture.calls.Calls._before",
    "capture.calls.Calls._after",
    "capture.calls.Tap.receive",
    "capture.listening.ModelRun._before_backward",
    "capture.listening.ModelRun._after_backward",
    "capture.listening.ModelRun._skipped",
    "capture.gradients.Gradients.after_backward",
    "capture.gradients.Gradients.unscaled",
    "capture.gradients.Losses.scaled",
    "capture.updates.Updates._before_step",
    "capture.updates.Updates._after_step",
    "capture.updates.Updates.unscaled",
    # what happens there: a tensor is copied out, described, put in its place, a step ends
    "capture.session.StepSession.wants",
    "capture.session.Session.stage_parameter",
    "capture.staging.Stage.make",
    "capture.staging.Stage.add",
    "capture.staging.Stage.flush",
    "capture.staging.Stage.digest",
    "capture.run.Run._step_is_over",
    "recording.recorder.Recorder.put",
    "recording.recorder.Recorder.end_step",
    "recording.recorder.Background.put",
    "recording.folder.FolderWriter.write_shard",
    # the end
    "capture.listening.ModelRun._finish",
    "recording.recorder.Recorder.close",
    "recording.folder.FolderWriter.close",
)


@dataclass
class Fault:
    """Raises at the `at`-th call of a place."""

    place: str
    error: Callable[[], Exception]
    at: int
    calls: int = 0

    @property
    def happened(self) -> bool:
        return self.at <= self.calls


@contextmanager
def failing(place: str, error: Callable[[], Exception], at: int = 1) -> Iterator[Fault]:
    """While it lasts, the `at`-th call of `place` in the program raises."""
    file, owner_name, name = place.rsplit(".", 2)
    owner = getattr(import_module(f"reprod_log.{file}"), owner_name)
    plain, fault = vars(owner)[name], Fault(place, error, at)

    def instead(*args: Any, **kwargs: Any) -> Any:
        fault.calls += 1
        if fault.calls == fault.at:
            raise fault.error()
        return plain(*args, **kwargs)

    setattr(owner, name, instead)
    try:
        yield fault
    finally:
        setattr(owner, name, plain)


class Torch:
    """A training with a gradient scaler whose second step finds an infinite gradient."""

    def __init__(self, width: int = 4) -> None:
        import torch

        self.torch = torch
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(3, width), torch.nn.BatchNorm1d(width), torch.nn.Linear(width, 2)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def step(self, number: int) -> bytes:
        torch = self.torch
        self.optimizer.zero_grad()
        x = torch.from_numpy(batch(number))
        loss = self.model(x).square().mean() * (float("inf") if number == 1 else 1.0)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach().numpy().tobytes()

    def state(self) -> bytes:
        return b"".join(tensor.numpy().tobytes() for tensor in self.model.state_dict().values())


class Paddle:
    """The same in paddle, whose optimizer clips by itself; its scaler works on accelerators only."""

    def __init__(self, width: int = 4) -> None:
        import paddle

        self.paddle = paddle
        paddle.seed(0)
        nn = paddle.nn
        self.model = nn.Sequential(nn.Linear(3, width), nn.BatchNorm1D(width), nn.Linear(width, 2))
        self.optimizer = paddle.optimizer.AdamW(
            0.1, parameters=self.model.parameters(), grad_clip=nn.ClipGradByGlobalNorm(0.1)
        )

    def step(self, number: int) -> bytes:
        self.optimizer.clear_grad()
        loss = (self.model(self.paddle.to_tensor(batch(number))) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return bytes(loss.numpy().tobytes())

    def state(self) -> bytes:
        return b"".join(tensor.numpy().tobytes() for tensor in self.model.state_dict().values())


TRAININGS: dict[str, type[Torch] | type[Paddle]] = {"torch": Torch, "paddle": Paddle}


def batch(number: int) -> np.ndarray:
    return np.random.default_rng(number).standard_normal((4, 3)).astype(np.float32)


@dataclass
class Outcome:
    """What a training came to."""

    losses: list[bytes] = field(default_factory=list)
    state: bytes = b""
    recording: Recording | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def numbers(self) -> tuple[list[bytes], bytes]:
        return self.losses, self.state


def train(framework: str, save: Path | None = None, *, watched: bool = True, width: int = 4) -> Outcome:
    """A whole training; exceptions come through."""
    from reprod_log.capture import watch

    training, outcome = TRAININGS[framework](width), Outcome()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = watch(training.model, optimizer=training.optimizer, save=save) if watched else nullcontext()
        with run:
            outcome.losses = [training.step(number) for number in range(STEPS)]
    outcome.warnings = [str(one.message) for one in caught if "recording" in str(one.message)]
    outcome.state = training.state()
    if watched:
        outcome.recording = run.recording  # type: ignore[union-attr]
    return outcome


def main(framework: str, path: str, width: int) -> None:
    from reprod_log.capture import watch

    training = TRAININGS[framework](width)
    with watch(training.model, optimizer=training.optimizer, save=path) as run:
        for number in range(100_000):
            training.step(number % 10)
            run.end_step()
            print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
