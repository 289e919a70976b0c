"""NoiseFloor: what rounding alone does to each entry, and how far the candidate is from the truth beside it.

A program may be recorded in several passes (runs) of itself. A run's name is its mode and, for float64, the dtype:

    ''                  the program as the user runs it           'float64'            the same in float64
    'isolated'          every layer alone, on the reference's input   'isolated.float64'
    'injected'          the reference's gradients before every update 'injected.float64'
    'emulated'          the reference in the candidate's narrower type    'isolated.emulated'
    'repeat', 'perturbed1' …   the reference again, unchanged or with inputs moved by one unit in the last place
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from reprod_log.layers.lookup import column_of, layer_kind
from reprod_log.measure.comparison import Comparison, Task, measure_tasks
from reprod_log.measure.measurement import Measurement
from reprod_log.measure.sketch import has_values
from reprod_log.messages import Message, Name, Note, Number, message, notes_from_dict, notes_to_dict
from reprod_log.pairing import Pair, Pairing
from reprod_log.recording import Entry, Key, ModuleInfo, Recording
from reprod_log.verdict.status import Basis

_MEASURED = ("noise", "float64", "float32", "emulated")


@dataclass(frozen=True)
class FloorEvidence:
    """The numbers that speak about one entry in one mode. All are kept, so that it can be judged again."""

    key: Key
    """The reference's key, without the mark of the float64 run."""
    mode: str
    noise: Measurement | None = None
    """The reference in its own precision against itself in float64 (or its worst repeat against itself)."""
    float64: Measurement | None = None
    """The candidate against the reference, both in float64."""
    float32: Measurement | None = None
    """The candidate in its own precision against the reference in float64 (or in its own, when there is no float64)."""
    emulated: Measurement | None = None
    """The reference in the candidate's type, where that is narrower than float32, against itself in float64."""
    reduction: int = 1
    """How many terms were summed into each element of a one-dimensional gradient or a batch statistic."""
    basis: Basis = Basis.NONE
    constant: float = 0.0
    """Relative error that a constant kept in float32 makes in every precision (see kept_constants)."""
    flips: int | None = None
    """Elements of a layer's output whose sign differs between the passes; None where nobody looked."""

    @property
    def in_float64(self) -> bool:
        """Whether the noise was measured against the reference's own float64 run."""
        return self.noise is not None and self.basis in (Basis.BOTH_FLOAT64, Basis.REFERENCE_FLOAT64)

    def to_dict(self) -> dict[str, Any]:
        data = {**vars(self), "key": str(self.key), "basis": str(self.basis)}
        for name in _MEASURED:
            found = getattr(self, name)
            data[name] = None if found is None else found.to_dict()
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FloorEvidence:
        values = {**data, "key": Key.parse(data["key"]), "basis": Basis(data["basis"])}
        for name in _MEASURED:
            if values.get(name) is not None:
                values[name] = Measurement.from_dict(values[name])
        return cls(**values)


FLOAT64 = "float64"
EMULATED = "emulated"
NARROW = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Floating types narrower than float32, with the rounding of one operation relative to the value."""
MODES = ("isolated", "", "injected")


@dataclass(frozen=True)
class NoiseFloor:
    """The evidence for every entry, in the order in which a rule looks at it: isolated, free, injected."""

    evidence: tuple[FloorEvidence, ...]
    notes: tuple[Note, ...] = ()

    @property
    def basis(self) -> Basis:
        """The best evidence there is for any entry."""
        order = (Basis.BOTH_FLOAT64, Basis.REFERENCE_FLOAT64, Basis.REPEATS)
        present = {one.basis for one in self.evidence}
        return next((basis for basis in order if basis in present), Basis.NONE)

    def of_mode(self, mode: str) -> Iterator[FloorEvidence]:
        """The evidence of the free run (''), the layers alone, or the run with the reference's gradients."""
        return (one for one in self.evidence if one.mode == mode)

    @cached_property
    def injected(self) -> frozenset[Key]:
        """Keys of what was also run with the reference's gradients, in a precision in which it can be judged."""
        return frozenset(
            one.key
            for one in self.evidence
            if one.mode == "injected" and one.float32 is not None and one.noise is not None
        )

    @cached_property
    def by_key(self) -> dict[Key, FloorEvidence]:
        return {one.key: one for one in self.evidence}

    def without_float64(self) -> NoiseFloor:
        """The floor as if the candidate could not run in float64."""
        return NoiseFloor(
            tuple(
                one if one.float64 is None else replace(one, float64=None, basis=Basis.REFERENCE_FLOAT64)
                for one in self.evidence
            ),
            self.notes,
        )

    def to_dict(self) -> dict[str, Any]:
        return {"evidence": [one.to_dict() for one in self.evidence], **notes_to_dict(self.notes)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> NoiseFloor:
        return cls(tuple(FloorEvidence.from_dict(one) for one in data["evidence"]), notes_from_dict(data))


def calibrate(
    pairing: Pairing,
    *,
    reference: Recording,
    candidate: Recording | None = None,
    comparison: Comparison | None = None,
    executor: Executor | None = None,
    threads: int | None = None,
) -> NoiseFloor:
    """The noise floor of every pair, from whatever passes the two recordings hold.

    Of the candidate only the settings of its layers are looked at here. What `comparison` has of these pairs is not
    measured again.
    The measuring is spread over `threads` (None: one per core) or over an `executor`.
    """
    by_key = {pair.reference.key: pair for pair in pairing.pairs}
    repeats = tuple(run for run in reference.runs if run == "repeat" or run.startswith("perturbed"))
    wanted = [
        _wanted(pair, mode, by_key, reference, repeats)
        for mode in MODES
        for pair in pairing.pairs
        if pair.reference.key.run == mode
    ]
    again = _repeated(reference)
    rows = () if comparison is None else comparison.rows
    known = {id(by_key[row.key]): _without_limit(row.measurement) for row in rows}
    new = {id(pair): pair for one in wanted for pair in one.pairs if id(pair) not in known}
    tasks = [Task(pair) for pair in (*new.values(), *again)]
    found = [row.measurement for row in measure_tasks(tasks, executor=executor, threads=threads)]
    measured = known | dict(zip(new, found, strict=False))
    ours, theirs = KeptConstants.of(reference), KeptConstants() if candidate is None else KeptConstants.of(candidate)
    evidence = tuple(
        replace(
            one.evidence([measured[id(pair)] for pair in one.pairs]),
            constant=ours.error(one.float32.reference) + theirs.error(one.float32.candidate),
        )
        for one in wanted
    )
    return NoiseFloor(_with_flips(evidence, wanted, reference), tuple(_notes(again, found[len(new) :])))


_KINKS_AT_ZERO = ("relu", "leaky_relu", "prelu")
_WORTH_A_LOOK = 2.0
"""Errors of gradients in units of the reference's own, above which it matters whether activations changed sides."""


def _with_flips(
    evidence: tuple[FloorEvidence, ...], wanted: list[_Wanted], reference: Recording
) -> tuple[FloorEvidence, ...]:
    """The evidence; where gradients of the first step jump, with the signs that changed in the outputs before them."""
    free = [one for one in evidence if not one.mode and one.key.step is not None]
    first = min((one.key.step or 0 for one in free), default=None)
    gradients = [one for one in free if one.key.step == first and one.key.phase in ("gradient", "backward")]
    if not any(_jumps(one) for one in gradients):
        return evidence
    # These change sides without a sign that does: the largest of a window, a limit other than zero.
    elsewhere = {module.path for module in reference.modules if _has_kink_elsewhere(module)}
    return tuple(
        replace(one, flips=None if one.key.path in elsewhere else _flips(asked))
        if not one.mode and one.key.step == first and one.key.phase == "forward" and one.key.role.startswith("output")
        else one
        for one, asked in zip(evidence, wanted, strict=True)
    )


def _has_kink_elsewhere(module: ModuleInfo) -> bool:
    row = layer_kind(module.kind)
    return row is not None and ((row.kinked and row.kind not in _KINKS_AT_ZERO) or "maxpool" in row.kind)


def _jumps(one: FloorEvidence) -> bool:
    if one.float32 is None or one.noise is None:
        return False
    return not one.float32.rmse <= _WORTH_A_LOOK * one.noise.rmse


def _flips(asked: _Wanted) -> int | None:
    """How many elements have another sign in either side's own precision than in the reference's float64 pass."""
    count = 0
    for pair in (*asked.noise, asked.float32):
        if not has_values(pair):
            return None
        ours, theirs = pair.reference.array(), pair.candidate.array()
        theirs = theirs if pair.view is None else pair.view.of(theirs)
        if ours.shape != theirs.shape or ours.dtype.kind != "f" or theirs.dtype.kind != "f":
            return None
        count += int(np.count_nonzero(np.sign(ours) != np.sign(theirs)))
    return count


def may_have_flipped(outputs: Iterable[FloorEvidence]) -> bool:
    """Whether an activation may stand on the other side of a kink: signs changed, or nobody knows."""
    flips = [one.flips for one in outputs]
    return not flips or None in flips or any(flips)


def _without_limit(measurement: Measurement | None) -> Measurement | None:
    """A noise floor knows of no fixed limit, and so of nothing beyond it."""
    return None if measurement is None else measurement._replace(limit=None, beyond_limit=None)


@dataclass(frozen=True)
class _Wanted:
    """What is to be measured to speak about one entry in one mode."""

    plain: FloorEvidence
    noise: tuple[Pair, ...]
    """The worst of these is the noise."""
    float32: Pair
    float64: Pair | None = None
    emulated: Pair | None = None

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return (*self.noise, self.float32, *(one for one in (self.float64, self.emulated) if one is not None))

    def evidence(self, measured: list[Measurement | None]) -> FloorEvidence:
        """The evidence, from the measurements of `pairs`."""
        several = len(self.noise)
        noise = max((one for one in measured[:several] if one is not None), key=lambda one: one.rmse, default=None)
        float64 = None if self.float64 is None else measured[several + 1]
        emulated = None if self.emulated is None else measured[-1]
        basis = Basis.NONE if self.plain.basis is Basis.REPEATS and noise is None else self.plain.basis
        return replace(
            self.plain, noise=noise, float32=measured[several], float64=float64, emulated=emulated, basis=basis
        )


def _wanted(
    pair: Pair, mode: str, by_key: Mapping[Key, Pair], reference: Recording, repeats: tuple[str, ...]
) -> _Wanted:
    """What speaks about one pair of the plain (not float64) run of a mode."""
    key = pair.reference.key
    wide_key = key.in_run(f"{mode}.{FLOAT64}" if mode else FLOAT64)
    plain = FloorEvidence(key, mode, reduction=int(pair.reference.meta.get("terms", 1)))
    if wide_key not in reference:
        repeated = tuple(Pair(pair.reference, reference[again]) for again in _repeats_of(key, reference, repeats))
        return _Wanted(replace(plain, basis=Basis.REPEATS), repeated, pair)
    truth = reference[wide_key]
    wide_pair = by_key.get(wide_key)
    return _Wanted(
        replace(plain, basis=Basis.REFERENCE_FLOAT64 if wide_pair is None else Basis.BOTH_FLOAT64),
        (Pair(truth, pair.reference),),
        Pair(truth, pair.candidate, view=pair.view),
        wide_pair,
        _in_narrow_type(pair, mode, truth, reference),
    )


def _in_narrow_type(pair: Pair, mode: str, truth: Entry, reference: Recording) -> Pair | None:
    """The reference in the candidate's narrow type beside the truth: emulated, or as it runs when that is its own."""
    emulated = pair.reference.key.in_run(f"{mode}.{EMULATED}" if mode else EMULATED)
    if emulated in reference:
        return Pair(truth, reference[emulated])
    own = pair.reference.dtype in NARROW and pair.reference.dtype == pair.candidate.dtype
    return Pair(truth, pair.reference) if own else None


def _repeats_of(key: Key, reference: Recording, repeats: tuple[str, ...]) -> Iterator[Key]:
    """The reference's own repeats and perturbed runs of an entry."""
    if key.run:
        return
    for run in repeats:
        again = key.in_run(run)
        if again in reference:
            yield again


def _repeated(reference: Recording) -> list[Pair]:
    """Every entry of the reference with its repetition."""
    found = ((entry, entry.key.in_run("repeat")) for entry in reference.of_run(""))
    return [Pair(entry, reference[again]) for entry, again in found if again in reference]


def _notes(again: list[Pair], measured: list[Measurement | None]) -> Iterator[Message]:
    """A reference that does not repeat itself is named: no verdict can stand on it."""
    for pair, measurement in zip(again, measured, strict=True):
        if measurement is not None and not (measurement.differing == 0 and not measurement.nonfinite_mismatched):
            key, size = Name(pair.reference.key), Number(measurement.max_abs)
            yield message("note.verdict.not_repeated", key=key, size=size)
            return


_MOST = 1e-3
"""A share that is off by more than this belongs to a moving average that hardly moves: nothing is believed about it."""


@dataclass(frozen=True)
class KeptConstants:
    """How far off, relative to itself, is the share by which a moving average of a recording moves.

    Some frameworks keep a constant in float32 even when they compute in float64: the momentum of a batch norm (the
    share of the old value), the betas of optimizers. The share of the new value is what is left of 1: with a momentum
    of 0.99 it is off by 1e-6 of itself, with 0.999 by 1e-5, in every correct port. Nobody can fix that in a port, so it
    is part of the limit, as exactly as it is known.
    """

    statistics: Mapping[str, float] = field(default_factory=dict)
    """By path of the layer, for its running statistics."""
    moments: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By path of the parameter and role, for what an optimizer keeps."""
    updates: Mapping[str, float] = field(default_factory=dict)
    """By path of the parameter, for what some optimizers make of the moments."""

    @classmethod
    def of(cls, recording: Recording) -> KeptConstants:
        framework = recording.provenance.framework
        statistics = {module.path: error for module in recording.modules if (error := _of_layer(module))}
        optimizers = recording.provenance.extra.get("optimizers", {})
        moments: dict[tuple[str, str], float] = {}
        updates: dict[str, float] = {}
        for one in optimizers.values() if isinstance(optimizers, Mapping) else ():
            found, moves_updates = _moments(framework, one)
            moments |= found
            if moves_updates:
                for (path, _), error in found.items():
                    updates[path] = updates.get(path, 0.0) + error
        return cls(statistics, moments, updates)

    def error(self, entry: Entry) -> float:
        """The error of the share by which this entry moves; 0 for what is no moving average."""
        key = entry.key
        if key.phase == "buffer":
            return self.statistics.get(key.path.rpartition(".")[0], 0.0)
        if key.phase in ("update", "parameter"):
            return self.updates.get(key.path, 0.0)
        return self.moments.get((key.path, key.role), 0.0) if key.phase == "optimizer" else 0.0


def _of_layer(module: ModuleInfo) -> float:
    """The error of the share by which a layer's running statistics move."""
    row, column = layer_kind(module.kind), column_of(module)
    if row is None or column is None:
        return 0.0
    kept = [column.settings[name] for name in set(row.moving.values()) if name in column.settings]
    return max((_share_error(module.settings.get(one.native)) for one in kept if one.float32), default=0.0)


def _moments(framework: str, settings: Mapping[str, Any]) -> tuple[dict[tuple[str, str], float], bool]:
    """The errors by path and role, and whether they move the updates too."""
    # Most comparisons know no optimizer, and need not wait for the table of them.
    from reprod_log.layers.optimizers import averaged, group_settings, narrow_settings

    narrow, moves_updates = narrow_settings(framework, settings)
    found: dict[tuple[str, str], float] = {}
    paths = iter(settings.get("parameters", ()))
    for group, size in zip(group_settings(settings), settings.get("parameters_in_groups", ()), strict=False):
        for _, path in zip(range(size), paths, strict=False):
            for role, name in averaged(settings).items():
                if name in narrow:
                    found[path, role] = _share_error(group.get(name))
    return found, bool(moves_updates)


def _share_error(kept: Any) -> float:
    if not isinstance(kept, float) or not 0 < kept < 1:
        return 0.0
    error = abs(float(np.float32(kept)) - kept) / (1 - kept)
    return error if error < _MOST else 0.0
