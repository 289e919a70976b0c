"""Adam's epsilon added before the bias correction on one side and after it on the other.

The first update of Adam is -lr · g / (|g| + e), where e is epsilon when it is added to the corrected root, and
epsilon / sqrt(1 - beta2), 32 times as much with the usual beta2, when it is added before (as TensorFlow has it, and as
the transformers library had it). Both sides' e is read off their updates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.material import Material
from reprod_log.diagnose.updates import first_bad_update
from reprod_log.layers.optimizers import group_settings
from reprod_log.recording import Array, Key

_ENOUGH = 8
"""Elements whose gradient is near epsilon, from which it can be read off."""
_SPREAD = 0.1
_NEAR = 0.05


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    bad = first_bad_update(case)
    if material is None or bad is None or bad.step != material.steps[0]:
        return
    for name, ours, theirs in material.optimizers():
        groups = group_settings(ours), group_settings(theirs)
        if not all(group and {"beta2", "eps"} <= group[0].keys() for group in groups):
            continue
        both = [_read_off(material, bad.paths, bad.step, side, groups[side]) for side in (0, 1)]
        places = [_place(read, group[0]) for read, group in zip(both, groups, strict=True)]
        if None in places or places[0] == places[1]:
            continue
        yield Finding(
            rule="epsilon_place",
            cause=f"epsilon of {name!r} is added {places[0]} the bias correction in the reference, {places[1]} it in "
            "the candidate",
            evidence=f"read off the first update it is {both[0]:.3g} and {both[1]:.3g}, of {groups[0][0]['eps']:g} set",
            confidence="consistent",
            advice="use the same Adam on both sides; epsilon before the correction weighs 1 / sqrt(1 - beta2) as much "
            "at the first step (transformers' old AdamW, TensorFlow)",
            keys=bad.keys,
        )


def _place(read: float | None, group: Mapping[str, Any]) -> str | None:
    if read is None or not group["eps"]:
        return None
    for place, expected in (("after", group["eps"]), ("before", group["eps"] / np.sqrt(1 - group["beta2"]))):
        if abs(read / expected - 1) < _NEAR:
            return place
    return None


def _read_off(
    material: Material, paths: Iterable[str], step: int, side: int, groups: list[dict[str, Any]]
) -> float | None:
    """The epsilon that the first updates of one side were made with; None when they do not tell."""
    decays = {float(group.get("weight_decay", 0.0)) for group in groups} | {0.0}
    rates = [float(np.abs(both[side]).max()) for _, both in material.each("lr", step)]
    for path in paths:
        parts = [material.best(key) for key in (Key(path, "update", step), Key(path, "gradient", step, role="raw"))]
        before = material.before(path, step)
        if before is None or None in parts or not rates:
            continue
        update, gradient = (part[side] for part in parts if part is not None)
        for rate in set(rates):
            for decay in decays:
                # Decay taken off the weights, or added to the gradient.
                apart = _epsilon(update + rate * decay * before[side], gradient, rate)
                found = apart if apart is not None else _epsilon(update, gradient + decay * before[side], rate)
                if found is not None:
                    return found
    return None


def _epsilon(update: Array, gradient: Array, rate: float) -> float | None:
    size, steep = np.abs(gradient), np.abs(update) / rate
    # Far above epsilon an update says nothing of it, far below it is lost in rounding.
    telling = (steep > 0.02) & (steep < 0.9)
    if int(telling.sum()) < _ENOUGH:
        return None
    read = size[telling] / steep[telling] - size[telling]
    low, middle, high = np.percentile(read, (25, 50, 75))
    return float(middle) if middle > 0 and high - low < _SPREAD * middle else None
