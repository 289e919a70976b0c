"""Constants that a framework keeps in float32 even when it computes in float64, and what that does to a result.

paddle's batch norm takes its momentum, the share of the old value, as a float32, and so do its optimizers with their
betas. The share of the new value is what is left of 1: with a momentum of 0.99 it is off by 1e-6 of itself, with 0.999
by 1e-5, in every correct port. Nobody can mend that in a port, so it is part of the limit, as exactly as it is known.
torch keeps these numbers in double.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reprod_log.recording import Entry, Recording

_MOMENTS = {"exp_avg": "beta1", "exp_avg_sq": "beta2", "square_avg": "rho", "grad_avg": "rho"}
"""What an optimizer keeps as a moving average, and the setting that says how much of the old stays."""
_NARROW = ("NAdam", "RAdam")
"""Their kernels take the betas as float32 in a float64 run too, so that even their updates show it."""
_MOST = 1e-3
"""A share that is off by more than this belongs to a moving average that hardly moves: nothing is believed about it."""


@dataclass(frozen=True)
class KeptConstants:
    """How far off, relative to itself, is the share by which a moving average of a recording moves."""

    statistics: Mapping[str, float] = field(default_factory=dict)
    """By path of the layer, for its running statistics."""
    moments: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By path of the parameter and role, for what an optimizer keeps."""
    updates: Mapping[str, float] = field(default_factory=dict)
    """By path of the parameter, for what some optimizers make of the moments."""

    @classmethod
    def of(cls, recording: Recording) -> KeptConstants:
        if recording.provenance.framework != "paddle":
            return cls()
        statistics = {
            module.path: _share_error(module.settings.get("momentum"))
            for module in recording.modules
            if module.kind == "batchnorm"
        }
        optimizers = recording.provenance.extra.get("optimizers", {})
        moments: dict[tuple[str, str], float] = {}
        updates: dict[str, float] = {}
        for one in optimizers.values() if isinstance(optimizers, Mapping) else ():
            found = dict(_moments(one))
            moments |= found
            if one.get("type") in _NARROW:
                updates |= {path: found[path, "exp_avg"] + found[path, "exp_avg_sq"] for path, _ in found}
        return cls(statistics, moments, updates)

    def error(self, entry: Entry) -> float:
        """The error of the share by which this entry moves; 0 for what is no moving average."""
        key = entry.key
        if key.phase == "buffer":
            return self.statistics.get(key.path.rpartition(".")[0], 0.0)
        if key.phase in ("update", "parameter"):
            return self.updates.get(key.path, 0.0)
        return self.moments.get((key.path, key.role), 0.0) if key.phase == "optimizer" else 0.0


def _moments(settings: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], float]]:
    paths = iter(settings.get("parameters", ()))
    for group, size in zip(settings.get("groups", ()), settings.get("parameters_in_groups", ()), strict=False):
        for _, path in zip(range(size), paths, strict=False):
            for role, name in _MOMENTS.items():
                yield (path, role), _share_error(group.get(name))


def _share_error(kept: Any) -> float:
    if not isinstance(kept, float) or not 0 < kept < 1:
        return 0.0
    error = abs(float(np.float32(kept)) - kept) / (1 - kept)
    return error if error < _MOST else 0.0
