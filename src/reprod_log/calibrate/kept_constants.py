"""Constants that a framework keeps in float32 even when it computes in float64, and what that does to a result.

paddle's batch norm takes its momentum, the share of the old value, as a float32. The share of the new value is what is
left of 1: with a momentum of 0.99 it is off by 1e-6 of itself, with 0.999 by 1e-5, in every precision and in every
correct port. Nobody can mend that in a port, so it is part of the limit, as exactly as it is known.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from reprod_log.record import Entry, Recording


def rounded_shares(recording: Recording) -> dict[str, float]:
    """By path of the layer: how far off, relative to itself, is the share by which its running statistics move."""
    found = {}
    for module in recording.modules:
        momentum = module.settings.get("momentum")
        # torch keeps the share of the new value, in double: nothing is lost there.
        keeps_old = module.kind == "batchnorm" and "_mean" in module.parameters
        if keeps_old and isinstance(momentum, float) and 0 < momentum < 1:
            found[module.path] = abs(float(np.float32(momentum)) - momentum) / (1 - momentum)
    return found


def share_error(entry: Entry, shares: Mapping[str, float]) -> float:
    """The error of the share by which this entry moves: 0 unless it is a running statistic of such a layer."""
    if entry.key.phase != "buffer":
        return 0.0
    return shares.get(entry.key.path.rpartition(".")[0], 0.0)
