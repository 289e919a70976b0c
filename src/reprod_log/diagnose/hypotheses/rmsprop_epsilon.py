"""RMSprop's epsilon added to the root on one side (torch) and under it on the other (paddle).

The first update is -lr · g / (sqrt((1 - alpha) g²) + epsilon) or -lr · g / sqrt((1 - alpha) g² + epsilon); the same
number then means another thing, which shows where gradients are small.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.material import Material
from reprod_log.diagnose.updates import BadUpdates, first_bad_update
from reprod_log.layers.optimizers import group_settings, optimizer_kind
from reprod_log.pairing.values import relative
from reprod_log.recording import Key

_FIT = 1e-3


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    bad = first_bad_update(case)
    if material is None or bad is None or bad.step != material.steps[0]:
        return
    for name, ours, theirs in material.optimizers():
        groups = group_settings(ours), group_settings(theirs)
        if {optimizer_kind(ours), optimizer_kind(theirs)} != {"rmsprop"} or not groups[0] or not groups[1]:
            continue
        places = [_place(material, bad, side, groups[side][0]) for side in (0, 1)]
        if None in places or places[0] == places[1]:
            continue
        yield Finding(
            rule="rmsprop_epsilon",
            cause=f"epsilon of {name!r} is added {places[0]} the root in the reference, {places[1]} the root in the "
            "candidate: the same number means another thing",
            evidence="the first update of each side is that of its own formula",
            confidence="consistent",
            advice="torch's RMSprop divides by sqrt(v) + eps, paddle's by sqrt(v + epsilon): paddle's epsilon = eps "
            "** 2 comes near it",
            keys=bad.keys,
        )


def _place(material: Material, bad: BadUpdates, side: int, group: Mapping[str, Any]) -> str | None:
    """Where epsilon stands in the updates of one side; None when they are neither."""
    rates = [float(np.abs(both[side]).max()) for _, both in material.each("lr", bad.step)]
    share, epsilon = 1 - float(group.get("rho", 0.99)), float(group.get("eps", 0.0))
    for path in bad.paths:
        update = material.best(Key(path, "update", bad.step))
        gradient = material.best(Key(path, "gradient", bad.step, role="raw"))
        if update is None or gradient is None or not rates or not epsilon:
            continue
        g, u = gradient[side], update[side]
        fits = {
            "outside": relative(-rates[0] * g / (np.sqrt(share * g * g) + epsilon), u),
            "under": relative(-rates[0] * g / np.sqrt(share * g * g + epsilon), u),
        }
        best = min(fits, key=lambda place: fits[place])
        if fits[best] < _FIT < max(fits.values()):
            return best
    return None
