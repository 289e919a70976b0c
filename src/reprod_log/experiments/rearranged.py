"""Rearranged: an operator that gives the other side's numbers in another order, before the one that shows it.

Tensors are matched by their sorted values, so a flip, another padding side or two exchanged factors pass unseen until
something that depends on the order is computed from them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reprod_log.frameworks.contract import Operator, Trace
from reprod_log.pairing.layouts import arrangement
from reprod_log.recording import Array

_NEAR = 1e-6
"""Relative to the largest value, as tensors are matched."""


@dataclass(frozen=True)
class Rearranged:
    """The operators of both sides that give the same numbers in different orders."""

    here: Operator
    there: Operator | None
    how: str


def rearranged_before(culprit: Operator, trace: Trace, other: Trace, *, candidate: bool) -> Rearranged | None:
    """The first operator that the culprit depends on and whose result the other side has in another order only.

    `candidate` says whose trace it is: an order is told as what the candidate made of the reference's.
    """
    makers = {number: one for one in other.operators for number in one.outputs}
    made = {number for one in trace.operators for number in one.outputs}
    behind = _behind(culprit, trace)
    for step, one in enumerate(behind):
        if all(number not in made or _partner(trace.arrays[number], other) is not None for number in one.inputs):
            for number in one.outputs:
                array = trace.arrays[number]
                if not _tells(array) or _partner(array, other) is not None:
                    continue
                if _put_right(number, behind[step + 1 :], trace, other):
                    continue
                for place, found in enumerate(other.arrays):
                    if not _sorted_alike(array, found):
                        continue
                    ours, theirs = (found, array) if candidate else (array, found)
                    how = arrangement(ours, theirs, near=_near(array))
                    if how is not None:
                        return Rearranged(one, makers.get(place), how)
    return None


def _put_right(number: int, later: list[Operator], trace: Trace, other: Trace) -> bool:
    """Whether something computed from a tensor is found in the other side's order again.

    A matrix that one side transposes, and the other multiplies by as if transposed, is no mistake.
    """
    reached = {number}
    for one in later:
        if reached.isdisjoint(one.inputs):
            continue
        telling = [place for place in one.outputs if _tells(trace.arrays[place])]
        if telling and all(_partner(trace.arrays[place], other) is not None for place in telling):
            return True
        reached.update(one.outputs)
    return False


def _behind(culprit: Operator, trace: Trace) -> list[Operator]:
    """The operators that the culprit's inputs were computed by, in order."""
    needed, found = set(culprit.inputs), []
    place = next((i for i, one in enumerate(trace.operators) if one is culprit), 0)
    for one in reversed(trace.operators[:place]):
        if not needed.isdisjoint(one.outputs):
            needed.update(one.inputs)
            found.append(one)
    return found[::-1]


def _partner(array: Array, other: Trace) -> Array | None:
    """The other side's tensor with the same numbers in the same places."""
    near = _near(array)
    fitting = (found for found in other.arrays if found.shape == array.shape)
    return next((found for found in fitting if np.allclose(found, array, rtol=0, atol=near, equal_nan=True)), None)


def _sorted_alike(array: Array, found: Array) -> bool:
    if found.shape != array.shape:
        return False
    return bool(np.allclose(np.sort(found, None), np.sort(array, None), rtol=0, atol=_near(array), equal_nan=True))


def _near(array: Array) -> float:
    finite = np.abs(array[np.isfinite(array)])
    return _NEAR * float(finite.max(initial=0.0))


def _tells(array: Array) -> bool:
    return array.size > 3 and bool((array != array.flat[0]).any())
