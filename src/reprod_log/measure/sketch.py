"""Pairs whose values were not both recorded: exact when hashes are equal, else estimated from sketches, else bounded.

From two sketches the L2 norm of the difference is estimated, and with it `rel_l2` and `rmse`. Everything else is
bounded: mean |d| lies between |d| / n and the root mean square, max |d| between the root mean square and |d|; the
statistics that are recorded beside the sketches narrow both from below. What is only bounded is NaN in the measurement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from reprod_log.errors import RecordingError
from reprod_log.measure.measurement import Estimate, Measurement, SideSummary
from reprod_log.messages import Code, Foreign, Message, Number, message
from reprod_log.pairing import Pair
from reprod_log.recording import Entry
from reprod_log.recording.entry import content_hash
from reprod_log.recording.sketch import Sketch, SketchOrder, sketch_of, stored_sketch
from reprod_log.recording.summary import Summary, summarise

_ERRORS_WIDE = 3
"""Bounds are this many standard errors wide: 99.7 % of estimates are nearer to the truth."""
_ROUNDING = 2.0**-52


def has_values(pair: Pair) -> bool:
    """Whether both sides can be measured element by element."""
    return pair.reference.detail == "full" and pair.candidate.detail == "full"


def shapes_differ(reference: Entry, candidate: Entry, *, is_reverse: bool = False) -> Message:
    """Why two entries cannot be compared; shapes in reverse are a sign of a transposition."""
    shapes = {"reference": Code(list(reference.shape)), "candidate": Code(list(candidate.shape))}
    return message("reason.shapes.reversed", **shapes) if is_reverse else message("reason.shapes", **shapes)


def estimate_pair(pair: Pair) -> Measurement | Message:
    """What is known of a pair without the values of both sides, or the reason why nothing is."""
    reference, candidate = pair.reference, pair.candidate
    shape = _viewed_shape(pair)
    if shape != reference.shape:
        return shapes_differ(reference, candidate)
    try:
        if _same_hash(pair) and not _contradicted(pair):
            return _equal(pair)
        if "summary" in (reference.detail, candidate.detail):
            return _from_statistics(pair)
        ours, theirs = _sketches(pair)
    except RecordingError as error:
        return message("text", text=Foreign(error))
    if ours.made != theirs.made:
        return message("reason.sketches_differ", reference=_described(ours), candidate=_described(theirs))
    if ours.form != theirs.form:
        return message("reason.sketch_orders")
    return _from_sketches(pair, ours, theirs)


def estimate_notes(measurements: Sequence[Measurement | None]) -> tuple[Message, ...]:
    """What a reader should know about numbers that are not measured: how many, which, and how sure."""
    estimates = [one.estimate for one in measurements if one is not None and one.estimate is not None]
    errors = [one.error for one in estimates if one.source == "sketches"]
    notes = []
    if errors:
        notes.append(
            message(
                "note.measure.sketches",
                count=len(errors),
                total=len(measurements),
                least=Number(min(errors), ".1%"),
                most=Number(max(errors), ".1%"),
                errors=_ERRORS_WIDE,
            )
        )
        # Both in one bucket, with one sign: the error comes from the number of buckets.
        notes.append(message("note.measure.swaps", chance=round(1 / min(errors) ** 2)))
    bare = len(estimates) - len(errors)
    if bare:
        notes.append(message("note.measure.statistics", count=bare, total=len(measurements)))
    return tuple(notes)


def _viewed_shape(pair: Pair) -> tuple[int, ...]:
    shape, view = pair.candidate.shape, pair.view
    if view is not None and view.axes is not None:
        shape = tuple(shape[axis] for axis in view.axes)
    return shape if view is None or view.shape is None else view.shape


def _described(sketch: Sketch) -> Message:
    made = sketch.made
    return message("reason.sketch", size=made.size, seed=made.seed, version=made.version)


# by hash


def _same_hash(pair: Pair) -> bool:
    if pair.view is not None and pair.view.axes is not None:
        return False
    first, second = _hash(pair.reference, pair.candidate), _hash(pair.candidate, pair.reference)
    return bool(first) and first == second


def _hash(entry: Entry, other: Entry) -> str:
    """The hash of an entry; where its values are there it is taken of them, whatever the file claims."""
    if entry.detail != "full":
        return entry.hash
    return content_hash(entry.array()) if other.hash else ""


def _contradicted(pair: Pair) -> bool:
    """Whether the sketches or statistics of two tensors with one hash differ: one of the files claims what is wrong."""
    reference, candidate = pair.reference, pair.candidate
    if "summary" in (reference.detail, candidate.detail):
        ours, theirs = _summary(reference), _summary(candidate)
        # Sums of the same values may be taken in another order.
        names = ("min", "max", "abs_max", "nan", "inf")
        return ours is not None and theirs is not None and not all(_same(ours[n], theirs[n]) for n in names)
    ours_sketch, theirs_sketch = _sketches(pair)
    alike = ours_sketch.made == theirs_sketch.made and ours_sketch.form == theirs_sketch.form
    return alike and not np.array_equal(ours_sketch.values, theirs_sketch.values, equal_nan=True)


def _same(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)


def _equal(pair: Pair) -> Measurement:
    """The measurement of two tensors with the same bytes, from the statistics of either."""
    summary = _summary(pair.reference) or _summary(pair.candidate)
    if summary is None:
        raise RecordingError(f"{str(pair.reference.key)!r} has neither values nor statistics in either recording")
    side = _side(summary)
    count = math.prod(pair.reference.shape)
    zero = 0.0 if count > side.nan or not count else math.nan
    has_ulp = pair.reference.dtype.startswith(("float", "bfloat"))
    return _measurement(pair, side, side, zero)._replace(
        differing=0,
        max_ulp=zero if has_ulp else None,
        mean_ulp=zero if has_ulp else None,
        nan_both=side.nan,
        notes=(message("note.measure.equal_by_hash"),),
    )


def _side(summary: Summary) -> SideSummary:
    return SideSummary(**summary)  # type: ignore[arg-type]  # its counts are whole numbers


def _measurement(pair: Pair, ours: SideSummary, theirs: SideSummary, size: float) -> Measurement:
    """A measurement whose differences are all `size`, for the caller to fill in what is known."""
    reference, candidate = pair.reference, pair.candidate
    dtypes = reference.dtype, candidate.dtype
    return Measurement.of_one_size(math.prod(reference.shape), dtypes, size, (ours, theirs))


def _summary(entry: Entry) -> Summary | None:
    found = summarise(entry.array()) if entry.detail == "full" else entry.meta.get("summary")
    return None if found is None else dict(found)


# by sketches


def _sketches(pair: Pair) -> tuple[Sketch, Sketch]:
    """The sketches of both sides; a side with values is sketched now, in the order of the other."""
    reference, candidate = pair.reference, pair.candidate
    if reference.detail == "full":
        theirs = _turned(stored_sketch(candidate), pair)
        return sketch_of(reference.array(), form=theirs.form, made=theirs.made), theirs
    ours = stored_sketch(reference)
    if candidate.detail == "full":
        array = candidate.array() if pair.view is None else pair.view.of(candidate.array())
        return ours, sketch_of(array, form=ours.form, made=ours.made)
    return ours, _turned(stored_sketch(candidate), pair)


def _turned(sketch: Sketch, pair: Pair) -> Sketch:
    """The candidate's sketch with its form as it is called in the reference's arrangement of axes."""
    view = pair.view
    if view is None or view.axes is None:
        return sketch
    axes = sketch.form.axes or tuple(range(len(view.axes)))
    form = SketchOrder(tuple(view.axes.index(axis) for axis in axes), sketch.form.parts)
    return replace(sketch, form=form)


def _from_sketches(pair: Pair, ours: Sketch, theirs: Sketch) -> Measurement | Message:
    left, right = _side(ours.summary), _side(theirs.summary)
    count = math.prod(pair.reference.shape)
    nan_both, mismatched = 0, 0
    if ours.nonfinite or theirs.nonfinite:
        if "of parts" in (ours.nonfinite, theirs.nonfinite):
            return message("reason.sketch_parts")
        same = ours.nonfinite == theirs.nonfinite
        nan_both = left.nan if same else 0
        mismatched = 0 if same else max(1, abs(left.nan - right.nan) + abs(left.inf - right.inf))
    norm, error = _norm_of_difference(ours, theirs)
    sizes = _norm(left, count), _norm(right, count)
    if norm <= _unseen(sizes, max(count, 1), ours.made.size):
        # Swap two elements, or two rows, that go to the same buckets: the sketch stays as it was.
        if _fewest_differing(pair) > 0 or ours.exact != theirs.exact:
            return message("reason.sketch_collision")
        if pair.reference.dtype != pair.candidate.dtype and not ours.exact:
            return message("reason.sketch_dtypes", reference=pair.reference.dtype, candidate=pair.candidate.dtype)
    comparable = max(count - nan_both - mismatched, 1)
    bounds = _bounds(norm, error, ours.made.size, (left, right), sizes, comparable)
    return _measurement(pair, left, right, math.nan)._replace(
        differing=_fewest_differing(pair),
        rmse=norm / math.sqrt(comparable),
        rel_l2=_share(norm, sizes[0]),
        nan_both=nan_both,
        nonfinite_mismatched=mismatched,
        estimate=Estimate("sketches", error, bounds),
    )


def _norm_of_difference(ours: Sketch, theirs: Sketch) -> tuple[float, float]:
    """The estimated norm, and its relative standard error.

    Where the difference is spread over the tensor, the error is that of the size. Where a few elements are most of it,
    few buckets carry it, and two of them in one bucket may add up or cancel: the error is then larger, and the share of
    the largest buckets tells by how much.
    """
    difference = (ours.values - theirs.values).reshape(-1)
    largest = float(np.abs(difference).max(initial=0.0))
    if not largest:
        return 0.0, ours.made.error
    shares = (difference / largest) ** 2
    total = float(shares.sum())
    crowded = math.sqrt(2 / 3 * float((shares**2).sum())) / total
    return largest * math.sqrt(total), max(ours.made.error, crowded / 2)


def _fewest_differing(pair: Pair) -> int:
    """1 when different hashes mean different values, which they do not across dtypes or arrangements; else -1."""
    same_kind = pair.reference.dtype == pair.candidate.dtype and (pair.view is None or pair.view.axes is None)
    if not same_kind:
        return -1
    first, second = _hash(pair.reference, pair.candidate), _hash(pair.candidate, pair.reference)
    return 1 if first and second and first != second else -1


def _unseen(sizes: tuple[float, float], count: int, buckets: int) -> float:
    """The largest difference that sketches may not show: sums of n / k values in float64 round."""
    known = [size for size in sizes if math.isfinite(size)]
    return _ROUNDING * math.sqrt(count / buckets) * max(known, default=math.inf)


def _norm(side: SideSummary, count: int) -> float:
    return side.rms * math.sqrt(count - side.nan - side.inf)


def _share(norm: float, size: float) -> float:
    return norm / size if size else (0.0 if norm == 0 else math.inf)


def _bounds(
    norm: float,
    error: float,
    buckets: int,
    sides: tuple[SideSummary, SideSummary],
    sizes: tuple[float, float],
    comparable: int,
) -> dict[str, tuple[float, float]]:
    rounding = _unseen(sizes, comparable, buckets)
    # The square of the norm is what is estimated, with twice the relative error.
    spread = 2 * _ERRORS_WIDE * error
    times = math.sqrt(1 + spread + spread * spread)
    low, high = max(norm / times - rounding, 0.0), norm * times + rounding
    root = math.sqrt(comparable)
    mean, peak = _apart(*sides, rounding / root)
    rmse = (max(low / root, mean), high / root)
    return {
        "rel_l2": (_share(low, sizes[0]), _share(high, sizes[0])),
        "rmse": rmse,
        "mean_abs": (max(low / comparable, mean), high / root),
        "max_abs": (max(rmse[0], peak), high),
        "min_abs": (0.0, high / root),
    }


def _apart(left: SideSummary, right: SideSummary, rounding: float) -> tuple[float, float]:
    """What the means differ by (the mean of |d| is no less), and the extremes (the maximum of |d| is no less)."""
    if left.nan or left.inf or right.nan or right.inf:
        # The statistics leave these out, each side its own.
        return 0.0, 0.0
    mean = abs(left.mean - right.mean) - 4 * rounding
    peak = max(abs(left.max - right.max), abs(left.min - right.min))
    return (mean if mean > 0 else 0.0), (peak if peak > 0 else 0.0)


# by statistics


def _from_statistics(pair: Pair) -> Measurement:
    """Bounds from below only: statistics can prove that two tensors differ, never that they agree."""
    found = _summary(pair.reference), _summary(pair.candidate)
    if found[0] is None or found[1] is None:
        raise RecordingError(f"{str(pair.reference.key)!r} has neither values nor statistics in one of the recordings")
    left, right = _side(found[0]), _side(found[1])
    count = math.prod(pair.reference.shape)
    size = _norm(left, count)
    mean, peak = _apart(left, right, _ROUNDING * math.sqrt(count) * max(left.rms, right.rms))
    finite = not (left.nan or left.inf or right.nan or right.inf)
    rms = abs(left.rms - right.rms) - 1e-12 * left.rms if finite else 0.0
    low = max(mean, rms if rms > 0 else 0.0)
    bounds = {
        "rel_l2": (_share(low * math.sqrt(count), size) if math.isfinite(size) else 0.0, math.inf),
        "rmse": (low, math.inf),
        "mean_abs": (mean, math.inf),
        "max_abs": (max(low, peak), math.inf),
    }
    return _measurement(pair, left, right, math.nan)._replace(
        differing=_fewest_differing(pair),
        nonfinite_mismatched=abs(left.nan - right.nan) + abs(left.inf - right.inf),
        estimate=Estimate("statistics", math.nan, bounds),
    )
