"""Parameters that the script itself writes, for example a teacher that follows a student as a moving average.

On each side q' = (1 - s) q + s p is fitted, with q a parameter that no optimizer moves and p one of the same side at
the same step, or at the one before when the average is taken before the update. Each side's own numbers give its share
away, so an error elsewhere does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.material import Material
from reprod_log.pairing.values import factor
from reprod_log.recording import Array, Key

_FIT = 1e-2
"""Rounding of a small share of a small difference costs digits in float32."""
_LEAST = 3
"""Values for one unknown and a choice of sources, so that a fit means something."""


@dataclass(frozen=True)
class _Law:
    """How one side makes the next value of a parameter: by a share of another's; 0 when it stays as it is."""

    share: float
    source: str = ""
    before_update: bool = False


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None or not case.failed:
        return
    first = case.verdict.first_divergence
    found = first.key if first is not None else None
    begins_here = found is not None and found.phase == "parameter" and not found.run
    written = [path for path in material.parameters if _by_script_alone(material, path)]
    for path in written:
        keys = [Key(path, "parameter", step) for step in material.steps]
        wrong = next((key for key in keys if key in case.failed), None)
        if wrong is None:
            continue
        ours, theirs = (_law(material, path, side) for side in (0, 1))
        # One that is written before the first call only shows at the end of a step what it was at the start of it.
        telling = begins_here or (ours is not None and theirs is not None and ours.share and theirs.share)
        if telling and ours is not None and theirs is not None and _differ(ours, theirs):
            yield _finding(path, ours, theirs, wrong)
        elif begins_here and found is not None and wrong.step == found.step:
            yield _unknown(path, wrong)


def _by_script_alone(material: Material, path: str) -> bool:
    """Whether no optimizer moves a parameter that changes; of a single step it is enough that others are moved."""
    moved = any(Key(path, "update", step) in material.pairs for step in material.steps)
    return not moved and (path in material.written_by_hand or (len(material.steps) == 1 and material.stepped))


def _law(material: Material, path: str, side: int) -> _Law | None:
    """The law that a parameter follows on one side between the first two steps; None when it is none that we know."""
    if len(material.steps) < 2:
        return None
    before, after = ({p: _of(material, p, step, side) for p in material.parameters} for step in material.steps[:2])
    old, new = before[path], after[path]
    if old is None or new is None:
        return None
    if np.array_equal(old, new):
        return _Law(0.0)
    fits = [
        (error, _Law(share, source, values is before))
        for values in (after, before)
        for source, value in values.items()
        if source != path and value is not None and value.shape == old.shape and old.size >= _LEAST
        if (found := _share(old, new, value)) is not None
        for share, error in (found,)
    ]
    return min(fits, key=lambda fit: fit[0])[1] if fits else None


def _of(material: Material, path: str, step: int, side: int) -> Array | None:
    both = material.best(Key(path, "parameter", step))
    return None if both is None else both[side]


def _share(old: Array, new: Array, source: Array) -> tuple[float, float] | None:
    """The share of the source in the new value, and how badly it fits."""
    share = factor(source - old, new - old, within=_FIT)
    if share is None or not 0 < share <= 1 + _FIT:
        return None
    return share, float(np.abs(new - old - share * (source - old)).max())


def _differ(ours: _Law, theirs: _Law) -> bool:
    if bool(ours.share) != bool(theirs.share):
        return True
    shares = abs(ours.share - theirs.share) > 2 * _FIT * ours.share
    return shares or ours.source != theirs.source or ours.before_update != theirs.before_update


def _finding(path: str, ours: _Law, theirs: _Law, key: Key) -> Finding:
    sources = [one.source for one in (ours, theirs) if one.source]
    return Finding(
        rule="average_of_weights",
        cause=f"the script itself writes {path}: {_said(ours)} in the reference, {_said(theirs)} in the candidate",
        evidence="fitted to each side's own values of the first two steps; no optimizer moves it",
        confidence="consistent",
        advice="take the average with the same decay, of the same weights, at the same place of the step (after the "
        "optimizer has moved them)",
        keys=(key, *dict.fromkeys(Key(source, "parameter", key.step) for source in sources)),
    )


def _said(law: _Law) -> str:
    if not law.share:
        return "it stays as it is"
    if law.before_update:
        return f"it takes {law.share:.4g} of {law.source} as it is before the update"
    return f"it takes {law.share:.4g} of {law.source} per step"


def _unknown(path: str, key: Key) -> Finding:
    return Finding(
        rule="average_of_weights",
        cause=f"the values that the script itself writes into {path} differ after step {key.step}",
        evidence="no optimizer moves it, it changes, and everything before it in this step agrees",
        confidence="consistent",
        advice="compare the lines that write it in the two scripts (an average of weights, a copy, a clamp)",
        keys=(key,),
    )
