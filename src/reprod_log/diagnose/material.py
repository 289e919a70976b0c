"""Material: the two recordings behind a comparison, read by rules that need more than the measured numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from reprod_log.errors import RecordingError
from reprod_log.match import Pair, Pairing
from reprod_log.record import Array, Key, ModuleInfo, Recording

Both = tuple[Array, Array]
"""The same thing on both sides, in float64: the reference's and the candidate's in the reference's layout."""


@dataclass(frozen=True)
class Material:
    """Values, layers and optimizers of both sides."""

    reference: Recording
    candidate: Recording
    pairing: Pairing

    @cached_property
    def pairs(self) -> dict[str, Pair]:
        return {str(pair.reference.key): pair for pair in self.pairing.pairs}

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

    @cached_property
    def has_float64(self) -> bool:
        return "float64" in self.reference.runs and "float64" in self.candidate.runs

    @cached_property
    def steps(self) -> tuple[int, ...]:
        return tuple(sorted({e.key.step for e in self.reference.entries if not e.key.run and e.key.step is not None}))

    def values(self, key: Key) -> Both | None:
        """The values under this very key; None when one side does not have them or they cannot be compared."""
        pair = self.pairs.get(str(key))
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
        """A parameter as it was before the first update."""
        now = self.best(Key(path, "parameter", self.steps[0] if self.steps else 0))
        if now is None:
            return None
        moved = self.best(Key(path, "update", self.steps[0]))
        if moved is None:
            ours, theirs = self._update(path, self.reference), self._update(path, self.candidate)
            return now if ours is None and theirs is None else None
        return now[0] - moved[0], now[1] - moved[1]

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
        pair = self.pairs.get(str(Key(path, "parameter", self.steps[0] if self.steps else 0)))
        return path if pair is None else pair.candidate.key.path

    def optimizers(self) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
        """The settings of both sides' optimizers, paired by name or place."""
        ours = dict(self.reference.provenance.extra.get("optimizers", {}))
        theirs = dict(self.candidate.provenance.extra.get("optimizers", {}))
        if len(ours) == len(theirs):
            for (name, one), other in zip(ours.items(), theirs.values(), strict=True):
                yield name, one, theirs.get(name, other)

    def _update(self, path: str, recording: Recording) -> Array | None:
        key = str(Key(path, "update", self.steps[0]))
        return recording[key].array() if key in recording else None


def relative(ours: Array, theirs: Array) -> float:
    """‖theirs - ours‖ / ‖ours‖; inf when ours is zero and theirs is not."""
    size = float(np.linalg.norm(ours))
    error = float(np.linalg.norm(theirs - ours))
    return error / size if size else (0.0 if error == 0 else float("inf"))


def factor(ours: Array, theirs: Array, *, within: float = 1e-4) -> float | None:
    """The one number that makes theirs out of ours; None when there is none."""
    size = float(np.vdot(ours, ours))
    if not size or not np.isfinite(ours).all() or not np.isfinite(theirs).all():
        return None
    ratio = float(np.vdot(ours, theirs)) / size
    left = float(np.linalg.norm(theirs - ratio * ours))
    return ratio if ratio and left <= within * abs(ratio) * size**0.5 else None


def at_step(key: Key, step: int) -> Key:
    return replace(key, step=step)
