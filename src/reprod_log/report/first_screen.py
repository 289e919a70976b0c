"""The first screen of every report: verdict, where, why, what to do and how sure it is; as values and as text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from reprod_log.alignment import Alignment
from reprod_log.diagnose import Finding
from reprod_log.diagnose.finding import Kind
from reprod_log.measure.comparison import Compared
from reprod_log.messages import Message, Name, Number, Text, Words, message, words
from reprod_log.recording import Key
from reprod_log.recording.recording import Source
from reprod_log.report.causes import Cause, Causes, causes_of
from reprod_log.report.view import SEVERITY, ReportRow, accepted_keys, remarks, rows
from reprod_log.report.writing import plain
from reprod_log.verdict import Basis, Status, UnusedPattern, unused_patterns

MOST_CAUSES = 3
"""Causes that a first screen shows; more of them push everything else away."""


@dataclass(frozen=True)
class FirstScreen:
    """The answers of an alignment, as sentences that any language can say; each is made when it is asked for."""

    alignment: Alignment

    @cached_property
    def rows(self) -> tuple[ReportRow, ...]:
        return rows(self.alignment)

    @cached_property
    def _by_key(self) -> dict[Key, ReportRow]:
        return {row.key: row for row in self.rows}

    @property
    def status(self) -> Status:
        return self.alignment.status

    @property
    def passed(self) -> bool:
        return self.alignment.passed

    @property
    def counts(self) -> tuple[tuple[Status, int], ...]:
        """How many entries have each status that occurs, the worst first."""
        counts = self.alignment.verdict.counts
        return tuple((status, counts[status]) for status in reversed(SEVERITY) if status in counts)

    @cached_property
    def divergence(self) -> ReportRow | None:
        first = self.alignment.verdict.first_divergence
        return None if first is None else self._by_key[first.key]

    @cached_property
    def last_agreement(self) -> ReportRow | None:
        last = self.alignment.verdict.last_agreement
        return None if last is None else self._by_key[last.key]

    @cached_property
    def causes(self) -> tuple[Finding, ...]:
        """What is proven or explained, the surest first."""
        return tuple(sorted(self._of_kind("cause"), key=lambda one: one.confidence != "proven"))

    @cached_property
    def accounts(self) -> Causes:
        """The same as mistakes, each with the entries that do not pass because of it."""
        return causes_of(self.alignment, self.rows, self.causes)

    @property
    def hints(self) -> tuple[Finding, ...]:
        """What is worth a look: nothing proves or explains it."""
        return self._of_kind("hint")

    @property
    def doubts(self) -> tuple[Finding, ...]:
        """Why a pass proves nothing."""
        return self.alignment.doubts

    @property
    def observations(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.alignment.findings if one.kind == "remark")

    def _of_kind(self, kind: Kind) -> tuple[Finding, ...]:
        """The causes or hints there are; none when every entry passes, as under a looser policy than found them."""
        if set(self.alignment.verdict.counts) == {Status.PASS}:
            return ()
        return tuple(one for one in self.alignment.findings if one.kind == kind)

    @cached_property
    def warnings(self) -> tuple[Message, ...]:
        """What was asked for and had no effect."""
        return tuple(map(_warning, unused_patterns(self.alignment.comparison, self.alignment.policy)))

    @cached_property
    def certainty(self) -> Certainty:
        return certainty_of(self.alignment, self.divergence)

    @property
    def where(self) -> tuple[Message, ...]:
        """Where it first goes wrong, in what way, and the last place where it was right."""
        first, last = self.divergence, self.last_agreement
        if first is None:
            return ()
        return (
            message("first.divergence", entry=first.title, status=first.status.value),
            message("reason", reason=first.reason),
            message("last.agreement", entry=last.title) if last else message("last.none"),
        )

    @property
    def shown_causes(self) -> tuple[Cause, ...]:
        """The surest of each mistake: the same one in five layers needs saying once."""
        return self.accounts.causes[:MOST_CAUSES]

    @property
    def more_causes(self) -> tuple[Finding, ...]:
        """Those for which a first screen has no room."""
        shown = [one.finding for one in self.shown_causes]
        return tuple(one for one in self.causes if one not in shown)

    @property
    def own_failures(self) -> tuple[ReportRow, ...]:
        """What does not pass, without what it inherited from a cause that is named."""
        return tuple(row for row in self.rows if not row.status.passed and row.key not in self.accounts.inherited)

    @property
    def cause(self) -> tuple[Message, ...]:
        """What to say about the cause when no rule found one; nothing when the verdict needs no cause."""
        return () if self.passed or self.causes or self.divergence is None else (message("cause.unknown"),)

    @property
    def passing(self) -> Message:
        """How many entries pass, where none fails."""
        total, accepted = len(self.alignment.verdict.judgements), self.alignment.verdict.counts.get(Status.ACCEPTED, 0)
        if accepted:
            return message("headline.accepted.some", passed=total - accepted, total=total, accepted=accepted)
        return message("plan.entries", total=total)

    @cached_property
    def headline(self) -> Message:
        """The answer in one line."""
        verdict = self.alignment.verdict
        total, counts = len(verdict.judgements), verdict.counts
        if verdict.status is Status.NOTHING:
            return message("headline.nothing")
        if verdict.status in (Status.INCOMPLETE, Status.UNPROVEN):
            return message(f"headline.{verdict.status.value.lower()}", entries=self.passing)
        suspects, known = counts.get(Status.SUSPECT, 0), counts.get(Status.ACCEPTED, 0)
        passed = counts.get(Status.PASS, 0) + suspects
        if verdict.passed:
            whole = message("headline.pass", total=total)
            if known:
                whole = message("headline.accepted", passed=passed, total=total, accepted=known)
            return message("headline.suspect", sentence=whole, suspects=suspects) if suspects else whole
        if self.accounts.explained:
            return message(
                "headline.causes" if self.accounts.ran_alone else "headline.causes.behind",
                causes=len(self.accounts.causes),
                explained=self.accounts.explained,
                differences=self.accounts.differences,
            )
        parts = tuple(
            message("status.count", count=count, status=status.value, word=status.value.lower())
            for status, count in self.counts
            if not status.passed or status is Status.ACCEPTED
        )
        return message("headline.fail", parts=parts, passed=passed, total=total)

    @cached_property
    def advice(self) -> tuple[Text, ...]:
        """The advice of the findings; without any, where to look first for a divergence of this kind."""
        of_causes = list(dict.fromkeys(one.advice for one in self.causes if one.advice))
        found: list[Text] = [*of_causes[:MOST_CAUSES]] or [self._general_advice()]
        precision = self.status is Status.PRECISION
        if self.divergence is not None and (precision or may_be_rounding(self.divergence)):
            near = "advice.near" if self.alignment.floor is None else "advice.near.measured"
            found.append(message("advice.precision" if precision else near))
        return tuple(found)

    @property
    def other_advice(self) -> tuple[Text, ...]:
        """What to do besides the advice that stands with the causes."""
        with_causes = [one.finding.advice for one in self.shown_causes]
        return tuple(one for one in self.advice if one not in with_causes)

    def _general_advice(self) -> Message:
        status, first = self.status, self.divergence
        if status is Status.NOTHING:
            return message("advice.nothing")
        if status in (Status.INCOMPLETE, Status.UNPROVEN):
            return message(f"advice.{status.value.lower()}")
        if first is None:
            return self._advice_after_a_pass() if self.passed else message("advice.unmatched")
        if first.status is Status.INCOMPARABLE:
            estimated = first.judgement.evidence.is_estimate
            return message("advice.estimated" if estimated else "advice.incomparable", entry=first.title)
        phase = first.key.phase or "classic"
        alone = ".alone" if phase == "forward" and first.key.run.startswith("isolated") else ""
        return message(f"advice.{phase}{alone}", path=Name(first.key.path))

    def _advice_after_a_pass(self) -> Message:
        """What is left to do when all passes: most for a pass that proves nothing."""
        if self.doubts:
            return message("advice.allowed_unproven")
        if self.status is Status.SUSPECT:
            return message("advice.suspect")
        if accepted_keys(self.alignment):
            return message("advice.accepted")
        return message("advice.passed" if self.alignment.floor is not None else "advice.passed.fixed")


def _warning(one: UnusedPattern) -> Message:
    near = tuple(map(Name, one.near))
    id = "warning.pattern.near" if near else "warning.pattern"
    return message(id, option=one.option, pattern=Name(one.pattern), **({"near": near} if near else {}))


def headline(alignment: Alignment, *, language: str = "en") -> str:
    """The answer in one line."""
    return words(language)(FirstScreen(alignment).headline)


Role = Literal["headline", "where", "cause", "detail", "advice", "warning", "side", "note"]


@dataclass(frozen=True)
class Line:
    """One line: what it is, how far it is set in, and its text, which is safe to print."""

    role: Role
    indent: int
    text: str


def first_lines(screen: FirstScreen, words: Words) -> list[Line]:
    """Verdict, where, why, what to do, how sure."""

    def phrase(what: Text) -> str:
        return plain(words(what))

    lines = [Line("headline", 0, phrase(screen.headline))]
    lines += [Line("warning", 2, f"{words.get('warning')}: {phrase(one)}") for one in screen.warnings]
    lines += [Line("where", 4 if one.id == "reason" else 2, phrase(one)) for one in screen.where]
    for one in screen.shown_causes:
        lines += _finding(one.finding, words.get("cause"), words)
        lines[-1:] = [lines[-1], *(Line("detail", 4, plain(words(place))) for place in one.places[:MOST_CAUSES])]
    if screen.more_causes:
        lines.append(Line("detail", 2, words(message("cause.more", count=len(screen.more_causes)))))
    lines += [Line("cause", 2, f"{words.get('cause')}: {phrase(one)}") for one in screen.cause]
    for found in screen.hints:
        lines += _finding(found, words.get("hint"), words)
    advice = [Line("advice", 2, f"{words.get('what.to.do')}: {phrase(one)}") for one in screen.advice]
    if screen.shown_causes:
        # It is about them; other findings bring their own.
        lines, advice = lines + advice, []
    for found in screen.doubts:
        lines += _finding(found, words.get("doubt"), words)
    for found in screen.observations:
        lines += _finding(found, words.get("note"), words)
    lines += advice
    level = words.get(f"sure.{screen.certainty.level}")
    lines.append(Line("detail", 2, f"{words.get('how.sure')}: {level}"))
    lines += [Line("detail", 4, phrase(one)) for one in (*screen.certainty.doubts, *screen.certainty.grounds)]
    return lines


def side_lines(alignment: Alignment, words: Words) -> list[Line]:
    """What the two sides are."""
    return [
        Line("side", 0, plain(_side(words.get(name), side, words)))
        for name, side in (("reference", alignment.reference), ("candidate", alignment.candidate))
    ]


def note_lines(alignment: Alignment, words: Words) -> list[Line]:
    """What a reader should know besides the verdict."""
    return [Line("note", 0, f"{words.get('note')}: {plain(words(one))}") for one in remarks(alignment)]


def _finding(found: Finding, kind: str, words: Words) -> list[Line]:
    sure = f"  [{words.get(found.confidence)}]" if found.kind == "cause" else ""
    lines = [Line("cause", 2, f"{kind}: {plain(words(found.cause))}{sure}")]
    if found.evidence:
        lines.append(Line("detail", 4, plain(words(found.evidence))))
    if found.advice and found.kind != "cause":
        lines.append(Line("advice", 4, f"{words.get('what.to.do')}: {plain(words(found.advice))}"))
    return lines


def _side(name: str, side: Source, words: Words) -> str:
    provenance = side.provenance
    known = " ".join(part for part in (provenance.framework, provenance.framework_version, provenance.dtype) if part)
    origin = f" ({known})" if known else ""
    source = side.source or words.get("side.unknown")
    return words(message("side.line", side=name, source=source, entries=side.entries, origin=origin))


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
    # A fix that removed the difference when it was run shows a defect, whatever else is in doubt.
    causes = [one for one in alignment.findings if one.kind == "cause" and not alignment.passed]
    shown = any(one.confidence == "proven" for one in causes)
    if not judged or "sure.assumed" in kinds or (doubts and not shown):
        level: Level = "weak"
    else:
        level = "strong" if set(kinds) <= _STRONG and not doubts else "fair"
    return Certainty(level, grounds, doubts)


def _doubts(alignment: Alignment, divergence: ReportRow | None) -> list[Message]:
    found = []
    for name, side in (("reference", alignment.reference), ("candidate", alignment.candidate)):
        if not side.complete:
            found.append(message(f"doubt.incomplete.{name}"))
    unsure = unproven_pairs(alignment)
    if unsure:
        least = min(unsure, key=lambda row: row.confidence)
        found.append(
            message(
                "doubt.match",
                count=len(unsure),
                how=message(f"how.{least.how}"),
                confidence=Number(least.confidence, ".0%"),
            )
        )
    if alignment.floor is not None and alignment.floor.notes:
        found.append(message("doubt.floor", note=alignment.floor.notes[0]))
    if alignment.doubts:
        passes = alignment.passed or alignment.status is Status.UNPROVEN
        found.append(message("doubt.unproven" if passes else "doubt.evidence", count=len(alignment.doubts)))
    if alignment.passed:
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
