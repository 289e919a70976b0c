"""How sure a verdict is: the evidence that it stands on, and every reason to doubt it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from reprod_log.alignment import Alignment
from reprod_log.measure.comparison import Compared
from reprod_log.messages import Message, message
from reprod_log.recording import Key
from reprod_log.report.view import ReportRow, accepted_keys
from reprod_log.verdict import Basis, Status

Level = Literal["strong", "fair", "weak"]

_GROUNDS = {
    Basis.BOTH_FLOAT64: "sure.float64",
    Basis.REFERENCE_FLOAT64: "sure.reference64",
    Basis.REPEATS: "sure.repeats",
    Basis.FIXED_LIMIT: "sure.fixed",
    Basis.SKETCHES: "sure.sketches",
    Basis.STATISTICS: "sure.statistics",
    Basis.INPUTS: "sure.inputs",
    Basis.EXACT: "sure.exact",
    Basis.LEARNING_RATE: "sure.lr",
}
_STRONG = {"sure.float64", "sure.inputs", "sure.exact", "sure.lr"}
_SURE_MATCH = 0.9
_AGREE = 0.05
"""Relative error below which two tensors are the same thing, a defect or rounding apart."""
_TELLING = 8
"""Elements from which values identify a tensor."""
NEAR_LIMIT = 10.0
"""An error of up to this many fixed limits may well be rounding: the guides' own logs fail at 2 to 10 of them."""


@dataclass(frozen=True)
class Certainty:
    """One word, what it stands on, and what speaks against it."""

    level: Level
    grounds: tuple[Message, ...]
    doubts: tuple[Message, ...]


def certainty_of(alignment: Alignment, divergence: ReportRow | None) -> Certainty:
    """How much the verdict can be relied on, by its evidence and its gaps; the verdict itself is not touched."""
    judged = [one for one in alignment.verdict.judgements if one.status not in (Status.UNMATCHED, Status.INCOMPARABLE)]
    kinds = Counter(_GROUNDS.get(one.evidence, "sure.assumed") for one in judged)
    grounds = tuple(message(kind, count=count, total=len(judged)) for kind, count in kinds.most_common())
    doubts = tuple(_doubts(alignment, divergence))
    if not judged or doubts or "sure.assumed" in kinds:
        level: Level = "weak"
    else:
        level = "strong" if set(kinds) <= _STRONG else "fair"
    return Certainty(level, grounds, doubts)


def _doubts(alignment: Alignment, divergence: ReportRow | None) -> list[Message]:
    found = []
    for name, side in (("reference", alignment.reference), ("candidate", alignment.candidate)):
        if not side.complete:
            found.append(message(f"doubt.incomplete.{name}"))
    unsure = unproven_pairs(alignment)
    if unsure:
        least = min(unsure, key=lambda row: row.confidence)
        found.append(message("doubt.match", count=len(unsure), how=least.how, confidence=f"{least.confidence:.0%}"))
    if alignment.floor is not None and alignment.floor.notes:
        found.append(message("doubt.floor", note=alignment.floor.notes[0]))
    if alignment.passed:
        idle = sum(one.kind == "suspicious pass" for one in alignment.findings)
        if idle:
            found.append(message("doubt.suspicious", count=idle))
        if alignment.verdict.allowed:
            found.append(message("doubt.allowed", count=len(alignment.verdict.allowed)))
        accepted = accepted_keys(alignment)
        if accepted:
            found.append(message("doubt.accepted", count=len(accepted)))
    elif divergence is not None and may_be_rounding(divergence):
        found.append(message("doubt.near", times=f"{divergence.times_limit:.2g}"))
    return found


def unproven_pairs(alignment: Alignment) -> tuple[Compared, ...]:
    """The pairs that were found by a weak sign and that no values confirm.

    Two layers that run at the same place are a guess; once a tensor of theirs agrees, it is none: numbers of two
    different layers do not agree by chance.
    """
    rows = alignment.comparison.rows
    proven = {_layers(row) for row in rows if _agree(row)}
    return tuple(row for row in rows if row.confidence < _SURE_MATCH and _layers(row) not in proven)


def _layers(row: Compared) -> tuple[str, str]:
    """The layers that the two entries belong to."""
    return _layer(row.key), _layer(row.candidate_key)


def _layer(key: Key) -> str:
    return key.path if key.phase in ("forward", "backward") else key.path.rpartition(".")[0]


def _agree(row: Compared) -> bool:
    """Whether enough numbers of varied size are the same on both sides to tell these tensors from any others."""
    measured = row.measurement
    if measured is None or measured.count < _TELLING or not measured.reference.std > 0:
        return False
    return measured.rel_l2 <= _AGREE


def may_be_rounding(row: ReportRow) -> bool:
    """Whether a fixed limit failed so narrowly that only a noise floor could tell rounding from a defect."""
    if row.judgement.evidence is not Basis.FIXED_LIMIT or row.check is None or row.check.passed or row.check.limit == 0:
        return False
    return row.times_limit is not None and row.times_limit <= NEAR_LIMIT
