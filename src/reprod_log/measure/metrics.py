"""Metrics by name: each turns a Measurement into the one number that a limit is compared with.

A metric of our own is a row of the table at the end: its description says what the number is, when to use it and why;
its function gives NaN where the metric does not exist for the pair. `NaN <= limit` is false, so nothing passes by
absence. Other packages add a metric with an entry point of the group "reprod_log.metrics" whose name is the metric's
and which points to a module with such a docstring and a function `value(measurement)`. They cannot take over our names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from types import ModuleType
from typing import cast

import numpy as np

from reprod_log.errors import UsageError, listed
from reprod_log.measure.dtypes import Array, is_floating
from reprod_log.measure.measurement import Measurement

GROUP = "reprod_log.metrics"


@dataclass(frozen=True)
class Metric:
    """A named number of a measurement; smaller is better."""

    name: str
    description: str
    """What it is, when to use it and why."""
    value: Callable[[Measurement], float]
    of_rows: Callable[[Array, Array], float] | None = None
    """The number itself, from the values of both sides, where it needs whole rows along the last axis."""

    @property
    def summary(self) -> str:
        """One line: what it is."""
        return self.description.splitlines()[0]


def names() -> tuple[str, ...]:
    """The names of all metrics, those of other packages included, in alphabetical order."""
    return tuple(sorted({*_OWN, *_foreign()}))


@lru_cache(maxsize=64)
def metric(name: str) -> Metric:
    """The metric of this name; an unknown name raises UsageError and says which names come near."""
    if name in _OWN:
        return _OWN[name]
    foreign = _foreign()
    if name in foreign:
        return _checked(name, foreign[name]())
    near = get_close_matches(name, names(), n=3, cutoff=0.5)
    hint = f"Did you mean {listed(near)}?" if near else f"There are {', '.join(names())}."
    raise UsageError(f"There is no metric {name!r}. {hint}")


def _foreign() -> dict[str, Callable[[], ModuleType]]:
    """How to load each metric of another package."""
    from importlib.metadata import entry_points  # 10 ms to import, and rarely needed

    return {point.name: point.load for point in entry_points(group=GROUP) if point.name not in _OWN}


def _checked(name: str, module: ModuleType) -> Metric:
    value = getattr(module, "value", None)
    description = (module.__doc__ or "").strip()
    if not callable(value) or not description:
        raise UsageError(
            f"The metric {name!r} (the entry point {name!r} of {GROUP!r}) needs a docstring and a function "
            "value(measurement)."
        )
    return Metric(name, description, cast("Callable[[Measurement], float]", value))


def rows_measured(reference: Array, candidate: Array, names: Iterable[str]) -> dict[str, float]:
    """Those of the metrics that need whole rows, from the values of both sides."""
    asked = ((name, metric(name).of_rows) for name in names)
    return {name: of_rows(reference, candidate) for name, of_rows in asked if of_rows is not None}


def _logits(reference: Array, candidate: Array) -> tuple[Array, Array] | None:
    """Both sides as rows in float64; None unless they are finite logits of at least two classes."""
    if not (is_floating(reference) and is_floating(candidate)) or not reference.ndim or reference.shape[-1] < 2:
        return None
    ours, theirs = (one.astype(np.float64).reshape(-1, one.shape[-1]) for one in (reference, candidate))
    # A forbidden class is minus infinity on both sides; NaN and plus infinity are not logits.
    usable = all(bool((one < np.inf).all() and (one > -np.inf).any(axis=-1).all()) for one in (ours, theirs))
    return (ours, theirs) if ours.size and usable else None


def _log_softmax(rows: Array) -> Array:
    shifted = rows - rows.max(axis=-1, keepdims=True)
    found: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found


def _divergence(reference: Array, candidate: Array) -> float:
    rows = _logits(reference, candidate)
    if rows is None:
        return math.nan
    ours, theirs = map(_log_softmax, rows)
    share = np.exp(ours)
    with np.errstate(invalid="ignore"):
        # What the reference gives no probability adds nothing, whatever the candidate gives it.
        terms = np.where(share > 0, share * (ours - theirs), 0.0)
    # Rounding can bring a divergence of equal rows just below 0.
    return max(float(terms.sum(axis=-1).max()), 0.0)


def _disagreement(most: int) -> Callable[[Array, Array], float]:
    """The share of rows whose `most` largest elements are not the same ones."""

    def of(reference: Array, candidate: Array) -> float:
        rows = _logits(reference, candidate)
        if rows is None or rows[0].shape[-1] <= most:
            return math.nan
        ours, theirs = (np.sort(np.argsort(-one, axis=-1, kind="stable")[:, :most], axis=-1) for one in rows)
        return float(np.mean(np.any(ours != theirs, axis=-1)))

    return of


def _differing(measurement: Measurement) -> float:
    """NaN if no element is comparable, or if it is an estimate."""
    if (measurement.count and not measurement.comparable) or measurement.estimate is not None:
        return math.nan
    return float(measurement.differing)


def _asked_for(name: str) -> Callable[[Measurement], float]:
    return lambda one: dict(one.rows).get(name, math.nan)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


_TABLE: tuple[tuple[str, Callable[[Measurement], float], str], ...] = (
    (
        "cosine",
        lambda one: one.cosine_distance,
        """Cosine distance, 1 - cos of the angle between the two tensors as vectors.

When: gradients and embeddings, whose direction matters more than their length; quantised models.
Why: it does not see a constant factor, so it tells a wrong direction from a wrong scale; never use it alone.""",
    ),
    (
        "differing",
        _differing,
        """Number of elements that are not equal.

When: data that must be equal bit for bit: token ids, masks, labels, text, shuffled indices.
Why: for these there is no small difference; it also exists for text and objects, which cannot be subtracted.""",
    ),
    (
        "max_abs",
        lambda one: one.max_abs,
        """Largest absolute difference of any element.

When: values of a known, fixed size: normalised images, probabilities, losses, integers that must be equal.
Why: nothing hides in an average: one wrong element among millions is seen.""",
    ),
    (
        "max_rel",
        lambda one: one.max_rel,
        """Largest relative difference of any element, |candidate - reference| / |reference|.

When: values that span many sizes and stay away from zero: learning rates, scales, variances.
Why: each element is held against its own size; for values around zero it is too strict, since rounding of sums that
cancel is large beside the result, and it is infinite where the reference is 0 and the candidate is not.""",
    ),
    (
        "max_ulp",
        lambda one: _or_nan(one.max_ulp),
        """Largest distance in units of the last place: how many representable numbers lie between the two.

When: the same dtype on both sides and nearly the same operations: a port of one kernel, a change of compiler flags.
Why: 1 or 2 means 'rounded differently' whatever the size of the number and the dtype; after sums that cancel it is huge
without anything being wrong. It does not exist across dtypes or for integers.""",
    ),
    (
        "mean_abs",
        lambda one: one.mean_abs,
        """Mean absolute difference.

When: the classic check of a forward pass or a loss (1e-6 for float32), on values of about size 1.
Why: it is steady, because rounding averages out; but an error in few elements of a large tensor nearly vanishes in
it, so it is best used together with max_abs or rel_l2.""",
    ),
    (
        "mean_rel",
        lambda one: one.mean_rel,
        """Mean relative difference, |candidate - reference| / |reference|.

When: like max_rel, where single elements near zero may be off.
Why: an average of ratios shows a constant factor between the two sides at once.""",
    ),
    (
        "mean_ulp",
        lambda one: _or_nan(one.mean_ulp),
        """Mean distance in units of the last place.

When: like max_ulp, on tensors where some elements cancel.
Why: it says how much of the precision of the dtype is used up on average, for every dtype on the same scale.""",
    ),
    (
        "min_abs",
        lambda one: one.min_abs,
        """Smallest absolute difference of any element.

When: only to read reports in the classic form, which show it.
Why: it is the weakest of all: one equal element makes it 0, whatever the others do.""",
    ),
    (
        "nonfinite",
        lambda one: float(one.nonfinite_mismatched),
        """Positions where a NaN or infinity of one side has no equal on the other.

When: always, with limit 0, where both sides may overflow: masks, logarithms, mixed precision.
Why: the other metrics cover only values that can be subtracted; this one counts what they leave out. NaN on both
sides is not counted here: it is not a mismatch, and is judged separately.""",
    ),
    (
        "rel_l2",
        lambda one: one.rel_l2,
        """Relative L2 difference, |candidate - reference| / |reference| as norms of the whole tensor.

When: activations, gradients and weights of any size; the first choice when no scale is known.
Why: it does not depend on the scale of the tensor nor on its number of elements, and elements near zero do not upset
it; it is infinite where the reference is all zero and the candidate is not.""",
    ),
    (
        "rmse",
        lambda one: one.rmse,
        """Root of the mean squared difference.

When: values of a known size where a few large differences matter more than many small ones.
Why: it stands between mean_abs and max_abs, and is what a noise floor is measured in.""",
    ),
    (
        "share_beyond",
        lambda one: _or_nan(one.share_beyond),
        """Share of the elements whose absolute difference is beyond the limit that was measured for.

When: detections, masks and quantised values, where a few elements may flip but most have to agree.
Why: it says how widespread a difference is, which no maximum and no mean does. Needs a limit of max_abs or mean_abs for
the same entries: that is what elements are beyond.""",
    ),
)
_ROWS: tuple[tuple[str, Callable[[Array, Array], float], str], ...] = (
    (
        "kl",
        _divergence,
        """Largest Kullback-Leibler divergence of any row, of the softmax of the reference from that of the candidate.

When: logits of a classifier or a language model, across precisions and quantised models.
Why: it is what the difference means for the probabilities: a constant added to a row changes nothing, and a small
change of an unlikely class hardly anything. The largest row and not the mean: one wrong position among thousands is
seen.""",
    ),
    (
        "top1",
        _disagreement(1),
        """Share of the rows whose largest element is not the same one.

When: logits, with a limit of 0 or of the share of answers that may change.
Why: it is what users of a classifier see; rounding moves it only where two classes are equally likely.""",
    ),
    (
        "top5",
        _disagreement(5),
        """Share of the rows whose five largest elements are not the same ones, in any order.

When: logits that are ranked or sampled from.
Why: it sees wrong answers that are hidden behind a right first one; needs more than five classes.""",
    ),
)
_OWN = {
    **{name: Metric(name, description, value) for name, value, description in _TABLE},
    **{name: Metric(name, description, _asked_for(name), of_rows) for name, of_rows, description in _ROWS},
}
