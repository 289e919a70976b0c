"""A buffer that is a moving average with another share: teachers, centres and running values outside of batch norms.

b' = (1 - s) b + s v with the same v on both sides makes the candidate's next value a sum of three known tensors, whose
factors give the shares of both sides away.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.material import Material
from reprod_log.layers.lookup import running_statistics
from reprod_log.recording import Key

_FIT = 1e-5
_LEAST = 6
"""Equations for three unknowns, so that a fit means something."""


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None or len(material.steps) < 2:
        return
    paths = dict.fromkeys(key.path for key in sorted(case.failed, key=str) if key.phase == "buffer" and not key.run)
    for path in paths:
        owner = material.layers.get(path.rpartition(".")[0])
        if owner is not None and running_statistics(owner[0]):
            # The rule `statistics` knows more about those.
            continue
        shares = _shares(material, path)
        if shares is not None:
            yield Finding(
                rule="moving_average",
                cause=f"{path} moves by a share of {shares[1]:.4g} per step in the candidate, {shares[0]:.4g} in the "
                "reference (a moving average with another decay)",
                evidence="with these shares both sides follow the same values at every step",
                confidence="consistent",
                advice=f"keep {1 - shares[0]:.4g} of the old value and take {shares[0]:.4g} of the new one",
                keys=(Key(path, "buffer", material.steps[0]),),
            )


def _shares(material: Material, path: str) -> tuple[float, float] | None:
    """The share of the new value on both sides; None when the buffer is no such average."""
    found = [material.best(Key(path, "buffer", step)) for step in material.steps]
    both = [one for one in found if one is not None]
    if len(both) != len(found) or both[0][0].size * (len(both) - 1) < _LEAST:
        return None
    columns = [
        np.stack([now[1].reshape(-1), following[0].reshape(-1), now[0].reshape(-1)], axis=-1)
        for now, following in pairwise(both)
    ]
    left = np.concatenate(columns)
    right = np.concatenate([pair[1].reshape(-1) for pair in both[1:]])
    factors, _, rank, _ = np.linalg.lstsq(left, right, rcond=None)
    size = float(np.abs(right).max(initial=0.0))
    if rank < 3 or not size or float(np.abs(left @ factors - right).max()) > _FIT * size:
        return None
    kept, taken, back = map(float, factors)
    theirs, ours = 1 - kept, 1 + back / taken if taken else 0.0
    fits = 0 < ours < 1 and 0 < theirs < 1 and abs(taken * ours - theirs) < 1e-3 * theirs
    return (ours, theirs) if fits and abs(ours - theirs) > 1e-3 * ours else None
