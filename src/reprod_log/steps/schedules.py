"""Schedules; subject lr: two schedulers stepped side by side give the same rate at every step of the whole schedule."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from glob import escape
from typing import Any

import numpy as np

from reprod_log.capture.live import live_optimizer
from reprod_log.errors import UsageError, counted
from reprod_log.messages import Number, message
from reprod_log.recording import Array, Entry, Key, Recording
from reprod_log.recording.recording import series
from reprod_log.steps.subject import OwnLimits, Subject
from reprod_log.steps.values import origin, values_recording
from reprod_log.verdict import Limit

_SHARE = 1e-9
"""Of the largest rate: schedules are Python floats; another way to write a formula gives 1e-16, a defect 1e-6."""
_SHARE_NARROW = 1e-6
"""The same for rates that were stored in float32."""

Reading = Callable[[], list[float]]
Advance = Callable[..., Any]


def _record(side: Any, *, steps: int = 0, metrics: Sequence[float] | None = None) -> Recording:
    """The rate of every parameter group at each of `steps` steps, without training.

    side      a scheduler, (optimizer, scheduler), a function from the step to the rate, or a sequence of rates; or
              several of them by name. What is given is copied and stays where it is in its schedule.
    steps     give the whole schedule: many mistakes show only at its end
    metrics   the scores given to a scheduler that watches one, one number per step
    """
    schedules = side if isinstance(side, Mapping) else {"schedule": side}
    if not schedules or steps < 1:
        raise UsageError(f"nothing to compare: {counted(len(schedules), 'schedule')}, {counted(steps, 'step')}")
    entries: dict[Key, Array] = {}
    for name, schedule in schedules.items():
        read, advance = _reader(schedule, name)
        for step in range(steps):
            for group, rate in enumerate(read()):
                key = Key(path=name, phase="lr", step=step, role=f"group{group}")
                entries[key] = np.array(rate, dtype=np.float64)
            if step + 1 < steps:
                advance() if metrics is None else advance(metrics[step])
    return values_recording(entries, provenance=origin(side))


def _reader(schedule: Any, name: str) -> tuple[Reading, Advance]:
    """How to read the rates in use now, and how to go one step on."""
    if isinstance(schedule, tuple) and len(schedule) == 2 and hasattr(schedule[1], "step"):
        return _live(*_copied(schedule, name))
    if hasattr(schedule, "step") and hasattr(schedule, "optimizer"):
        optimizer, scheduler = _copied((schedule.optimizer, schedule), name)
        return _live(optimizer, scheduler)
    if hasattr(schedule, "step") and hasattr(schedule, "last_lr"):
        # Not get_lr(): it computes the next rate at every call.
        (scheduler,) = _copied((schedule,), name)
        return lambda: [float(scheduler.last_lr)], _quiet(scheduler.step)
    if callable(schedule):
        return _counted(schedule)
    if isinstance(schedule, (Sequence, np.ndarray)):
        rates = [np.atleast_1d(np.asarray(one, dtype=np.float64)) for one in schedule]
        return _counted(lambda step: rates[step])
    raise UsageError(
        f"{name!r} is a {type(schedule).__name__}: give a scheduler, (optimizer, scheduler), a function from the step "
        "to the rate, or the rates themselves"
    )


def _live(optimizer: Any, scheduler: Any) -> tuple[Reading, Advance]:
    live = live_optimizer(optimizer)
    if live is None:
        raise UsageError(f"a {type(optimizer).__name__} is not an optimizer of a framework in this process")
    if hasattr(scheduler, "last_lr") and not hasattr(scheduler, "optimizer"):
        used = getattr(optimizer, "_learning_rate", None)
        if used is not scheduler:
            raise UsageError("the optimizer does not use this scheduler: pass the scheduler as its learning_rate")
    return live.rates, _quiet(scheduler.step)


def _copied(things: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    """Copies to be stepped; parameters are shared, for nothing is trained."""
    live = live_optimizer(things[0])
    shared = {} if live is None else {id(one): one for one in live.parameters}
    try:
        return copy.deepcopy(things, shared)
    except (TypeError, RuntimeError, ValueError, AttributeError) as error:
        raise UsageError(f"the schedule {name!r} cannot be copied: {error}. Give a function from step to rate.") from (
            error
        )


def _quiet(step: Advance) -> Advance:
    def advance(*metrics: float) -> None:
        with warnings.catch_warnings():
            # torch warns about a schedule that is stepped without training, which is what is wanted here.
            warnings.filterwarnings("ignore", message=r".*lr_scheduler\.step\(\).*")
            step(*metrics)

    return advance


def _counted(rate: Callable[[int], Any]) -> tuple[Reading, Advance]:
    step = 0

    def read() -> list[float]:
        return [float(one) for one in np.atleast_1d(np.asarray(rate(step), dtype=np.float64))]

    def advance(*_: float) -> None:
        nonlocal step
        step += 1

    return read, advance


def _limits(reference: Recording, candidate: Recording) -> OwnLimits:
    """One limit per schedule: a share of its own largest rate, since near the end of a decay every rate is small."""
    by_key = {entry.key: entry for entry in reference.entries if _is_number(entry)}
    found: list[Limit | str] = []
    for name, members in series(by_key).items():
        keys = [key for _, key in members]
        arrays = [np.abs(by_key[key].array().astype(np.float64)) for key in keys]
        largest = max((float(array.max()) for array in arrays if array.size), default=0.0)
        narrow = any(by_key[key].dtype != "float64" for key in keys)
        share = _SHARE_NARROW if narrow else _SHARE
        reason = message("reason.limit.share_of_rate", share=Number(share, "g"), largest=Number(largest, "g"))
        pattern = "*".join(escape(part) for part in name.split("*"))
        structured = bool(keys[0].phase)
        found.append(Limit("max_abs", share * largest, keys=f"*/{pattern}" if structured else pattern, reason=reason))
    return tuple(found), ()


def _is_number(entry: Entry) -> bool:
    return entry.dtype.startswith("float") and entry.detail == "full"


lr = Subject(
    name="lr",
    title="learning rate",
    words=("lr", "scheduler", "schedule", "learning"),
    limits=("max_rel:1e-6",),
    why=message("reason.limit.relative_rate"),
    record=_record,
    limits_of=_limits,
)
