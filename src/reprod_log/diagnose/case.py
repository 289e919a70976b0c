"""Case: a judged comparison with the recordings behind it, as hypotheses see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from reprod_log.diagnose.fits import CLEARLY, ROUNDINGS, epsilon, holds
from reprod_log.errors import RecordingError, ValuesNotRecorded
from reprod_log.measure.comparison import Compared, Comparison
from reprod_log.measure.measurement import Measurement
from reprod_log.pairing import Pair, Pairing
from reprod_log.pairing.distance import relative
from reprod_log.recording import Array, Key, ModuleInfo, Recording
from reprod_log.recording.recording import Source, series
from reprod_log.verdict import CalibratedPolicy, Judgement, NoiseFloor, Policy, Status, Verdict
from reprod_log.verdict.evidence import FloorEvidence

if TYPE_CHECKING:
    from reprod_log.ranks.joining import JoinedRecording

LayerState = Literal["sound", "own", "inside", "glue", "inherited"]
"""sound: right alone and in the program; own: wrong alone, and nothing inside it is; inside: wrong because a layer
inside it is; glue: wrong alone although all layers inside it are right, so the code between them is at fault;
inherited: right alone, wrong in the program because of what it was given."""


_ASPECTS = {"forward": 0, "backward": 1, "gradient": 1, "buffer": 2}
"""What of a layer can be wrong alone, the earliest in time first. A running variance that is wrong inside a block (an
accepted difference of two frameworks, say) does not explain why the block's output is."""
_RIGHT = 3


def layer_states(judgements: Iterable[Judgement]) -> dict[str, LayerState]:
    """The state of every layer that was run alone, in execution order, children before their parents."""
    alone: dict[str, int] = {}
    free: dict[str, bool] = {}
    for one in judgements:
        key = one.key
        if key.run == "isolated":
            layer = key.layer_alone
            aspect = _RIGHT if one.status.passed else _ASPECTS.get(key.phase, 0)
            alone[layer] = min(alone.get(layer, _RIGHT), aspect)
        elif not key.run and key.phase in ("forward", "backward") and not key.role.startswith("input"):
            free[key.path] = free.get(key.path, False) or not one.status.passed
    return {layer: _state(layer, alone, free) for layer in alone}


def _state(layer: str, alone: dict[str, int], free: dict[str, bool]) -> LayerState:
    inner = [path for path in alone if path != layer and (not layer or path.startswith(f"{layer}."))]
    if alone[layer] < _RIGHT:
        if any(alone[path] <= alone[layer] for path in inner):
            return "inside"
        return "glue" if inner else "own"
    return "inherited" if free.get(layer) else "sound"


FLOAT64 = "float64"
Both = tuple[Array, Array]
"""The same thing on both sides, in float64: the reference's and the candidate's in the reference's layout."""
_WRITTEN = 1e-5
"""Of a parameter's size: more than the rounding of `after - update` leaves, even in float32."""


@dataclass(frozen=True)
class CaseData:
    """Values, layers and optimizers of both sides."""

    reference: Recording
    candidate: Recording
    pairing: Pairing
    fed: bool = False
    """Whether every step of the candidate began with the reference's parameters."""

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

    @cached_property
    def roots(self) -> frozenset[str]:
        """Paths of the models themselves: '' of a single one, their names where there are several."""
        top = {module.path for module in self.reference.modules if "." not in module.path}
        return frozenset({""} if "" in top else top)

    @cached_property
    def joined(self) -> tuple[tuple[str, JoinedRecording], ...]:
        """The sides that were put together from the recordings of several ranks, by their names."""
        # Every comparison asks this and few have ranks, so the class itself is not loaded.
        return tuple((name, cast("JoinedRecording", side)) for name, side in self.sides if type(side) is not Recording)

    @property
    def joined_in_part(self) -> bool:
        """Whether ranks have entries of their own, or entries that could not be put together."""
        return any(side.differing or side.left_out for _, side in self.joined)

    @cached_property
    def has_float64(self) -> bool:
        return FLOAT64 in self.reference.runs and FLOAT64 in self.candidate.runs

    @cached_property
    def steps(self) -> tuple[int, ...]:
        return tuple(sorted({e.key.step for e in self.reference.entries if not e.key.run and e.key.step is not None}))

    @cached_property
    def stepped(self) -> bool:
        """Whether an optimizer did something in the first step, on either side."""
        return any(
            entry.key.phase == "update" and entry.key.step == self.first and not entry.key.run
            for _, recording in self.sides
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
        wide = self.values(key.in_run(f"{key.run}.{FLOAT64}" if key.run else FLOAT64))
        return wide if wide is not None else self.values(key)

    @property
    def first(self) -> int:
        """The first step."""
        return self.steps[0] if self.steps else 0

    @property
    def sides(self) -> tuple[tuple[str, Recording], tuple[str, Recording]]:
        return ("reference", self.reference), ("candidate", self.candidate)

    def keys(self, phase: str, step: int | None = None) -> list[Key]:
        """The keys of a phase of the program that have a partner, in execution order."""
        keys = (pair.reference.key for pair in self.pairing.pairs)
        return [key for key in keys if not key.run and key.phase == phase and step in (None, key.step)]

    def each(self, phase: str, step: int | None = None, role: str | None = None) -> Iterator[tuple[Key, Both]]:
        """Every comparable pair of a phase of the program, by its plain key, with its best values."""
        for key in self.keys(phase, step):
            if role is not None and key.role != role:
                continue
            both = self.best(key)
            if both is not None:
                yield key, both

    def initial(self, path: str) -> Both | None:
        """A parameter as it was before the first update; None when that cannot be told from what was recorded."""
        now = self.best(Key(path, "parameter", self.first))
        if now is None or path in self.written_by_hand:
            return None
        moved = self.moved(path, self.steps[0])
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
        moved = self.moved(path, following)
        if moved is None:
            unchanged = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(earlier, later, strict=True))
            return not unchanged and not self._is_updated(path, following)
        return any(relative(a, b - by) > _WRITTEN for a, b, by in zip(earlier, later, moved, strict=True))

    def moved(self, path: str, step: int) -> Both | None:
        """By how much optimizers moved a parameter in a step, in all of its updates."""
        key = Key(path, "update", step)
        first = self.best(key)
        if first is None:
            return None
        # One of the two passes may have it alone.
        pair = self.pairs.get(key.in_run(FLOAT64)) or self.pairs[key]
        ours = self._all_updates(self.reference, path, step, first[0])
        theirs = self._all_updates(self.candidate, pair.candidate.key.path, step, first[1])
        return None if ours is None or theirs is None else (ours, theirs)

    def _all_updates(self, recording: Recording, path: str, step: int, first: Array) -> Array | None:
        """The sum of a side's updates, of which the first was paired; None when its layout is unknown."""
        total, run = first, FLOAT64 if self.has_float64 else ""
        for call in count(1):
            key = Key(path, "update", step, call, run=run)
            if key not in recording:
                break
            written = recording[replace(key, call=None)].array()
            later = recording[key].array()
            # The paired one is in the reference's layout, which is that of the candidate or its transpose.
            turned = next((b for a, b in ((written, later), (written.T, later.T)) if np.array_equal(a, first)), None)
            if turned is None:
                return None
            total = total + turned
        return total

    def before(self, path: str, step: int) -> Both | None:
        """A parameter as it was when a step began."""
        if step == self.steps[0]:
            return self.initial(path)
        earlier = self.best(Key(path, "parameter", step - 1))
        return earlier if earlier is None or not self.fed else (earlier[0], earlier[0])

    @property
    def parameters(self) -> tuple[str, ...]:
        """Paths of the paired parameters."""
        return tuple(key.path for key in self.keys("parameter", self.first))

    def place(self, path: str) -> int:
        """Where a parameter stands among the paired ones; behind them when it has no partner."""
        return self._places.get(path, len(self._places))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {path: place for place, path in enumerate(self.parameters)}

    def partner(self, path: str) -> str:
        """What the candidate calls a parameter of the reference."""
        pair = self.pairs.get(Key(path, "parameter", self.first))
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


@dataclass(frozen=True)
class Point:
    """One step of a series: what was measured for it and how it was judged."""

    step: int
    row: Compared
    measurement: Measurement
    judgement: Judgement


@dataclass(frozen=True)
class Case:
    """A judged comparison, as the rules see it."""

    reference: Source
    candidate: Source
    comparison: Comparison
    policy: Policy | CalibratedPolicy
    verdict: Verdict
    floor: NoiseFloor | None = None
    recorded: CaseData | None = None
    """The recordings themselves, for hypotheses that need values; None when only the numbers were kept."""

    @property
    def data(self) -> CaseData:
        """The recordings, where they are at hand."""
        if self.recorded is None:
            raise ValuesNotRecorded("only the numbers of this comparison were kept, not its recordings")
        return self.recorded

    @cached_property
    def judgements(self) -> dict[Key, Judgement]:
        return {one.key: one for one in self.verdict.judgements}

    @cached_property
    def rows(self) -> dict[Key, Compared]:
        """The compared entries of the plain run, by key."""
        return {row.key: row for row in self.comparison.rows if row.key in self.judgements}

    @cached_property
    def failed(self) -> dict[Key, Judgement]:
        """The compared entries that did not pass, by their keys and in order: the first are named."""
        return {
            one.key: one
            for one in self.verdict.judgements
            if not one.status.passed and one.status is not Status.UNMATCHED
        }

    @cached_property
    def suspect(self) -> frozenset[Key]:
        return frozenset(one.key for one in self.verdict.judgements if one.status is Status.SUSPECT)

    @cached_property
    def states(self) -> dict[str, LayerState]:
        """For each layer of the reference that was run alone: is its error its own, inherited, or between layers?"""
        return layer_states(self.judgements.values())

    def room(self, key: Key) -> tuple[float, float]:
        """How far off a prediction of the candidate's tensor may be, by norm (rms) and at most.

        This is the one tolerance of every fit: the limits by which the entry was judged, where a noise floor gave them.
        Where none did, what rounding comes to in a deep model.
        """
        judged = self.judgements.get(key)
        limits = {one.metric: one.limit for one in (judged.checks if judged else ()) if one.floor is not None}
        if {"rms", "max"} <= limits.keys():
            return limits["rms"], limits["max"]
        row = self.rows.get(key)
        if row is None or row.measurement is None:
            return 0.0, 0.0
        rounding = ROUNDINGS * epsilon(max(row.reference_dtype, row.candidate_dtype, key=epsilon))
        return rounding * row.measurement.candidate.rms, rounding * row.measurement.candidate.abs_max

    def is_rounding(self, one: FloorEvidence) -> bool:
        """Whether a tensor is zero in truth: its numbers differ, however precise both sides are."""
        if one.noise is None or not isinstance(self.policy, CalibratedPolicy):
            return False
        return one.noise.rmse > self.policy.noise_only * one.noise.reference.rms

    def near(self, key: Key, both: Both) -> float:
        """How far off any element of a fit may be: within the entry's room, and far less than what it explains."""
        return min(self.room(key)[1], CLEARLY * float(np.abs(both[1] - both[0]).max(initial=0.0)))

    @property
    def own(self) -> tuple[str, ...]:
        """The layers whose error is their own, in execution order."""
        return tuple(path for path, state in self.states.items() if state == "own")

    @cached_property
    def series(self) -> dict[str, tuple[Point, ...]]:
        """Every quantity over the steps, by its name."""
        found = {
            name: tuple(
                Point(step, row, row.measurement, self.judgements[key])
                for step, key in members
                if (row := self.rows[key]).measurement is not None
            )
            for name, members in series(self.rows).items()
        }
        return {name: points for name, points in found.items() if points}


@dataclass(frozen=True)
class SharedWeight:
    """A weight of its own on one side, which is another parameter on the other side."""

    separate: str
    """The weight that only one side has."""
    shared: str
    """The reference's name of the parameter that is used in its place on the other side."""
    side: str
    """The side that has both."""


def shared_weights(case: Case) -> tuple[SharedWeight, ...]:
    """Every weight without a partner whose gradient is the missing part of another one's."""
    data = case.recorded
    if data is None or not data.steps:
        return ()
    return tuple(
        found
        for one in case.comparison.unmatched
        if (key := one.key).phase == "parameter" and not key.run and key.step == data.steps[0]
        for found in _partner(case, data, key.path, one.side)
    )


def _partner(case: Case, data: CaseData, path: str, side: str) -> Iterable[SharedWeight]:
    recording = data.candidate if side == "candidate" else data.reference
    step = data.steps[0]
    own = _best(recording, Key(path, "gradient", step, role="raw"))
    if own is None or not own.any():
        return
    for key, (ours, theirs) in data.each("gradient", step, "raw"):
        whole, part = (ours, theirs) if side == "candidate" else (theirs, ours)
        near = case.near(key, (ours, theirs))
        # A gradient that is the same on both sides lacks nothing.
        if key in case.failed and any(holds(part + turned, whole, near) for turned in _turned(own, whole)):
            yield SharedWeight(path, key.path, side)
            return


def _turned(array: Array, like: Array) -> Iterator[Array]:
    """The array as it is and transposed, where the shape fits: frameworks keep linear weights either way."""
    for one in (array, array.T):
        if one.shape == like.shape:
            yield one


def _best(recording: Recording, key: Key) -> Array | None:
    for name in (key.in_run(FLOAT64), key):
        if name in recording:
            return recording[name].array().astype(np.float64)
    return None
