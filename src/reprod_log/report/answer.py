"""The answer of an alignment for programs: verdict, causes and places as plain values, without what pictures need.

docs/agents.md has the fields. The version rises when one is renamed, removed or changes its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reprod_log.alignment import Alignment
from reprod_log.diagnose import Finding
from reprod_log.messages import Message, Text
from reprod_log.recording import Key
from reprod_log.report.causes import Causes, source_lines
from reprod_log.report.first_screen import FirstScreen
from reprod_log.report.view import ReportRow

MOST_PLACES = 50
"""Entries that an answer lists; all of them are in the saved alignment (--json FILE)."""


def answer_of(alignment: Alignment) -> dict[str, Any]:
    """Everything that the first screen tells, with keys and ids in place of sentences alone."""
    screen = FirstScreen(alignment)
    by_key = {row.key: row for row in screen.rows}
    failing = [row for row in screen.rows if not row.status.passed]
    there = frozenset(one.key for one in alignment.comparison.unmatched if one.side == "candidate")
    return {
        "status": alignment.status.value,
        "passed": alignment.passed,
        "headline": screen.headline.to_dict(),
        "counts": {status.value: count for status, count in screen.counts},
        "sure": {
            "level": screen.certainty.level,
            "grounds": [one.to_dict() for one in screen.certainty.grounds],
            "doubts": [one.to_dict() for one in screen.certainty.doubts],
        },
        "first_divergence": None if screen.divergence is None else _entry(screen.divergence, there),
        "last_agreement": None if screen.last_agreement is None else _entry(screen.last_agreement, there),
        "causes": [_finding(one, by_key, there, screen.accounts) for one in screen.causes],
        "doubts": [_finding(one, by_key, there) for one in screen.doubts],
        "advice": [_message(one) for one in screen.advice],
        "warnings": [one.to_dict() for one in screen.warnings],
        "failing": [_entry(row, there) for row in failing[:MOST_PLACES]],
        "failing_total": len(failing),
        "reference": alignment.reference.source,
        "candidate": alignment.candidate.source,
    }


def _finding(
    one: Finding, by_key: Mapping[Key, ReportRow], there: frozenset[Key], accounts: Causes | None = None
) -> dict[str, Any]:
    cause = next((cause for cause in accounts.causes if cause.finding is one), None) if accounts else None
    return {
        "rule": one.rule,
        "confidence": one.confidence,
        "cause": one.cause.to_dict(),
        "evidence": [part.to_dict() for part in one.evidence],
        "advice": [part.to_dict() for part in one.advice],
        "fixes": [{"layer": fix.layer, "settings": dict(fix.settings), "weights": fix.weights} for fix in one.fixes],
        "entries": [_names(by_key[key], there) if key in by_key else {"reference": str(key)} for key in one.keys],
        "lines": [{"file": file, "line": line} for file, line in source_lines(one)],
        "made_at": [{"reference": ours, "candidate": theirs} for ours, theirs in cause.lines] if cause else [],
        "explains": {"at": len(cause.at), "inherited": len(cause.inherited)} if cause else None,
        "code": cause.copied if cause else "",
    }


def _names(row: ReportRow, there: frozenset[Key]) -> dict[str, Any]:
    """The keys of both sides; `there` are those that only the candidate has."""
    alone = row.compared is None
    return {
        "reference": None if alone and row.key in there else str(row.key),
        "candidate": None if alone and row.key not in there else str(row.partner or row.key),
        "words": str(row.title),
    }


def _entry(row: ReportRow, there: frozenset[Key]) -> dict[str, Any]:
    check = row.check
    allowed = None if check is None or not check.floor else check.limit / check.floor
    return {
        **_names(row, there),
        "status": row.status.value,
        "times_rounding": row.times_floor,
        "times_rounding_allowed": allowed,
        "times_limit": row.times_limit,
        "rel_l2": row.number("rel_l2"),
        "max_abs": row.number("max_abs"),
        "reason": _message(row.reason) if row.reason else None,
    }


def _message(what: Text) -> dict[str, Any]:
    if isinstance(what, tuple):
        return {"id": "several", "arguments": {}, "text": "; ".join(map(str, what)), "parts": list(map(_message, what))}
    return what.to_dict() if isinstance(what, Message) else {"id": "text", "arguments": {}, "text": what}
