"""Constants of a framework that no port can avoid: kept in float32 in every precision, or added to a norm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any

import numpy as np

from reprod_log.layers.lookup import ADDED_TO_A_NORM, column_of, layer_kind
from reprod_log.recording import Entry, ModuleInfo, Recording
from reprod_log.verdict.evidence import FloorEvidence

_MOST = 1e-3
"""A share that is off by more than this belongs to a moving average that hardly moves: nothing is believed about it."""


@dataclass(frozen=True)
class KeptConstants:
    """How far off, relative to itself, is the share by which a moving average of a recording moves.

    Some frameworks keep a constant in float32 even when they compute in float64: the momentum of a batch norm (the
    share of the old value), the betas of optimizers. The share of the new value is what is left of 1: with a momentum
    of 0.99 it is off by 1e-6 of itself, with 0.999 by 1e-5, in every correct port. No port can avoid that, so it
    is part of the limit, as exactly as it is known.
    """

    statistics: Mapping[str, float] = field(default_factory=dict)
    """By path of the layer, for its running statistics."""
    moments: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By path of the parameter and role, for what an optimizer keeps."""
    updates: Mapping[str, float] = field(default_factory=dict)
    """By path of the parameter, for what some optimizers make of the moments."""

    @classmethod
    def of(cls, recording: Recording) -> KeptConstants:
        framework = recording.provenance.framework
        statistics = {module.path: error for module in recording.modules if (error := _of_layer(module))}
        optimizers = recording.provenance.extra.get("optimizers", {})
        moments: dict[tuple[str, str], float] = {}
        updates: dict[str, float] = {}
        for one in optimizers.values() if isinstance(optimizers, Mapping) else ():
            found, moves_updates = _moments(framework, one)
            moments |= found
            if moves_updates:
                for (path, _), error in found.items():
                    updates[path] = updates.get(path, 0.0) + error
        return cls(statistics, moments, updates)

    def error(self, entry: Entry) -> float:
        """The error of the share by which this entry moves, or by which what it is computed from was moved."""
        key = entry.key
        if key.phase == "buffer":
            return self.statistics.get(key.path.rpartition(".")[0], 0.0)
        if key.phase in ("update", "parameter"):
            return self.updates.get(key.path, 0.0)
        if key.step and key.phase in ("forward", "loss", "backward", "gradient"):
            # Computed with weights that were updated so.
            return max(self.updates.values(), default=0.0)
        return self.moments.get((key.path, key.role), 0.0) if key.phase == "optimizer" else 0.0


def _of_layer(module: ModuleInfo) -> float:
    """The error of the share by which a layer's running statistics move."""
    row, column = layer_kind(module.kind), column_of(module)
    if row is None or column is None:
        return 0.0
    kept = [column.settings[name] for name in set(row.moving.values()) if name in column.settings]
    return max((_share_error(module.settings.get(one.native)) for one in kept if one.float32), default=0.0)


def _moments(framework: str, settings: Mapping[str, Any]) -> tuple[dict[tuple[str, str], float], bool]:
    """The errors by path and role, and whether they move the updates too."""
    # Most comparisons know no optimizer, and need not wait for the table of them.
    from reprod_log.layers.optimizers import averaged, group_settings, narrow_settings

    narrow, moves_updates = narrow_settings(framework, settings)
    found: dict[tuple[str, str], float] = {}
    paths = iter(settings.get("parameters", ()))
    for group, size in zip(group_settings(settings), settings.get("parameters_in_groups", ()), strict=False):
        for _, path in zip(range(size), paths, strict=False):
            for role, name in averaged(settings).items():
                if name in narrow:
                    found[path, role] = _share_error(group.get(name))
    return found, bool(moves_updates)


def _share_error(kept: Any) -> float:
    if not isinstance(kept, float) or not 0 < kept < 1:
        return 0.0
    error = abs(float(np.float32(kept)) - kept) / (1 - kept)
    return error if error < _MOST else 0.0


def with_clipping(
    evidence: tuple[FloorEvidence, ...], reference: Recording, candidate: Recording
) -> tuple[FloorEvidence, ...]:
    """The evidence; where gradients were clipped, with what one framework adds to their norm and the other does not."""
    clipped = {one.key.step for one in evidence if one.key.phase == "clip" and not one.mode}
    if not clipped:
        return evidence
    added = [ADDED_TO_A_NORM.get(one.provenance.framework, 0.0) for one in (reference, candidate)]
    squares: dict[int | None, float] = {}
    for one in evidence:
        if one.key.phase == "gradient" and not one.mode and one.noise is not None and one.key.step in clipped:
            size = one.noise.count * one.noise.reference.rms**2
            squares[one.key.step] = squares.get(one.key.step, 0.0) + size
    shares = {step: abs(added[0] - added[1]) / sqrt(square) for step, square in squares.items() if square}

    def error(one: FloorEvidence) -> float:
        if one.mode or one.key.phase not in ("clip", "update", "optimizer"):
            return 0.0
        # Moments remember what was clipped in earlier steps.
        share = max((share for step, share in shares.items() if (step or 0) <= (one.key.step or 0)), default=0.0)
        return share if share < _MOST else 0.0

    return tuple(replace(one, constant=one.constant + error(one)) for one in evidence)
