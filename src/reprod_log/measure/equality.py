"""Arrays without arithmetic (text, objects, dates, records): equal or not, element by element.

Where all are equal, every difference is 0. Where any is not, every statistic is NaN, which passes no limit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reprod_log.measure.dtypes import Array, DtypePair
from reprod_log.measure.measurement import Measurement, SideSummary, Worst

_NO_NUMBERS = SideSummary(math.nan, math.nan, math.nan, math.nan, math.nan, math.nan)
_LONGEST = 80
_BEFORE = 30
"""Of a long text, how much stands before the first letter that differs."""


def measure_equality(reference: Array, candidate: Array, *, pair: DtypePair, limit: float | None) -> Measurement:
    """How many elements are not equal, and the first of them."""
    left, right = reference.reshape(-1), candidate.reshape(-1)
    unequal = np.flatnonzero(~_equal(left, right))
    differing = int(unequal.size)
    size = math.nan if differing else 0.0
    worst = None
    if left.size:
        at = int(unequal[0]) if differing else 0
        index = tuple(int(i) for i in np.unravel_index(at, reference.shape))
        worst = Worst(index, *_shown(left[at], right[at]))
    return Measurement(
        count=int(left.size),
        reference_dtype=pair.reference,
        candidate_dtype=pair.candidate,
        differing=differing,
        max_abs=size,
        mean_abs=size,
        min_abs=size,
        rmse=size,
        max_rel=size,
        mean_rel=size,
        rel_l2=size,
        cosine_distance=size,
        max_ulp=None,
        mean_ulp=None,
        reference=_NO_NUMBERS,
        candidate=_NO_NUMBERS,
        worst=worst,
        limit=limit,
        # What has no size lies within no limit.
        beyond_limit=None if limit is None else differing,
        notes=() if pair.note is None else (pair.note,),
    )


def _equal(left: Array, right: Array) -> Array:
    kinds = left.dtype.kind, right.dtype.kind
    # numpy compares text with text and dates with dates; of anything else each element decides for itself.
    if kinds in {("U", "U"), ("S", "S"), ("M", "M"), ("m", "m")}:
        equal: Array = left == right
        return equal
    pairs = zip(left.astype(object), right.astype(object), strict=True)
    return np.fromiter((_same(a, b) for a, b in pairs), np.bool_, count=left.size)


def _same(left: Any, right: Any) -> bool:
    """Whether two objects are equal; those that cannot be compared are not."""
    try:
        if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
            return bool(np.array_equal(left, right))
        return bool(left == right)
    except (TypeError, ValueError):
        return False


def _shown(left: Any, right: Any) -> tuple[str, str]:
    """Both as text; of long ones the part where they begin to differ."""
    texts = _text(left), _text(right)
    apart = next((at for at, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    start = max(0, apart - _BEFORE) if max(map(len, texts)) > _LONGEST else 0
    ours, theirs = (_cut(text, start) for text in texts)
    return ours, theirs


def _text(value: Any) -> str:
    if isinstance(value, (np.datetime64, np.timedelta64)) and np.datetime_data(value.dtype)[0] == "generic":
        # Numbers of nobody knows what, of which numpy itself cannot say more.
        return str(value.astype(np.int64))
    return repr(value.item() if isinstance(value, np.generic) and value.dtype.kind in "US" else value)


def _cut(text: str, start: int) -> str:
    head = "…" if start else ""
    rest = head + text[start:]
    return rest if len(rest) <= _LONGEST else f"{rest[: _LONGEST - 1]}…"
