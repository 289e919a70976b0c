"""Selection: what of a run is recorded, and in which detail."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from reprod_log.errors import UsageError, listed
from reprod_log.recording import PHASES
from reprod_log.recording.entry import Detail
from reprod_log.recording.sketch import Sketching

Inputs = Literal["first", "always", "never"]
DETAILS = ("full", "sketch", "summary")


@dataclass(frozen=True)
class Selection:
    """Phases, layers, steps and detail that were asked for."""

    phases: frozenset[str] = frozenset(PHASES)
    layers: tuple[str, ...] = ("*",)
    """Patterns over module paths and parameter paths."""
    steps: Collection[int] | None = None
    """None: all of them."""
    detail: Mapping[str, Detail] = field(default_factory=dict)
    """By phase; `full` where nothing is given."""
    sketching: Sketching = field(default_factory=Sketching)
    """How sketches are made, where detail asks for them."""
    inputs: Inputs = "first"
    """Whether each layer's inputs are recorded too; those of the first step are needed to run layers in isolation."""

    def has_step(self, step: int) -> bool:
        return self.steps is None or step in self.steps

    @cached_property
    def _ends(self) -> tuple[int, int]:
        """The first and the last step that is wanted."""
        if isinstance(self.steps, range):
            return min(self.steps[0], self.steps[-1]), max(self.steps[0], self.steps[-1])
        return (0, sys.maxsize) if self.steps is None else (min(self.steps), max(self.steps))

    def is_over(self, step: int) -> bool:
        """Whether no step from `step` on is wanted."""
        return step > self._ends[1]

    def has_layer(self, *paths: str) -> bool:
        """Whether any of these names of a layer or parameter is wanted."""
        return any(fnmatchcase(path, pattern) for pattern in self.layers for path in paths)

    def has_inputs(self, step: int) -> bool:
        if self.inputs == "first":
            return step == self._ends[0]
        return self.inputs == "always"

    def detail_of(self, phase: str) -> Detail:
        return self.detail.get(phase, "full")


@dataclass(frozen=True)
class RunOptions:
    """How a run is recorded: the parameters of `watch`, checked."""

    selection: Selection
    save: Path | None = None
    """None: in memory."""
    budget: int | None = None
    """Most bytes of values to keep."""
    name: str = ""
    """Of the pass."""
    step_after: str | None = None
    """The optimizer whose update ends a step."""
    mesh: Any = None
    """The named axes that several processes lie on."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else the provenance should hold."""


def selection(
    *,
    phases: Iterable[str] | None = None,
    layers: str | Iterable[str] | None = None,
    steps: int | Iterable[int] | None = None,
    detail: str | Mapping[str, str] = "full",
    inputs: bool | str = "first",
) -> Selection:
    """The checked selection that the parameters of `watch` describe."""
    wanted = frozenset(PHASES) if phases is None else _phases(phases)
    levels, sketching = _details(detail)
    return Selection(
        phases=wanted,
        layers=("*",) if layers is None else _patterns(layers),
        steps=_steps(steps),
        detail=levels,
        sketching=sketching,
        inputs=_inputs(inputs),
    )


def _phases(phases: Iterable[str]) -> frozenset[str]:
    wanted = frozenset({phases} if isinstance(phases, str) else phases)
    unknown = sorted(wanted - set(PHASES))
    if unknown:
        raise UsageError(f"no such phase: {listed(unknown)}; known are {listed(PHASES, most=20)}")
    if not wanted:
        raise UsageError("phases is empty, so nothing would be recorded; leave it out to record all")
    return wanted


def _patterns(layers: str | Iterable[str]) -> tuple[str, ...]:
    patterns = (layers,) if isinstance(layers, str) else tuple(layers)
    if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise UsageError(f"layers must be patterns such as 'encoder.*', not {layers!r}")
    return patterns


def _steps(steps: int | Iterable[int] | None) -> Collection[int] | None:
    if steps is None:
        return None
    wanted: Collection[int] = (
        range(steps) if isinstance(steps, int) else steps if isinstance(steps, range) else set(steps)
    )
    ends = (*wanted[:1], *wanted[-1:]) if isinstance(wanted, range) else wanted
    if not wanted or not all(isinstance(step, int) and step >= 0 for step in ends):
        raise UsageError(f"steps must be how many steps to record, or their numbers from 0 on, not {steps!r}")
    return wanted


def _details(detail: str | Mapping[str, str]) -> tuple[Mapping[str, Detail], Sketching]:
    by_phase = dict(detail) if isinstance(detail, Mapping) else dict.fromkeys(PHASES, detail)
    unknown = sorted(set(by_phase) - set(PHASES))
    if unknown:
        raise UsageError(f"detail is given for phases that do not exist: {listed(unknown)}")
    checked: dict[str, Detail] = {}
    sizes: set[int] = set()
    for phase, level in by_phase.items():
        name, _, size = level.partition(":") if isinstance(level, str) else ("", "", "")
        if name == "sketch" and (not size or size.isdigit()):
            checked[phase] = "sketch"
            sizes.add(int(size) if size else Sketching().size)
        elif level == "summary":
            checked[phase] = "summary"
        elif level != "full":
            raise UsageError(f"detail must be one of {listed(DETAILS)} ('sketch:1024' sets its size), not {level!r}")
    if len(sizes) > 1:
        raise UsageError(f"one recording has sketches of one size, not of {', '.join(map(str, sorted(sizes)))}")
    return checked, Sketching(*sizes)


def _inputs(inputs: bool | str) -> Inputs:
    if inputs is True or inputs == "always":
        return "always"
    if inputs is False or inputs == "never":
        return "never"
    if inputs == "first":
        return "first"
    raise UsageError(f"inputs must be True, False or 'first' (only in the first recorded step), not {inputs!r}")
