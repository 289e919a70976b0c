"""Generic weights: every tensor a little different from every other, so that no exchange can hide."""

from __future__ import annotations

import hashlib
from collections import defaultdict

import numpy as np

from reprod_log.frameworks.tensors import is_floating
from reprod_log.layers.lookup import layer_kind
from reprod_log.pairing.survey import Survey
from reprod_log.pairing.units import BARE, Unit
from reprod_log.recording import Array


def generic_values(survey: Survey) -> dict[str, Array]:
    """The model's values, each a little off in its own way, by name.

    Fresh weights hide mistakes: all norms are ones and zeros, all biases zero, and exchanging two of them changes
    nothing. Perturbed by name, every tensor is different from every other.
    """
    holders: defaultdict[str, list[tuple[str, Unit]]] = defaultdict(list)
    for unit in survey.units:
        for name in unit.tensors:
            holders[survey.first_name(name)].append((name, unit))
    result: dict[str, Array] = {}
    for held in holders.values():
        # Tied weights are one tensor and get one perturbation.
        name, _ = held[0]
        array = survey.read(name)
        units = [unit for _, unit in held]
        trained = name in survey.trained or any(unit.kind != BARE for unit in units)
        if trained and is_floating(array):
            array = _shaken(array, name, units)
        result.update((other, array) for other, _ in held)
    return result


def _shaken(array: Array, name: str, units: list[Unit]) -> Array:
    seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    random = np.random.default_rng(seed)
    wide = array.astype(np.float64)
    # Factors stay positive, so that a variance stays one.
    shaken = wide * (1.0 + 0.2 * random.random(wide.shape))
    if not any(_only_scaled(unit, name) for unit in units):
        size = float(np.sqrt(np.mean(np.square(wide)))) if wide.size else 0.0
        size = size if 0.0 < size < np.inf else 1.0
        shaken = shaken + 0.1 * size * random.standard_normal(wide.shape)
    return shaken.astype(array.dtype)


def _only_scaled(unit: Unit, name: str) -> bool:
    """Whether nothing may be added to the values: zeros that have a meaning, and variances."""
    row = layer_kind(unit.kind)
    if row is not None and row.scale_only:
        return True
    return any(part.canonical == "running_var" and part.tensor == name for part in unit.parts)
