"""The first screen as lines of text, for the terminal and for plain text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reprod_log.alignment import Alignment
from reprod_log.diagnose import Finding
from reprod_log.messages import Text, Words, message
from reprod_log.recording.recording import Source
from reprod_log.report.first_screen import FirstScreen
from reprod_log.report.plain import plain
from reprod_log.report.view import remarks

Role = Literal["headline", "where", "cause", "detail", "advice", "warning", "side", "note"]


@dataclass(frozen=True)
class Line:
    """One line: what it is, how far it is set in, and its text, which is safe to print."""

    role: Role
    indent: int
    text: str


def first_lines(screen: FirstScreen, words: Words) -> list[Line]:
    """Verdict, where, why, what to do, how sure."""

    def told(what: Text) -> str:
        return plain(words(what))

    lines = [Line("headline", 0, told(screen.headline))]
    lines += [Line("warning", 2, f"{words.get('warning')}: {told(one)}") for one in screen.warnings]
    lines += [Line("where", 4 if one.id == "reason" else 2, told(one)) for one in screen.where]
    for found in screen.shown_causes:
        lines += _finding(found, words.get("cause"), words)
    if screen.more_causes:
        lines.append(Line("detail", 2, words(message("cause.more", count=len(screen.more_causes)))))
    lines += [Line("cause", 2, f"{words.get('cause')}: {told(one)}") for one in screen.cause]
    advice = [Line("advice", 2, f"{words.get('what.to.do')}: {told(one)}") for one in screen.advice]
    if screen.shown_causes:
        # It is about them; other findings bring their own.
        lines, advice = lines + advice, []
    for found in screen.suspicious:
        lines += _finding(found, words.get("suspicious"), words)
    for found in screen.observations:
        lines += _finding(found, words.get("note"), words)
    lines += advice
    level = words.get(f"sure.{screen.certainty.level}")
    lines.append(Line("detail", 2, f"{words.get('how.sure')}: {level}"))
    lines += [Line("detail", 4, told(one)) for one in (*screen.certainty.doubts, *screen.certainty.grounds)]
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
    lines = [Line("cause", 2, f"{kind}: {plain(words(found.cause))}  [{words.get(found.confidence)}]")]
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
