"""Comparison: the measurements of all pairs, and what could not be measured. Numbers, no opinion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

from reprod_log.errors import RecordingError, interrupted, near_names, result_of
from reprod_log.measure.dtypes import Array
from reprod_log.measure.elements import Samples, samples_of, thinned, worst_elements
from reprod_log.measure.fused import measure_arrays
from reprod_log.measure.measurement import Measurement, Worst
from reprod_log.measure.metrics import rows_measured
from reprod_log.measure.sketch import estimate_notes, estimate_pair, has_values, shapes_differ
from reprod_log.measure.small import is_small, measure_small
from reprod_log.measure.spread import spread
from reprod_log.messages import Foreign, Message, Note, message
from reprod_log.pairing import Pair, Pairing
from reprod_log.pairing.pairing import How
from reprod_log.recording import Key
from reprod_log.recording.entry import gc_paused
from reprod_log.recording.plain import Plain, from_plain, to_plain
from reprod_log.recording.portable import portable_entry

_SAMPLES_IN_ALL = 30_000
"""How many sampled elements all pairs share, so that a saved alignment stays small; a pair gets 4 to 200 of them."""
_MOST_SAMPLES, _FEWEST_SAMPLES = 200, 4
_WORST_ELEMENTS = 8
_WORTH_A_PICTURE = 1e-6
_SMALL = 1 << 16
"""Pairs of up to this many elements always list their worst; larger ones only when something is beyond a limit."""
_MOST_HINTS = 100_000
"""Likeness is quadratic to find; a thousand missing names need no hints."""
_MOST_LETTERS = _MOST_HINTS * 60**2
"""Names of usual length; comparing two takes as long as the product of their lengths."""


class Compared(NamedTuple):
    """One pair as it was measured; holds no tensor, so it can be stored and judged again."""

    key: Key
    """The reference's key."""
    candidate_key: Key
    reference_shape: tuple[int, ...]
    candidate_shape: tuple[int, ...]
    reference_dtype: str
    candidate_dtype: str
    measurement: Measurement | None
    incomparable: Message | None = None
    """Why there is no measurement."""
    how: How = "name"
    confidence: float = 1.0
    view: Message | None = None
    """What was rearranged to compare them, and why that was allowed."""
    layer_type: str = ""
    samples: Samples = ()
    """Evenly spaced (reference, candidate) values; all of them when the pair is small. For pictures only."""
    worst_elements: tuple[Worst, ...] = ()
    """The elements that differ most, largest difference first."""

    def contradictions(self) -> Iterator[str]:
        """What cannot be true of any pair."""
        if self.measurement is not None and self.measurement.count != prod(self.reference_shape):
            yield f"{self.measurement.count} elements of {list(self.reference_shape)} were measured"

    def to_dict(self) -> dict[str, Any]:
        return to_plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Compared:
        return from_plain(cls, data)


@dataclass(frozen=True)
class Unmatched:
    """An entry of one side that has no partner, and names on the other side that look like it."""

    key: Key
    side: str
    """'reference' or 'candidate': where it is."""
    near: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison(Plain):
    """Everything that was measured, in the reference's execution order."""

    rows: tuple[Compared, ...]
    unmatched: tuple[Unmatched, ...] = ()
    notes: tuple[Note, ...] = ()
    structural: tuple[str, ...] = ()
    """Modules without parameters that only one side has as modules; there was nothing to compare them with."""


class Task(NamedTuple):
    """One pair and what is asked about it; can go to another process if its entries can."""

    pair: Pair
    limit: float | None = None
    samples: int = 0
    """Keep up to this many elements of both sides."""
    samples_beyond: int = 0
    """The same, when something is beyond the limit."""
    worst: int = 0
    """Keep up to this many of the elements that differ most."""
    rows: tuple[str, ...] = ()
    """Metrics of whole rows that are asked for."""

    @property
    def nbytes(self) -> int:
        """How much there is to read."""
        reference, candidate = self.pair.reference, self.pair.candidate
        if reference.dtype == candidate.dtype and reference.shape == candidate.shape:
            return 2 * reference.nbytes
        return reference.nbytes + candidate.nbytes


def measure(
    pairing: Pairing,
    *,
    limit_for: Callable[[Pair], float | None] = lambda pair: None,
    rows_for: Callable[[Pair], tuple[str, ...]] = lambda pair: (),
    elements: bool = False,
    executor: Executor | None = None,
    threads: int | None = None,
) -> Comparison:
    """Measure every pair, reading a few pairs' data at a time.

    `limit_for` gives the absolute limit whose excess is counted, `rows_for` the metrics that need whole rows.
    `elements` also keeps a few single elements of each pair for the pictures of a report.
    The work is spread over `threads` (None: one per core), or over an `executor`; that changes nothing but the speed.
    Ctrl-C leaves with the comparison of the pairs that were measured by then.
    """
    with gc_paused():
        usual = max(_FEWEST_SAMPLES, min(_MOST_SAMPLES, _SAMPLES_IN_ALL // max(len(pairing.pairs), 1)))
        kept = (usual, _MOST_SAMPLES, _WORST_ELEMENTS) if elements else (0, 0, 0)
        tasks = [Task(pair, limit_for(pair), *kept, rows_for(pair)) for pair in pairing.pairs]
        stopped = None
        try:
            rows = measure_tasks(tasks, executor=executor, threads=threads)
        except KeyboardInterrupt as stop:
            rows, stopped = result_of(stop, list) or [], stop
        structural = tuple(dict.fromkeys(entry.key.path for entry in pairing.structural))
        notes: tuple[Note, ...] = (*pairing.notes, *estimate_notes([row.measurement for row in rows]))
        comparison = Comparison(tuple(_within_budget(rows, usual)), _unmatched(pairing), notes, structural)
        if stopped is not None:
            raise interrupted(result=comparison) from None
        return comparison


def measure_tasks(
    tasks: Sequence[Task],
    *,
    executor: Executor | None = None,
    threads: int | None = None,
) -> list[Compared]:
    """Every task done, in order, by threads or by an executor."""
    if executor is not None:
        tasks = [task._replace(pair=_portable(task.pair)) for task in tasks]
    with gc_paused():
        return spread(measure_batch, tasks, size=lambda task: task.nbytes, executor=executor, threads=threads)


def _portable(pair: Pair) -> Pair:
    return replace(pair, reference=portable_entry(pair.reference), candidate=portable_entry(pair.candidate))


def measure_pair(pair: Pair, *, limit: float | None = None) -> Compared:
    """One pair measured, or the reason why it cannot be."""
    return measure_batch([Task(pair, limit)])[0]


def measure_batch(tasks: Sequence[Task]) -> list[Compared]:
    """All tasks done here and now; small tensors are measured together."""
    rows: list[Compared | None] = [None] * len(tasks)
    small: list[tuple[int, Array, Array]] = []
    for place, task in enumerate(tasks):
        if not has_values(task.pair):
            rows[place] = _estimated(task.pair)
            continue
        found = pair_arrays(task.pair)
        if isinstance(found, Message):
            rows[place] = _row(task.pair, None, incomparable=found)
        elif is_small(*found):
            small.append((place, *found))
        else:
            rows[place] = _compared(task, *found, measure_arrays(*found, limit=task.limit))
    if small:
        measured = measure_small([(ours, theirs, tasks[place].limit) for place, ours, theirs in small])
        for (place, ours, theirs), measurement in zip(small, measured, strict=True):
            rows[place] = _compared(tasks[place], ours, theirs, measurement)
    return [row for row in rows if row is not None]


def _estimated(pair: Pair) -> Compared:
    """A pair whose values were not both recorded."""
    found = _kinds_differ(pair.reference.dtype, pair.candidate.dtype) or estimate_pair(pair)
    measurement, reason = (None, found) if isinstance(found, Message) else (found, None)
    return _row(pair, measurement, incomparable=reason)


def pair_arrays(pair: Pair) -> tuple[Array, Array] | Message:
    """Both sides as they can be compared element by element, or the reason why they cannot."""
    reference, candidate = pair.reference, pair.candidate
    if reference.dtype != candidate.dtype and (reason := _kinds_differ(reference.dtype, candidate.dtype)):
        return reason
    try:
        # Equal hashes would spare reading one side, but a file may claim what it likes; equal bytes are found quickly.
        ours, theirs = reference.array(), candidate.array()
        if pair.view is not None:
            theirs = pair.view.of(theirs)
    except RecordingError as error:
        return message("text", text=Foreign(error))
    if ours.shape == theirs.shape:
        return ours, theirs
    is_reverse = candidate.shape == reference.shape[::-1]
    return shapes_differ(reference, candidate, is_reverse=is_reverse)


def _row(
    pair: Pair,
    measurement: Measurement | None,
    *,
    incomparable: Message | None = None,
    samples: Samples = (),
    worst_elements: tuple[Worst, ...] = (),
) -> Compared:
    reference, candidate, view = pair.reference, pair.candidate, pair.view
    return Compared(
        reference.key,
        candidate.key,
        reference.shape,
        candidate.shape,
        reference.dtype,
        candidate.dtype,
        measurement,
        incomparable,
        pair.how,
        pair.confidence,
        None if view is None else view.reason,
        reference.layer_type,
        samples,
        worst_elements,
    )


def _compared(task: Task, ours: Array, theirs: Array, measurement: Measurement) -> Compared:
    if task.rows:
        measurement = measurement._replace(rows=tuple(rows_measured(ours, theirs, task.rows).items()))
    if not task.samples and not task.samples_beyond and not task.worst:
        return _row(task.pair, measurement)
    # Without a limit at hand a difference well above float32 rounding is the one that people will look at.
    far = measurement.beyond_limit if task.limit is not None else measurement.rel_l2 > _WORTH_A_PICTURE
    outside = bool(far or measurement.nonfinite_mismatched)
    look = task.worst > 0 and not measurement.identical and (outside or measurement.count <= _SMALL)
    most = max(task.samples, task.samples_beyond) if outside else task.samples
    return _row(
        task.pair,
        measurement,
        samples=samples_of(ours, theirs, most=most) if most else (),
        worst_elements=worst_elements(ours, theirs, most=task.worst) if look else (),
    )


def _within_budget(rows: list[Compared], usual: int) -> Iterator[Compared]:
    """The pairs beyond their limit are the ones people look at: the first of them keep a full picture, as far as the
    samples that all pairs share reach."""
    spare = _SAMPLES_IN_ALL
    for row in rows:
        extra = len(row.samples) - usual
        if extra > 0 and spare < _MOST_SAMPLES:
            row = row._replace(samples=thinned(row.samples, usual))
        elif extra > 0:
            spare -= extra
        yield row


_NO_NUMBERS = ("str", "object", "bytes")


def _kinds_differ(reference: str, candidate: str) -> Message | None:
    """Text and objects compare only with their own kind, bytes with bytes of their length: numpy pads with NUL."""
    if reference != candidate and (reference.startswith(_NO_NUMBERS) or candidate.startswith(_NO_NUMBERS)):
        return message("reason.kinds", reference=reference, candidate=candidate)
    return None


def _unmatched(pairing: Pairing) -> tuple[Unmatched, ...]:
    ours, theirs = pairing.only_in_reference, pairing.only_in_candidate
    our_names, their_names = (tuple(str(entry.key) for entry in entries) for entries in (ours, theirs))
    letters = [sum(map(len, names)) for names in (our_names, their_names)]
    hints = len(ours) * len(theirs) <= _MOST_HINTS and letters[0] * letters[1] <= _MOST_LETTERS

    def near(key: Key, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(near_names(str(key), names)) if hints else ()

    return (
        *(Unmatched(entry.key, "reference", near(entry.key, their_names)) for entry in ours),
        *(Unmatched(entry.key, "candidate", near(entry.key, our_names)) for entry in theirs),
    )
