"""Subject: one alignment step of the reproduction guides, named by what it is about; numbers belong to a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprod_log.alignment import Alignment, align
from reprod_log.capture.earshot import suppress_recording
from reprod_log.recording import Recording
from reprod_log.recording.stores import load
from reprod_log.verdict import Limit

Recorded = Recording | str | Path
"""A recording, or where one lies."""


@dataclass(frozen=True)
class Subject:
    """What a step checks, how its files are usually called, and the limits it is usually held to."""

    name: str
    title: str
    words: tuple[str, ...]
    """Words in a file's name that mean this step."""
    limits: tuple[str, ...]
    why: str
    """The reason for the limits."""

    def compare(
        self,
        reference: Recorded,
        candidate: Recorded,
        *,
        limits: Iterable[Limit | str] = (),
    ) -> Alignment:
        """Two recordings held to the given limits, else to the calibrated rule if they allow it, else to the usual."""
        reference, candidate = load_side(reference), load_side(candidate)
        limits = tuple(limits)
        if not limits and not has_float64(reference):
            limits = self.limits
        return align(reference, candidate, limits=limits)


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
    """Whether the program also ran in float64, so that rounding can be told from defect."""
    return "float64" in recording.runs
