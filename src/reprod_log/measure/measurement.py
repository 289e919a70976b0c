"""What one pass over a pair of arrays finds: numbers, no opinion.

The values are named tuples: of ten thousand small tensors they take longer to make than to measure, and a tuple is made
in a third of the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reprod_log.messages import Note
from reprod_log.recording.plain import from_plain, to_plain


class SideSummary(NamedTuple):
    """Statistics of one side's finite values, and how many values were not finite.

    `min`, `max`, `mean`, `std` (divisor n), `rms` and `abs_max` are NaN when there is no finite value.
    For complex arrays they describe the magnitudes.
    """

    min: float
    max: float
    mean: float
    std: float
    rms: float
    abs_max: float
    nan: int = 0
    inf: int = 0


class Worst(NamedTuple):
    """The element with the largest absolute difference: where it is and both values."""

    index: tuple[int, ...]  # type: ignore[assignment]  # the method of tuples is not missed
    reference: float | complex | int | bool | str
    candidate: float | complex | int | bool | str


@dataclass(frozen=True)
class Estimate:
    """What stands for a measurement when the values of a side were not recorded, and how sure it is."""

    source: str
    """'sketches', or 'statistics' when not even that is there."""
    error: float
    """Relative standard error of `rel_l2` and `rmse`; NaN when they are not known at all."""
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """For each metric that something is known of: between which numbers it lies (three errors wide)."""


SIZES = ("max_abs", "mean_abs", "min_abs", "rmse", "max_rel", "mean_rel", "rel_l2", "cosine_distance")
"""The fields of a measurement that are sizes of the difference."""


class Measurement(NamedTuple):
    """All statistics of `candidate - reference`, accumulated in float64.

    The statistics of the difference cover the *comparable* elements: both finite, or the same
    infinity on both sides (difference 0). Everything else is counted in `nan_both` and
    `nonfinite_mismatched` and left to the verdict, which fails it unless the policy allows it. With no comparable
    element the statistics are NaN; two empty arrays have count 0 and all differences 0.
    """

    count: int  # type: ignore[assignment]  # the method of tuples is not missed
    reference_dtype: str
    candidate_dtype: str
    differing: int
    """Comparable elements that are not equal; of an estimate the fewest that can be, -1 when nothing is known."""
    max_abs: float
    mean_abs: float
    min_abs: float
    rmse: float
    max_rel: float
    """Largest |difference| / |reference|; inf where the reference is 0 and the candidate is not, or beyond float64."""
    mean_rel: float
    rel_l2: float
    """‖difference‖ / ‖reference‖; inf where the reference is all zero and the candidate is not."""
    cosine_distance: float
    """1 − cos of the angle between the two, computed without cancellation."""
    max_ulp: float | None
    """Largest distance in units of the last place; None unless both sides share one floating dtype."""
    mean_ulp: float | None
    reference: SideSummary
    candidate: SideSummary
    worst: Worst | None
    nan_both: int = 0
    """Positions that are NaN on both sides."""
    nonfinite_mismatched: int = 0
    """Positions where a NaN or infinity of one side has no equal on the other."""
    limit: float | None = None
    """The absolute limit that `beyond_limit` was counted for."""
    beyond_limit: int | None = None
    """Comparable elements with |difference| > limit."""
    octaves: tuple[tuple[int, int], ...] = ()
    """Histogram of the non-zero |difference|: (e, n) means n of them lie in [2^e, 2^(e+1))."""
    notes: tuple[Note, ...] = ()
    """What was done to make the two comparable, e.g. 'float16 against float32, compared in float64'."""
    estimate: Estimate | None = None
    """There when the numbers are estimates: `rel_l2` and `rmse` are estimated, what is only bounded is NaN."""
    rows: tuple[tuple[str, float], ...] = ()
    """Numbers that need whole rows along the last axis, by metric: only those that a limit asks for are there."""

    @classmethod
    def of_one_size(
        cls, count: int, dtypes: tuple[str, str], size: float, sides: tuple[SideSummary, SideSummary]
    ) -> Measurement:
        """A measurement all of whose differences are `size`: 0 for none, NaN for unknown ones."""
        sizes: dict[str, Any] = dict.fromkeys(SIZES, size)
        return cls(
            count=count,
            reference_dtype=dtypes[0],
            candidate_dtype=dtypes[1],
            differing=-1,
            **sizes,
            max_ulp=None,
            mean_ulp=None,
            reference=sides[0],
            candidate=sides[1],
            worst=None,
        )

    @property
    def comparable(self) -> int:
        """How many elements entered the statistics of the difference."""
        return self.count - self.nan_both - self.nonfinite_mismatched

    @property
    def share_beyond(self) -> float | None:
        """Share of the comparable elements beyond the limit that was asked for; NaN if none is comparable."""
        if self.beyond_limit is None:
            return None
        if self.comparable == 0:
            return math.nan if self.count else 0.0
        return self.beyond_limit / self.comparable

    @property
    def identical(self) -> bool:
        """Whether every element is the same on both sides and none is NaN."""
        return self.comparable == self.count and self.differing == 0 and self.estimate is None

    @staticmethod
    def brief() -> tuple[str, ...]:
        """What a file leaves out where there is none: most are measured, and by elements."""
        return "estimate", "rows"

    def contradictions(self) -> Iterator[str]:
        """What cannot be true of any pair of arrays. A file can be edited; a verdict must not stand on nonsense."""
        return _contradictions(self)

    def to_dict(self) -> dict[str, Any]:
        return to_plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Measurement:
        return from_plain(cls, data)


_CLOSE = 1e-6
"""How far, relative to themselves, numbers that were summed in different orders may be from their exact relation."""


def _contradictions(one: Measurement) -> Iterator[str]:
    counts = (one.count, one.nan_both, one.nonfinite_mismatched, one.comparable, one.beyond_limit or 0)
    if min(counts) < 0 or max(counts) > one.count:
        yield f"counts {counts}"
    if not (-1 if one.estimate is not None else 0) <= one.differing <= one.comparable:
        yield f"{one.differing} of {one.comparable} differ"
    sizes = {name: getattr(one, name) for name in (*SIZES, "max_ulp", "mean_ulp")}
    named = (*sizes.items(), *one.rows)
    yield from (f"{name} {value}" for name, value in named if value is not None and value < 0)
    for small, large in (("min_abs", "mean_abs"), ("mean_abs", "rmse"), ("rmse", "max_abs")):
        if math.isfinite(sizes[small]) and sizes[small] > sizes[large] * (1 + _CLOSE) + _TINIEST:
            yield f"{small} {sizes[small]} above {large} {sizes[large]}"
    # Differences of longdouble may be too small for the float64 that they are kept in.
    exact = one.estimate is None and not {"longdouble", "float128", "complex256"} & {
        one.reference_dtype,
        one.candidate_dtype,
    }
    if exact and one.comparable and (one.differing == 0) != (one.max_abs == 0):
        yield f"{one.differing} differ by at most {one.max_abs}"
    yield from _worst_contradiction(one)
    for side in (one.reference, one.candidate):
        if side.nan < 0 or side.inf < 0 or side.nan + side.inf > one.count:
            yield f"{side.nan} NaN and {side.inf} infinities of {one.count}"
        if side.min > side.max or side.std < 0 or side.rms < 0 or side.abs_max < 0:
            yield f"statistics {tuple(side)}"
    for name, (low, high) in () if one.estimate is None else one.estimate.bounds.items():
        if not 0 <= low <= high:
            yield f"{name} between {low} and {high}"


def _worst_contradiction(one: Measurement) -> Iterator[str]:
    worst = one.worst
    if worst is None or isinstance(worst.reference, str) or isinstance(worst.candidate, str):
        return
    values = complex(worst.reference), complex(worst.candidate)
    apart, room = abs(values[0] - values[1]), _CLOSE * (one.max_abs + max(map(abs, values)) * _CLOSE)
    if math.isfinite(apart) and apart > one.max_abs + room:
        yield f"elements {worst.reference} and {worst.candidate} that differ by at most {one.max_abs}"


_TINIEST = 1e-300
