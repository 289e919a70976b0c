"""Subject: one alignment step of the reproduction guides, named by what it is about; numbers belong to a plan."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from reprod_log.alignment import Alignment, align
from reprod_log.capture.session import suppress_recording
from reprod_log.errors import UsageError, listed
from reprod_log.messages import Message
from reprod_log.recording import Recording
from reprod_log.recording.stores import load
from reprod_log.verdict import Limit

Recorded = Recording | str | Path
"""A recording, or the path of one."""
OwnLimits = tuple[tuple[Limit | str, ...], tuple[Message, ...]]
"""Limits that follow from the recordings themselves, and notes on them."""
Action = Literal["record", "compare", "run"]
ACTIONS: tuple[Action, ...] = ("record", "compare", "run")


@dataclass(frozen=True)
class Subject:
    """What a step checks, how its files are usually called, and the limits it is usually held to.

        record(side, *, …)                   what one side gives, in that side's own process
        compare(reference, candidate, *, …)  two recordings or their paths
        run(reference, candidate, *, …)      both sides at hand: live, or recordings

    `run` takes the keywords of `compare` too. Sides that are models with a way to train them are Trainers.
    """

    name: str
    title: str
    words: tuple[str, ...]
    """Words in a file's name that mean this step."""
    limits: tuple[str, ...]
    why: Message
    """The reason for the limits."""
    record: Callable[..., Recording]
    limits_of: Callable[..., OwnLimits] | None = None
    """limits_of(reference, candidate, *, …): limits that depend on what was recorded, in place of the usual ones."""
    together: Callable[..., Alignment | tuple[Recording, Recording]] | None = None
    """together(reference, candidate, *, …): what `run` does with live sides, when it is not to record each alone."""

    @property
    def SUBJECT(self) -> Subject:
        """The subject itself, for programs that took it from the subject's own module."""
        return self

    def compare(
        self, reference: Recorded, candidate: Recorded, *, limits: Iterable[Limit | str] = (), **settings: Any
    ) -> Alignment:
        """Two recordings held to the given limits, else to the calibrated rule if they allow it, else to the usual."""
        self._check("compare", settings)
        reference, candidate = load_side(reference), load_side(candidate)
        limits = tuple(limits)
        notes: tuple[Message, ...] = ()
        if not limits and self.limits_of is not None:
            limits, notes = self.limits_of(reference, candidate, **settings)
        if not limits and not has_float64(reference):
            limits = tuple(replace(Limit.parse(one), reason=self.why) for one in self.limits)
        alignment = align(reference, candidate, limits=limits)
        if not notes:
            return alignment
        comparison = replace(alignment.comparison, notes=(*alignment.comparison.notes, *notes))
        return replace(alignment, comparison=comparison)

    def run(
        self, reference: Any, candidate: Any = None, *, limits: Iterable[Limit | str] = (), **settings: Any
    ) -> Alignment:
        """Compare two sides that are at hand, or two recordings; takes the keywords of `record` and `compare`."""
        self._check("run", settings)
        limits = tuple(limits)
        judged = _taken(self.limits_of, settings)
        if self.together is not None and not (is_recorded(reference) and is_recorded(candidate)):
            given = _taken(self.together, {**settings, "limits": limits})
            with suppress_recording():
                found = self.together(reference, candidate, **given)
            return found if isinstance(found, Alignment) else self.compare(*found, limits=limits, **judged)
        given = _taken(self.record, settings)
        ours, theirs = (recorded(one, lambda side: self.record(side, **given)) for one in (reference, candidate))
        return self.compare(ours, theirs, limits=limits, **judged)

    def keywords(self, action: Action) -> tuple[str, ...]:
        """The names of the keywords that `record`, `compare` or `run` takes."""
        if action == "record":
            return _keywords(self.record)
        own = _keywords(self.together or self.record) if action == "run" else ()
        return tuple(dict.fromkeys((*own, *_keywords(self.limits_of), "limits")))

    def _check(self, action: Action, settings: Mapping[str, Any]) -> None:
        unknown = sorted(set(settings) - set(self.keywords(action)))
        if unknown:
            known = listed(self.keywords(action), most=20)
            raise UsageError(f"{self.name}.{action} has no keyword {listed(unknown)}; it takes {known}")


def _keywords(function: Callable[..., Any] | None) -> tuple[str, ...]:
    parameters = inspect.signature(function).parameters.values() if function is not None else ()
    return tuple(one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY)


def _taken(function: Callable[..., Any] | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the settings that the function takes."""
    return {name: value for name, value in settings.items() if name in _keywords(function)}


def load_side(side: Recorded) -> Recording:
    """The recording itself, read if it is a path."""
    return side if isinstance(side, Recording) else load(side)


def is_recorded(side: Any) -> bool:
    """Whether a side is a recording, or the path of one, instead of something to be recorded."""
    return isinstance(side, (Recording, str, Path))


def recorded(side: Any, record: Callable[[Any], Recording]) -> Recording:
    """The side's recording: itself, read from its path, or made now."""
    if is_recorded(side):
        return load_side(side)
    with suppress_recording():
        return record(side)


def has_float64(recording: Recording) -> bool:
    """Whether the program also ran in float64, which separates rounding from defects."""
    return "float64" in recording.runs
