"""The first screen of every format: aligned or not, how sure, where it first goes wrong, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from reprod_log.alignment import Alignment
from reprod_log.diagnose import Finding
from reprod_log.messages import Message, Name, Text, message, words
from reprod_log.report.certainty import Certainty, certainty_of, may_be_rounding
from reprod_log.report.view import SEVERITY, ReportRow, accepted_keys, rows
from reprod_log.verdict import Status, UnusedPattern, unused_patterns

MOST_CAUSES = 3
"""Causes that a first screen shows; more of them push everything else away."""
_RANK = {"proven": 0, "consistent": 1, "possible": 2}


@dataclass(frozen=True)
class FirstScreen:
    """The answers, as sentences that any language can say."""

    status: Status
    passed: bool
    headline: Message
    counts: tuple[tuple[Status, int], ...]
    """How many entries have each status that occurs, the worst first."""
    certainty: Certainty
    divergence: ReportRow | None
    last_agreement: ReportRow | None
    causes: tuple[Finding, ...]
    """What the rules found, the surest first."""
    suspicious: tuple[Finding, ...]
    """Passes that prove nothing."""
    observations: tuple[Finding, ...]
    advice: tuple[Text, ...]
    warnings: tuple[Message, ...] = ()
    """What was asked for and had no effect."""

    @cached_property
    def where(self) -> tuple[Message, ...]:
        """Where it first goes wrong, in what way, and the last place where it was right."""
        first = self.divergence
        if first is None:
            return ()
        before = (
            message("last.agreement", key=Name(self.last_agreement.key))
            if self.last_agreement
            else message("last.none")
        )
        return (
            message("first.divergence", key=Name(first.key), status=first.status.value),
            message("reason", reason=first.reason),
            before,
        )

    @property
    def shown_causes(self) -> tuple[Finding, ...]:
        """The surest of each mistake: the same one in five layers needs saying once."""
        by_mistake: dict[tuple[str, Message], Finding] = {}
        for one in self.causes:
            by_mistake.setdefault(one.mistake, one)
        return tuple(by_mistake.values())[:MOST_CAUSES]

    @property
    def more_causes(self) -> tuple[Finding, ...]:
        """Those for which a first screen has no room."""
        shown = self.shown_causes
        return tuple(one for one in self.causes if one not in shown)

    @property
    def cause(self) -> tuple[Message, ...]:
        """What to say about the cause when no rule found one; nothing when the verdict needs no cause."""
        return () if self.passed or self.causes or self.divergence is None else (message("cause.unknown"),)


def first_screen(alignment: Alignment, *, all_rows: tuple[ReportRow, ...] | None = None) -> FirstScreen:
    """The answers of `alignment`; give `all_rows` when they are made already."""
    everything = rows(alignment) if all_rows is None else all_rows
    by_key = {row.judgement.key: row for row in everything}
    verdict = alignment.verdict
    first, last = verdict.first_divergence, verdict.last_agreement
    divergence = None if first is None else by_key[first.key]
    causes = sorted(_causes(alignment), key=lambda one: _RANK[one.confidence])
    counts = tuple((status, verdict.counts[status]) for status in reversed(SEVERITY) if status in verdict.counts)
    return FirstScreen(
        status=verdict.status,
        passed=verdict.passed,
        headline=screen_headline(alignment),
        counts=counts,
        certainty=certainty_of(alignment, divergence),
        divergence=divergence,
        last_agreement=None if last is None else by_key[last.key],
        causes=tuple(causes),
        suspicious=tuple(one for one in alignment.findings if one.kind == "suspicious pass"),
        observations=tuple(one for one in alignment.findings if one.kind == "remark"),
        advice=_advice(alignment, divergence, tuple(causes)),
        warnings=tuple(map(_warning, unused_patterns(alignment.comparison, alignment.policy))),
    )


def _warning(one: UnusedPattern) -> Message:
    near = tuple(map(Name, one.near))
    id = "warning.pattern.near" if near else "warning.pattern"
    return message(id, option=one.option, pattern=Name(one.pattern), **({"near": near} if near else {}))


def _causes(alignment: Alignment) -> Iterator[Finding]:
    """The causes there are; none when every entry passes, as it may under a looser policy than they were found by."""
    if set(alignment.verdict.counts) != {Status.PASS}:
        yield from (one for one in alignment.findings if one.kind == "cause")


def headline(alignment: Alignment, *, language: str = "en") -> str:
    """The answer in one line."""
    return words(language)(screen_headline(alignment))


def screen_headline(alignment: Alignment) -> Message:
    """The answer as a sentence that any language can say."""
    verdict = alignment.verdict
    total, counts = len(verdict.judgements), verdict.counts
    if verdict.status is Status.NOTHING:
        return message("headline.nothing")
    if verdict.status is Status.INCOMPLETE:
        return message("headline.incomplete", total=total)
    suspects, known = counts.get(Status.SUSPECT, 0), counts.get(Status.ACCEPTED, 0)
    passed = counts.get(Status.PASS, 0) + suspects
    if verdict.passed:
        whole = message("headline.pass", total=total)
        if known:
            whole = message("headline.accepted", passed=passed, total=total, accepted=known)
        return message("headline.suspect", sentence=whole, suspects=suspects) if suspects else whole
    parts = tuple(
        message("status.count", count=count, status=status.value, word=status.value.lower())
        for status in reversed(SEVERITY)
        if (not status.passed or status is Status.ACCEPTED) and (count := counts.get(status, 0))
    )
    return message("headline.fail", parts=parts, passed=passed, total=total)


def _advice(alignment: Alignment, divergence: ReportRow | None, causes: tuple[Finding, ...]) -> tuple[Text, ...]:
    """The advice of the findings; without any, where to look first for a divergence of this kind."""
    advice = list(dict.fromkeys(one.advice for one in causes if one.advice))
    found: list[Text] = [*advice[:MOST_CAUSES]]
    if not found:
        found += _general_advice(alignment, divergence)
    if divergence is not None and (may_be_rounding(divergence) or alignment.status is Status.PRECISION):
        found.append(message("advice.precision" if alignment.status is Status.PRECISION else "advice.near"))
    return tuple(found)


def _advice_after_a_pass(alignment: Alignment) -> Message:
    """What is left to do when all passes: most for a pass that proves nothing."""
    if any(one.kind == "suspicious pass" for one in alignment.findings):
        return message("advice.suspicious")
    if alignment.status is Status.SUSPECT:
        return message("advice.suspect")
    if accepted_keys(alignment):
        return message("advice.accepted")
    return message("advice.passed" if alignment.floor is not None else "advice.passed.fixed")


def _general_advice(alignment: Alignment, divergence: ReportRow | None) -> tuple[Message, ...]:
    if alignment.status is Status.NOTHING:
        return (message("advice.nothing"),)
    if alignment.status is Status.INCOMPLETE:
        return (message("advice.incomplete"),)
    if divergence is None:
        if not alignment.passed:
            return (message("advice.unmatched"),)
        return (_advice_after_a_pass(alignment),)
    if divergence.status is Status.INCOMPARABLE:
        estimated = divergence.judgement.evidence.is_estimate
        return (message("advice.estimated" if estimated else "advice.incomparable", key=Name(divergence.key)),)
    path = Name(divergence.key.path)
    alone: Literal["", ".alone"] = ".alone" if divergence.key.run.startswith("isolated") else ""
    phase = divergence.key.phase or "classic"
    return (message(f"advice.{phase}{alone if phase == 'forward' else ''}", path=path),)
