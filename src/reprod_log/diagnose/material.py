"""Material: the two recordings behind a comparison, read by rules that need more than the measured numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from reprod_log.errors import RecordingError
from reprod_log.pairing import Pair, Pairing
from reprod_log.pairing.values import factor, relative
from reprod_log.recording import Array, Key, ModuleInfo, Recording

Both = tuple[Array, Array]
"""The same thing on both sides, in float64: the reference's and the candidate's in the reference's layout."""
_WRITTEN = 1e-5
"""Of a parameter's size: more than the rounding of `after - update` leaves, even in float32."""


@dataclass(frozen=True)
class Material:
    """Values, layers and optimizers of both sides."""

    reference: Recording
    candidate: Recording
    pairing: Pairing

    @cached_property
    def pairs(self) -> dict[Key, Pair]:
        return {pair.reference.key: pair for pair in self.pairing.pairs}

    @cached_property
    def layers(self) -> dict[str, tuple[ModuleInfo, ModuleInfo]]:
        """Paired layers by the reference's path, in execution order."""
        ours = {module.path: module for module in self.reference.modules}
        theirs = {module.path: module for module in self.candidate.modules}
        found: dict[str, tuple[ModuleInfo, ModuleInfo]] = {}
        for pair in self.pairing.pairs:
            here, there = pair.reference.key, pair.candidate.key
            if here.phase == "forward" and not here.run and here.path in ours and there.path in theirs:
                found.setdefault(here.path, (ours[here.path], theirs[there.path]))
        return found

    @property
    def is_joined(self) -> bool:
        """Whether a side was put together from the recordings of several ranks."""
        return any(type(side) is not Recording for side in (self.reference, self.candidate))

    @cached_property
    def has_float64(self) -> bool:
        return "float64" in self.reference.runs and "float64" in self.candidate.runs

    @cached_property
    def steps(self) -> tuple[int, ...]:
        return tuple(sorted({e.key.step for e in self.reference.entries if not e.key.run and e.key.step is not None}))

    @cached_property
    def stepped(self) -> bool:
        """Whether an optimizer did something in the first step, on either side."""
        first = self.steps[0] if self.steps else 0
        return any(
            entry.key.phase == "update" and entry.key.step == first and not entry.key.run
            for recording in (self.reference, self.candidate)
            for entry in recording.entries
        )

    def values(self, key: Key) -> Both | None:
        """The values under this very key; None when one side does not have them or they cannot be compared."""
        pair = self.pairs.get(key)
        if pair is None:
            return None
        try:
            ours, theirs = pair.reference.array(), pair.candidate.array()
        except RecordingError:
            return None
        if pair.view is not None:
            theirs = pair.view.of(theirs)
        if ours.dtype.kind not in "fiub" or theirs.dtype.kind not in "fiub" or ours.shape != theirs.shape:
            return None
        return ours.astype(np.float64), theirs.astype(np.float64)

    def best(self, key: Key) -> Both | None:
        """The values in the float64 pass if both sides have one, else in the plain one."""
        wide = self.values(key.in_run(f"{key.run}.float64" if key.run else "float64"))
        return wide if wide is not None else self.values(key)

    def each(self, phase: str, step: int | None = None, role: str | None = None) -> Iterator[tuple[Key, Both]]:
        """Every comparable pair of a phase of the program, by its plain key, with its best values."""
        for pair in self.pairing.pairs:
            key = pair.reference.key
            if key.run or key.phase != phase or (step is not None and key.step != step):
                continue
            if role is not None and key.role != role:
                continue
            both = self.best(key)
            if both is not None:
                yield key, both

    def initial(self, path: str) -> Both | None:
        """A parameter as it was before the first update; None when that cannot be told from what was recorded."""
        now = self.best(Key(path, "parameter", self.steps[0] if self.steps else 0))
        if now is None or path in self.written_by_hand:
            return None
        moved = self.best(Key(path, "update", self.steps[0]))
        if moved is None:
            return None if self._is_updated(path, self.steps[0]) else now
        return now[0] - moved[0], now[1] - moved[1]

    @cached_property
    def written_by_hand(self) -> frozenset[str]:
        """Parameters that the script itself writes, on one side or both: an average of weights, a copy, a clamp.

        They change from step to step by more than what an optimizer did, so what stands at the end of the first step
        does not tell what was loaded.
        """
        return frozenset(
            path for path in self.parameters if any(self._is_written(path, *steps) for steps in pairwise(self.steps))
        )

    def _is_written(self, path: str, step: int, following: int) -> bool:
        earlier, later = (self.best(Key(path, "parameter", one)) for one in (step, following))
        if earlier is None or later is None:
            return False
        moved = self.best(Key(path, "update", following))
        if moved is None:
            unchanged = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(earlier, later, strict=True))
            return not unchanged and not self._is_updated(path, following)
        return any(relative(a, b - by) > _WRITTEN for a, b, by in zip(earlier, later, moved, strict=True))

    def before(self, path: str, step: int) -> Both | None:
        """A parameter as it was when a step began."""
        if step == self.steps[0]:
            return self.initial(path)
        return self.best(Key(path, "parameter", step - 1))

    @property
    def parameters(self) -> tuple[str, ...]:
        """Paths of the paired parameters."""
        first = self.steps[0] if self.steps else 0
        return tuple(
            pair.reference.key.path
            for pair in self.pairing.pairs
            if pair.reference.key.phase == "parameter"
            and not pair.reference.key.run
            and pair.reference.key.step == first
        )

    def place(self, path: str) -> int:
        """Where a parameter stands among the paired ones; behind them when it has no partner."""
        return self._places.get(path, len(self._places))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {path: place for place, path in enumerate(self.parameters)}

    def partner(self, path: str) -> str:
        """What the candidate calls a parameter of the reference."""
        pair = self.pairs.get(Key(path, "parameter", self.steps[0] if self.steps else 0))
        return path if pair is None else pair.candidate.key.path

    def optimizers(self) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
        """The settings of both sides' optimizers, paired by name or place."""
        ours = dict(self.reference.provenance.extra.get("optimizers", {}))
        theirs = dict(self.candidate.provenance.extra.get("optimizers", {}))
        if len(ours) == len(theirs):
            for (name, one), other in zip(ours.items(), theirs.values(), strict=True):
                yield name, one, theirs.get(name, other)

    def _is_updated(self, path: str, step: int) -> bool:
        """Whether an optimizer changed a parameter in a step, on either side."""
        return Key(path, "update", step) in self.reference or Key(self.partner(path), "update", step) in self.candidate


def other_factor(ours: Array, theirs: Array, *, within: float = 1e-4) -> float | None:
    """The one number that makes theirs out of ours, when it is another one than 1 by more than what it leaves over."""
    ratio = factor(ours, theirs, within=within)
    if ratio is None:
        return None
    left = float(np.linalg.norm(theirs - ratio * ours))
    return ratio if 10 * left < abs(ratio - 1) * float(np.linalg.norm(ours)) else None


def shown_ratio(ratio: float) -> str:
    """The ratio with as many digits as it takes to see that it is not 1."""
    apart = abs(ratio - 1)
    digits = 6 if not apart else max(6, 2 - math.floor(math.log10(apart)))
    return f"{ratio:.{min(digits, 15)}g}"
