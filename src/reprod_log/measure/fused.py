"""One pass over a pair of arrays that gives every statistic."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reprod_log.errors import UsageError
from reprod_log.measure import blocked, kernel
from reprod_log.measure.blocks import BLOCK
from reprod_log.measure.dtypes import Arithmetic, dtype_pair, notes_of
from reprod_log.measure.elements import worst_at
from reprod_log.measure.equality import measure_equality
from reprod_log.measure.measurement import Measurement
from reprod_log.measure.rescaled import rescale, take_dot
from reprod_log.measure.totals import finish


def measure_arrays(
    reference: NDArray[Any],
    candidate: NDArray[Any],
    *,
    limit: float | None = None,
    block: int | None = None,
) -> Measurement:
    """Every statistic of `candidate - reference` for two arrays of one shape.

    Numbers of any dtype and layout are compared in arithmetic that holds both sides (see `dtypes.Arithmetic`);
    text and objects are compared for equality only. `limit` asks how many elements are further apart than that.
    Nothing is broadcast: different shapes are the caller's mistake and raise UsageError.
    `block` is how many elements are in work at a time; it changes nothing but the speed and the last digits of sums.
    """
    left, right = np.asarray(reference), np.asarray(candidate)
    if left.shape != right.shape:
        raise UsageError(
            f"The shapes differ: reference {left.shape}, candidate {right.shape}. "
            "Arrays are measured element by element and never broadcast; reshape or transpose one side on purpose."
        )
    if limit is not None and not limit >= 0:
        raise UsageError(f"limit={limit!r} is not a size of a difference. Pass a number that is 0 or larger.")
    pair = dtype_pair(left.dtype, right.dtype)
    if pair.arithmetic is Arithmetic.EQUALITY:
        return measure_equality(left, right, pair=pair, limit=limit)
    notes = notes_of(pair, left.size)
    run = kernel.run(left, right, pair=pair, limit=limit, block=block)
    if run is None:
        notes += _flushed()
        totals = blocked.tally(left, right, pair=pair, limit=limit, block=block or BLOCK)
        worst = worst_at(totals.worst_at, left, right)
    else:
        worst = worst_at(run.worst_at, left, right)
        finished = run.measurement(pair=pair, worst=worst, limit=limit, notes=notes)
        if finished is not None:
            return finished
        totals = run.totals()
    if totals.out_of_range:
        rescale(totals, left, right, pair=pair, block=block or BLOCK)
    if totals.needs_dot:
        take_dot(totals, left, right, pair=pair, block=block or BLOCK)
    return finish(
        totals,
        names=(pair.reference, pair.candidate),
        worst=worst,
        limit=limit,
        has_ulp=pair.ulp_component is not None,
        notes=notes,
    )


def _flushed() -> tuple[str, ...]:
    """A note if the program has told this thread to take subnormal numbers for zero, which numpy then does."""
    if sys.float_info.min * 0.5 > 0.0:
        return ()
    return ("subnormal numbers are flushed to zero in this thread: differences that small are not seen",)
