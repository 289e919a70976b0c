"""What a pass adds up while it walks over a pair, and how the sums become a Measurement.

Every way of walking (numpy blocks, the C kernel, the rescaled second look) fills the same `Totals`, so the
definitions of the statistics stand here and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from reprod_log.measure.measurement import SIZES, Measurement, SideSummary, Worst
from reprod_log.messages import Note

_NAN = math.nan
# Beyond these, squares of float64 values leave the range of float64.
HUGE, TINY = 2.0**480, 2.0**-440
# Below this ratio of the norms, the formula without cancellation cancels after all; then the dot product is used.
NORM_RATIO = 1.0 / 16


@dataclass(slots=True)
class SideTotals:
    """Sums over the finite values of one side, divided by 2^exponent (magnitudes for complex values)."""

    finite: int = 0
    nan: int = 0
    inf: int = 0
    min: float = math.inf
    max: float = -math.inf
    sum: float = 0.0
    squares: float = 0.0
    deviations: float = 0.0
    """Sum of the squared distances from the mean."""
    exponent: int = 0

    def add(self, count: int, *, low: float, high: float, total: float, squares: float, deviations: float) -> None:
        """Take in a block of finite values; the squared deviations are merged as Chan and others (1979) do."""
        if self.finite:
            gap = total / count - self.sum / self.finite
            self.deviations += deviations + gap * gap * (self.finite * count / (self.finite + count))
        else:
            self.deviations = deviations
        self.finite += count
        self.sum += total
        self.squares += squares
        self.min = min(self.min, low)
        self.max = max(self.max, high)

    @property
    def abs_max(self) -> float:
        """The largest magnitude; 0 where nothing is finite."""
        return max(-self.min, self.max) if self.finite else 0.0

    def summary(self) -> SideSummary:
        """The side's statistics in the units of the array; std is that of the values themselves (divisor n)."""
        n, e, low, high = self.finite, self.exponent, self.min, self.max
        if n == 0:
            return SideSummary(_NAN, _NAN, _NAN, _NAN, _NAN, _NAN, self.nan, self.inf)
        mean = scaled(self.sum / n, e)
        return SideSummary(
            min=low,
            max=high,
            # Rounding may put the mean of equal values one step outside of them.
            mean=low if mean < low else high if mean > high else mean,
            std=scaled(math.sqrt(self.deviations / n), e) if low < high else 0.0,
            rms=scaled(math.sqrt(self.squares / n), e),
            abs_max=max(-low, high),
            nan=self.nan,
            inf=self.inf,
        )


@dataclass(slots=True)
class Totals:
    """Counts, extremes and sums over one pair. `pairs` are the positions where both sides are finite."""

    count: int
    pairs: int = 0
    equal_infinities: int = 0
    nan_both: int = 0
    mismatched: int = 0
    differing: int = 0
    beyond: int = 0
    max_abs: float = -math.inf
    min_abs: float = math.inf
    sum_abs: float = 0.0
    squares: float = 0.0
    exponent: int = 0
    """`sum_abs` is divided by 2^exponent, `squares` by 4^exponent."""
    max_rel: float = 0.0
    sum_rel: float = 0.0
    reference_squares: float = 0.0
    candidate_squares: float = 0.0
    reference_exponent: int = 0
    """`reference_squares` is divided by 4^this. A side's own exponent may be another one: a value whose partner is not
    finite belongs to its side, but to no pair."""
    candidate_exponent: int = 0
    dot: float | None = None
    """Sum of the products, divided by 2^(both exponents of the pairs); only taken where the cosine needs it."""
    ulp_max: float = 0.0
    ulp_sum: float = 0.0
    ulp_per_element: int = 1
    """Components of an element that each have their own ULP distance: 2 for complex values."""
    worst_at: int | None = None
    octaves: dict[int, int] = field(default_factory=dict)
    reference: SideTotals = field(default_factory=SideTotals)
    candidate: SideTotals = field(default_factory=SideTotals)

    def offer_worst(self, difference: float, at: int) -> None:
        """Remember the position if its difference is larger than all before."""
        if difference > self.max_abs:
            self.max_abs, self.worst_at = difference, at

    def add_octaves(self, counts: Mapping[int, int]) -> None:
        for octave, n in counts.items():
            self.octaves[octave] = self.octaves.get(octave, 0) + n

    @property
    def out_of_range(self) -> bool:
        """Whether a square may have overflowed or vanished, so that the sums have to be taken again, rescaled."""
        for size in (self.reference.abs_max, self.candidate.abs_max, self.max_abs):
            if size > HUGE or 0.0 < size < TINY:
                return True
        # The sizes of the sides say nothing about their pairs where some values have no partner.
        return self.mismatched > 0 and min(self.reference_squares, self.candidate_squares) < TINY * TINY

    @property
    def needs_dot(self) -> bool:
        """Whether the two norms are so far apart that the cosine needs the dot product."""
        if self.reference_squares == 0.0 or self.candidate_squares == 0.0:
            return False
        a, b = self.norms
        return min(a, b) < NORM_RATIO * max(a, b)

    @property
    def norms(self) -> tuple[float, float]:
        """Both norms over the pairs, divided by two to the power of the larger of the two exponents."""
        common = max(self.reference_exponent, self.candidate_exponent)
        return (
            scaled(math.sqrt(self.reference_squares), self.reference_exponent - common),
            scaled(math.sqrt(self.candidate_squares), self.candidate_exponent - common),
        )


def scaled(value: float, exponent: int) -> float:
    """value * 2^exponent, infinite where float64 ends."""
    if exponent == 0:
        return value
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)


def finish(
    totals: Totals,
    *,
    names: tuple[str, str],
    worst: Worst | None,
    limit: float | None,
    has_ulp: bool,
    notes: tuple[Note, ...],
) -> Measurement:
    """The Measurement that the totals amount to."""
    n = totals.pairs + totals.equal_infinities
    return Measurement(
        count=totals.count,
        reference_dtype=names[0],
        candidate_dtype=names[1],
        differing=totals.differing,
        # Two empty arrays differ by nothing; of values without one comparable pair the difference is unknown.
        **(_sizes(totals, n) if n else dict.fromkeys(SIZES, _NAN if totals.count else 0.0)),
        max_ulp=_ulp(totals, totals.ulp_max, 1) if has_ulp else None,
        mean_ulp=_ulp(totals, totals.ulp_sum, n * totals.ulp_per_element) if has_ulp else None,
        reference=totals.reference.summary(),
        candidate=totals.candidate.summary(),
        worst=worst,
        nan_both=totals.nan_both,
        nonfinite_mismatched=totals.mismatched,
        limit=limit,
        beyond_limit=None if limit is None else totals.beyond,
        octaves=tuple(sorted(totals.octaves.items())),
        notes=notes,
        estimate=None,
        rows=(),
    )


def _sizes(totals: Totals, n: int) -> dict[str, float]:
    """Every size of the difference of `n` comparable elements."""
    e = totals.exponent
    # Of values that differ, no size may be rounded down to "no difference".
    least = 5e-324 if totals.differing else 0.0
    # A mean or RMS of equal numbers may come out one rounding above them; no metric may pass or fail by that.
    most, most_rel = max(totals.max_abs, least), max(totals.max_rel, least)
    return {
        "max_abs": most,
        "mean_abs": max(min(scaled(totals.sum_abs / n, e), most), least),
        "min_abs": totals.min_abs,
        "rmse": max(min(scaled(math.sqrt(totals.squares / n), e), most), least),
        "max_rel": most_rel,
        "mean_rel": max(min(totals.sum_rel / n, most_rel), least),
        "rel_l2": max(_relative_l2(totals), least),
        "cosine_distance": _cosine_distance(totals),
    }


def _ulp(totals: Totals, total: float, count: int) -> float:
    if totals.pairs + totals.equal_infinities:
        return total / count
    return _NAN if totals.count else 0.0


def _relative_l2(totals: Totals) -> float:
    difference, reference = math.sqrt(totals.squares), math.sqrt(totals.reference_squares)
    if difference == 0.0:
        return 0.0
    if reference == 0.0:
        return math.inf
    return scaled(difference / reference, totals.exponent - totals.reference_exponent)


def _cosine_distance(totals: Totals) -> float:
    if totals.differing == 0:
        return 0.0
    # Something differs, so at most one of the two is all zero.
    if totals.reference_squares == 0.0 or totals.candidate_squares == 0.0:
        return 1.0
    if totals.dot is not None:
        cosine = totals.dot / math.sqrt(totals.reference_squares) / math.sqrt(totals.candidate_squares)
        return min(max(1.0 - cosine, 0.0), 2.0)
    a, b = totals.norms
    common = max(totals.reference_exponent, totals.candidate_exponent)
    d = scaled(math.sqrt(totals.squares), totals.exponent - common)
    # As (d - gap)(d + gap) it loses no digits where the angle is small.
    gap = abs(a - b)
    return min(max((d - gap) * (d + gap) / (2.0 * a * b), 0.0), 2.0)
