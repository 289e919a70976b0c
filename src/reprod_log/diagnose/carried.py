"""Tables of the candidate that the transfer of weights has put others in the place of.

Buffers are carried over with the weights, because a checkpoint does that, too. But a table that the model's own code
computes (positions, a mask, a noise schedule) is a part of the port: when it comes out differently there, a comparison
with the reference's table cannot see it. Whether a buffer is such a table or state of the training nobody can tell from
outside, so it is said and not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from reprod_log.diagnose.finding import Finding
from reprod_log.errors import listed
from reprod_log.pairing.units import BARE, survey
from reprod_log.recording import Array, Key
from reprod_log.transfer import TransferReport

_ROUNDING = 1e-5
"""Two frameworks compute the same table to this share of its largest value."""


def own_tables(model: Any) -> dict[str, Array]:
    """The values of the model's buffers that belong to no known layer."""
    found = survey(model)
    names = [unit.path for unit in found.units if unit.kind == BARE]
    return {name: found.read(name) for name in names if name not in found.trained}


def replaced_tables(before: Mapping[str, Array], model: Any, report: TransferReport) -> Iterator[str]:
    """Names of the buffers that had clearly other values before they were carried over."""
    now, moved = own_tables(model), {row.target for row in report.rows}
    for name in before:
        if name in moved and name in now and not _alike(before[name], now[name]):
            yield name


def _alike(before: Array, now: Array) -> bool:
    if before.shape != now.shape or before.dtype.kind not in "biuf" or now.dtype.kind not in "biuf":
        return bool(np.array_equal(before, now))
    wide, wanted = before.astype(np.float64), now.astype(np.float64)
    size = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
    return bool(np.allclose(wide, wanted, rtol=0.0, atol=_ROUNDING * size, equal_nan=True))


def carried_tables(names: tuple[str, ...]) -> list[Finding]:
    """The doubt about these buffers, if there are any."""
    if not names:
        return []
    return [
        Finding(
            rule="carried_tables",
            kind="suspicious pass",
            cause=f"the candidate's own values of {listed(names)} were others before the reference's were carried over",
            evidence="they are buffers; with the reference's values in them the candidate's own could not be compared",
            confidence="possible",
            advice="if the code computes them (positions, a mask, a schedule), compare these tables, or the models "
            "with transfer=False after loading the weights yourself; nothing to do if training makes them",
            keys=tuple(map(Key, names)),
        )
    ]
