"""NoiseFloor: what rounding alone does to each entry, and how far the candidate is from the truth beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from reprod_log.errors import interrupted, result_of
from reprod_log.layers.lookup import names_of_statistic
from reprod_log.measure.comparison import Comparison, Task, measure_tasks
from reprod_log.measure.measurement import Measurement
from reprod_log.messages import Message, Name, Note, Number, message
from reprod_log.pairing import Pair, Pairing
from reprod_log.recording import Entry, Key, Recording
from reprod_log.recording.plain import Plain
from reprod_log.verdict.evidence import DECLARED, EMULATED, EPS, FITTED, FLOAT64, NARROW, FloorEvidence, Series
from reprod_log.verdict.kept_constants import KeptConstants, with_clipping
from reprod_log.verdict.kinks import with_flips
from reprod_log.verdict.status import Basis

MODES = ("isolated", "", "injected")


@dataclass(frozen=True)
class NoiseFloor(Plain):
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

    def rounding(self, one: FloorEvidence, size: float) -> float:
        """What rounding does to values of this size, which are sums of so many terms."""
        return EPS * math.sqrt(max(one.reduction, 1)) * (size + self._spread(one))

    def in_own_precision(self, one: FloorEvidence) -> float:
        """The floor of an entry that is judged in the candidate's own precision.

        With the length of sums in it; for single numbers with the worst noise of their kind over all steps, because one
        loss may hit its rounded value by luck.
        """
        assert one.float32 is not None
        assert one.noise is not None
        noise, size = one.noise.rmse, one.float32.reference.rms
        if one.float32.count == 1:
            noise = max(noise, self._worst_shares.get(one.series, 0.0) * size)
        return noise + self.rounding(one, size)

    @cached_property
    def _worst_shares(self) -> dict[Series, float]:
        """The worst noise of every tensor over the steps, relative to its size."""
        found: dict[Series, float] = {}
        for one in self.evidence:
            if one.noise is not None and one.noise.reference.rms:
                found[one.series] = max(found.get(one.series, 0.0), one.noise.rmse / one.noise.reference.rms)
        return found

    def _spread(self, one: FloorEvidence) -> float:
        """For a running mean, the deviation of what was averaged: a mean of zero is rounded like the values it sums."""
        for mean, variance in zip(names_of_statistic("running_mean"), names_of_statistic("running_var"), strict=True):
            if one.key.phase == "buffer" and one.key.path.endswith(mean):
                found = self.by_key.get(replace(one.key, path=one.key.path.removesuffix(mean) + variance))
                if found is not None and found.float32 is not None:
                    return math.sqrt(found.float32.reference.rms)
        return 0.0

    def without_float64(self) -> NoiseFloor:
        """The floor as if the candidate could not run in float64."""
        return NoiseFloor(
            tuple(
                one if one.float64 is None else replace(one, float64=None, basis=Basis.REFERENCE_FLOAT64)
                for one in self.evidence
            ),
            self.notes,
        )


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

    Of the candidate only the settings of its layers and its rounded passes are looked at here. What `comparison` has of
    these pairs is not measured again.
    The measuring is spread over `threads` (None: one per core) or over an `executor`. Ctrl-C leaves with the floor of
    the pairs that were measured by then.
    """
    by_key = {pair.reference.key: pair for pair in pairing.pairs}
    repeats = tuple(run for run in reference.runs if run == "repeat" or run.startswith("perturbed"))
    wanted = [
        _wanted(pair, mode, by_key, reference, candidate, repeats)
        for mode in MODES
        for pair in pairing.pairs
        if pair.reference.key.run == mode
    ]
    again = _repeated(reference)
    rows = () if comparison is None else comparison.rows
    known = {id(by_key[row.key]): _without_limit(row.measurement) for row in rows}
    new = {id(pair): pair for one in wanted for pair in one.pairs if id(pair) not in known}
    tasks = [Task(pair) for pair in (*new.values(), *again)]
    stopped = False
    try:
        measured_rows = measure_tasks(tasks, executor=executor, threads=threads)
    except KeyboardInterrupt as stop:
        measured_rows, stopped = result_of(stop, list) or [], True
    found = [row.measurement for row in measured_rows]
    measured = known | dict(zip(new, found, strict=False))
    wanted = [one for one in wanted if all(id(pair) in measured for pair in one.pairs)]
    ours, theirs = KeptConstants.of(reference), KeptConstants() if candidate is None else KeptConstants.of(candidate)
    evidence = tuple(
        replace(
            one.evidence([measured[id(pair)] for pair in one.pairs]),
            constant=ours.error(one.float32.reference) + theirs.error(one.float32.candidate),
        )
        for one in wanted
    )
    if candidate is not None:
        evidence = with_clipping(evidence, reference, candidate)
    pairs = [(*one.noise, one.float32) for one in wanted]
    floor = NoiseFloor(with_flips(evidence, pairs, reference), tuple(_notes(again, found[len(new) :])))
    if stopped:
        raise interrupted(result=floor) from None
    return floor


def _without_limit(measurement: Measurement | None) -> Measurement | None:
    """A noise floor knows of no fixed limit, and so of nothing beyond it."""
    return None if measurement is None else measurement._replace(limit=None, beyond_limit=None)


@dataclass(frozen=True)
class _Wanted:
    """What is to be measured for one entry in one mode."""

    plain: FloorEvidence
    noise: tuple[Pair, ...]
    """The worst of these is the noise."""
    float32: Pair
    float64: Pair | None = None
    emulated: Pair | None = None
    declared: Pair | None = None

    @property
    def pairs(self) -> tuple[Pair, ...]:
        further = (self.float64, self.emulated, self.declared)
        return (*self.noise, self.float32, *(one for one in further if one is not None))

    def evidence(self, measured: list[Measurement | None]) -> FloorEvidence:
        """The evidence, from the measurements of `pairs`."""
        noises, rest = measured[: len(self.noise)], iter(measured[len(self.noise) :])
        noise = max((one for one in noises if one is not None), key=lambda one: one.rmse, default=None)
        names = ("float32", "float64", "emulated", "declared")
        found: dict[str, Any] = {name: next(rest) for name in names if getattr(self, name) is not None}
        basis = Basis.NONE if self.plain.basis is Basis.REPEATS and noise is None else self.plain.basis
        return replace(self.plain, noise=noise, basis=basis, **found)


def _wanted(
    pair: Pair,
    mode: str,
    by_key: Mapping[Key, Pair],
    reference: Recording,
    candidate: Recording | None,
    repeats: tuple[str, ...],
) -> _Wanted:
    """What is measured for one pair of the plain (not float64) run of a mode."""
    key = pair.reference.key
    wide_key = key.in_run(f"{mode}.{FLOAT64}" if mode else FLOAT64)
    plain = FloorEvidence(key, mode, reduction=int(pair.reference.meta.get("terms", 1)))
    if wide_key not in reference:
        repeated = tuple(Pair(pair.reference, reference[again]) for again in _repeats_of(key, reference, repeats))
        return _Wanted(replace(plain, basis=Basis.REPEATS), repeated, pair)
    truth = reference[wide_key]
    wide_pair = by_key.get(wide_key)
    wanted = _Wanted(
        replace(plain, basis=Basis.REFERENCE_FLOAT64 if wide_pair is None else Basis.BOTH_FLOAT64),
        (Pair(truth, pair.reference),),
        Pair(truth, pair.candidate, view=pair.view),
        wide_pair,
        _in_narrow_type(pair, mode, truth, reference),
    )
    fitted, declared = (
        _of_run(candidate, pair.candidate.key.in_run(f"{mode}.{run}" if mode else run)) for run in (FITTED, DECLARED)
    )
    if fitted is None or declared is None:
        return wanted
    return replace(wanted, emulated=Pair(truth, fitted, view=pair.view), declared=Pair(declared, pair.candidate))


def _of_run(recording: Recording | None, key: Key) -> Entry | None:
    return recording[key] if recording is not None and key in recording else None


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
    for pair, measurement in zip(again, measured, strict=False):
        if measurement is not None and not (measurement.differing == 0 and not measurement.nonfinite_mismatched):
            key, size = Name(pair.reference.key), Number(measurement.max_abs)
            yield message("note.verdict.not_repeated", key=key, size=size)
            return
