"""Code between two layers that differs: everything a layer was made from agrees, what it is given does not.

Tried are: the same numbers in another order, a constant factor or shift, another activation, a term that is missing.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.functions import function_between
from reprod_log.diagnose.material import Both, other_factor, shown_ratio
from reprod_log.pairing.layouts import arrangement
from reprod_log.pairing.values import relative
from reprod_log.recording import Array, Key

_RECENT = 6
"""How many earlier tensors are tried as what the code worked on."""


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None or not material.steps:
        return
    step = material.steps[0]
    if any(key.phase == "data" and key.step == step for key in case.failed):
        return
    forward = [
        pair.reference.key
        for pair in material.pairing.pairs
        if pair.reference.key.phase == "forward" and pair.reference.key.step == step and not pair.reference.key.run
    ]
    place = next((i for i, key in enumerate(forward) if key in case.failed), None)
    if place is None or not forward[place].role.startswith("input") or _has_own_error_before(case, forward, place):
        return
    key = forward[place]
    both = material.best(key)
    earlier = [(one, found) for one in forward[:place] if (found := material.best(one)) is not None]
    before = next((one.path for one, _ in reversed(earlier) if not one.role.startswith("input")), "")
    said = None if both is None else _said(both, earlier)
    where = f"between {before or 'the input'} and {key.path}"
    yield Finding(
        rule="between_layers",
        cause=f"the code {where} differs: {said[0] if said else 'it computes something else'}",
        evidence=f"all layer outputs before agree, the input of {key.path} does not"
        + (f" (by {relative(*both):.2g} of its size)" if both is not None else "")
        + (f"; {said[1]}" if said else ""),
        confidence="consistent" if said else "possible",
        advice=f"compare the lines {where} in the two models",
        keys=(key,),
    )


def _has_own_error_before(case: Case, forward: list[Key], place: int) -> bool:
    return any(key.path in case.own for key in forward[:place])


def _said(both: Both, earlier: list[tuple[Key, Both]]) -> tuple[str, str] | None:
    ours, theirs = both
    # Kernels that keep float32 constants cost digits even in float64, so the order must matter much more than these.
    near = 1e-5 * float(np.abs(ours).max(initial=0.0))
    if relative(ours, theirs) > 1e-3 and np.allclose(np.sort(ours, None), np.sort(theirs, None), rtol=0, atol=near):
        known = arrangement(ours, theirs, near=near)
        if known is not None:
            return f"the same numbers in another order: {known}", "equal in that order"
        return "the same numbers in another order (flatten, transpose, concat or reversed order)", "equal when sorted"
    ratio = other_factor(ours, theirs, within=1e-5)
    if ratio is not None:
        return f"the candidate's is {shown_ratio(ratio)} times the reference's", "the same ratio for every element"
    shift = theirs - ours
    if ours.size > 3 and np.ptp(shift) <= 1e-6 * float(np.abs(shift).max()):
        return f"the candidate's is shifted by {float(shift.mean()):.6g}", "the same for every element"
    recent = [one for one in reversed(earlier) if one[1][0].shape == ours.shape and relative(*one[1]) < 1e-6][:_RECENT]
    return _activation(ours, theirs, recent) or _sum(ours, theirs, recent)


def _activation(ours: Array, theirs: Array, recent: list[tuple[Key, Both]]) -> tuple[str, str] | None:
    for key, (given, _) in recent:
        here, there = function_between(given, ours), function_between(given, theirs)
        if here is not None and there is not None and here != there:
            return f"{here} in the reference, {there} in the candidate", f"both fitted to the output of {key.path}"
        if here is not None and here != "identity":
            return f"it is {here} in the reference and something else in the candidate", f"fitted to {key.path}"
    return None


def _sum(ours: Array, theirs: Array, recent: list[tuple[Key, Both]]) -> tuple[str, str] | None:
    """One side is a tensor, the other the same and something added: a residual connection that is missing."""
    for key, (given, _) in recent:
        for whole, part, side in ((ours, theirs, "candidate"), (theirs, ours, "reference")):
            if relative(given, whole - part) < 1e-5:
                return f"the {side} does not add {key.path} (residual connection missing?)", "the difference equals it"
    return None
