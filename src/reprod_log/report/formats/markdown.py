"""Markdown for a pull request: the answer, what does not pass, losses, environment; as long as a comment may be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from reprod_log.alignment import Alignment
from reprod_log.messages import Name, Text, Words, message, words
from reprod_log.recording import Key
from reprod_log.report import USUAL, Options
from reprod_log.report.curves import Curve, curves
from reprod_log.report.facts import Fact, provenance_facts
from reprod_log.report.first_screen import FirstScreen
from reprod_log.report.groups import groups, share
from reprod_log.report.map_view import map_rows
from reprod_log.report.view import MARKS, ReportRow, in_run, remarks
from reprod_log.report.writing import number, plain, shortened, times

SUFFIXES = (".md", ".markdown")
LIMIT = 65_536
"""The most characters that a GitHub comment may have."""

_SHORT_CURVES = 4
_NUMBERS = ("mean_abs", "max_abs", "mean_rel", "max_rel", "cosine_distance")


def render(alignment: Alignment, options: Options = USUAL) -> str:
    """The short form, or with `full` every entry; what does not fit into a comment is counted and left out."""
    phrase = words(options.language)
    screen = FirstScreen(alignment)
    everything = screen.rows
    shown = everything if options.full else screen.own_failures
    sections = [
        _answer(alignment, screen, phrase, full=options.full),
        _entries(shown, phrase, "section.all" if options.full else "section.failing"),
        _steps(everything, phrase),
        *(_curve(curve, phrase) for curve in curves(everything)[: None if options.full else _SHORT_CURVES]),
        _map(alignment, phrase),
        _environment(alignment, phrase, full=options.full),
        _notes(alignment, phrase),
    ]
    title = f"## {MARKS[screen.status]} {text(phrase(screen.headline))}\n"
    parts = _fitted(
        [one for one in sections if one.rows], LIMIT - len(title) - len(sections), phrase, full=options.full
    )
    return "\n".join([title, *parts])


def _fitted(sections: list[Section], space: int, phrase: Words, *, full: bool) -> list[str]:
    """Each section with as many rows as it may have and as still fit; the long ones take what the others leave."""
    found: dict[int, str] = {}
    for place in sorted(range(len(sections)), key=lambda place: sections[place].long):
        section = sections[place]
        total = len(section.rows)
        rows = total if full else min(section.short, total)
        rendered = section.cut(rows).render(_note(phrase, rows, total=total, why="left.short"))
        while len(rendered) > space and rows:
            rows = min(rows - 1, rows * space // len(rendered))
            rendered = section.cut(rows).render(_note(phrase, rows, total=total, why="left.limit"))
        if len(rendered) <= space:
            space -= len(rendered)
            found[place] = rendered
    return [found[place] for place in sorted(found)]


def _note(phrase: Words, rows: int, *, total: int, why: str) -> str:
    if rows == total:
        return ""
    return f"*{phrase(message('left.out', count=total - rows, total=total, why=phrase.get(why)))}*"


def _answer(alignment: Alignment, screen: FirstScreen, phrase: Words, *, full: bool) -> Section:
    def sentence(what: Text) -> str:
        return text(phrase(what))

    lines = [("warning", f"⚠ {text(phrase(one))}") for one in screen.warnings]
    if alignment.since:
        lines.append(("section.since", "<br>".join(map(sentence, alignment.since))))
    if screen.divergence is not None:
        first = screen.divergence
        lines.append(("first", f"{code(phrase(first.title))} **{first.status.value}**<br>{sentence(first.reason)}"))
        lines.append(
            (
                "last",
                code(phrase(screen.last_agreement.title)) if screen.last_agreement else sentence(message("last.none")),
            )
        )
    for one in screen.shown_causes:
        found = one.finding
        parts = [f"{sentence(found.cause)} *({phrase.get(found.confidence)})*", *map(sentence, one.places)]
        parts += [sentence(found.evidence), sentence(one.account)] if one.explained else [sentence(found.evidence)]
        lines.append(("cause", "<br>".join(parts)))
    if full:
        lines += [("cause", f"{sentence(one.cause)}<br>{sentence(one.evidence)}") for one in screen.more_causes]
    elif screen.more_causes:
        lines.append(("cause", sentence(message("cause.more", count=len(screen.more_causes)))))
    lines += [("cause", sentence(one)) for one in screen.cause]
    lines += [("hint", f"{sentence(one.cause)}<br>{sentence(one.evidence)}") for one in screen.hints]
    lines += [("doubt", f"{sentence(one.cause)}<br>{sentence(one.evidence)}") for one in screen.doubts]
    lines.append(("what.to.do", "<br>".join(sentence(one) for one in screen.advice)))
    sure = [*screen.certainty.doubts, *screen.certainty.grounds]
    lines.append(("how.sure", "<br>".join([phrase.get(f"sure.{screen.certainty.level}"), *map(sentence, sure)])))
    lines.append(("compared", f"{_side(alignment, 'reference', phrase)} → {_side(alignment, 'candidate', phrase)}"))
    return Section("", ("", ""), [(f"**{phrase.get(name)}**", value) for name, value in lines])


def _side(alignment: Alignment, name: str, phrase: Words) -> str:
    side = alignment.reference if name == "reference" else alignment.candidate
    provenance = side.provenance
    known = [part for part in (provenance.framework, provenance.framework_version, side.source) if part]
    return f"{phrase.get(name)} {' '.join(map(code, known))}" if known else phrase.get(name)


def _steps(everything: Iterable[ReportRow], phrase: Words) -> Section:
    columns = [phrase.get(name) for name in ("step", "phase", "status", "worst", "entries", "rel_l2", "times_limit")]
    lines = []
    for group in groups(everything):
        phase = in_run(group.run, group.phase)
        lines.append(
            (
                "–" if group.step is None else str(group.step),
                text(phase) if phase else phrase.get("classic"),
                f"{MARKS[group.status]} {group.status.value}",
                code(phrase(group.worst.title)),
                share(group.counts),
                group.worst.text("rel_l2"),
                times(group.worst.times_limit),
            )
        )
    return Section(phrase.get("section.steps"), columns, lines, right=3, short=12)


def _entries(shown: Iterable[ReportRow], phrase: Words, title: str) -> Section:
    shown = tuple(shown)
    floors = any(row.floor is not None for row in shown)
    # What decides stands where it is seen without scrolling.
    ratio = "times_floor" if floors else "times_limit"
    names = ["status", ratio, "entry", "shape", *_NUMBERS, *(["floor"] if floors else [])]
    lines = []
    for row in shown:
        lines.append(
            (
                f"{MARKS[row.status]} {row.status.value}",
                times(row.times_floor if floors else row.times_limit),
                code(phrase(row.title)),
                text(row.shape),
                *(row.text(name) for name in _NUMBERS),
                *([number(row.floor)] if floors else []),
            )
        )
    right = len(_NUMBERS) + (1 if floors else 0)
    return Section(phrase.get(title), [phrase.get(name) for name in names], lines, right=right, long=True)


def _curve(curve: Curve, phrase: Words) -> Section:
    floors = any(point.floor is not None for point in curve.points)
    names = ["step", "status", "reference", "candidate", "difference", *(["floor"] if floors else [])]
    lines = [
        (
            str(point.step),
            f"{MARKS[point.row.status]} {point.row.status.value}",
            f"{point.reference:.8g}",
            f"{point.candidate:.8g}",
            number(point.difference),
            *([number(point.floor)] if floors else []),
        )
        for point in curve.points
    ]
    title = phrase(message("curve.title", name=Name(in_run(curve.run, curve.name))), name=code)
    return Section(title, [phrase.get(name) for name in names], lines, right=len(names) - 2)


def _map(alignment: Alignment, phrase: Words) -> Section:
    """Of each weight of the candidate what it is made of; as far as there is room."""
    names = ("candidate", "shape", "reference", "map.transform", "map.evidence")
    lines = [
        (
            code(row.target),
            row.shape,
            "<br>".join(map(code, row.sources)),
            text(phrase(row.steps)),
            text(phrase(row.evidence)),
        )
        for row in map_rows(alignment.weight_map)
    ]
    return Section(phrase.get("section.map"), [phrase.get(name) for name in names], lines)


def _environment(alignment: Alignment, phrase: Words, *, full: bool) -> Section:
    """What differs and matters is marked; the short form leaves out what is the same on both sides."""
    facts = [fact for fact in provenance_facts(alignment) if full or _is_telling(fact)]
    lines = [
        (
            f"**{text(fact.name)}**" if fact.matters else text(fact.name),
            code(fact.reference) if fact.reference else "–",
            code(fact.candidate) if fact.candidate else "–",
            f"⚠ {phrase.get('matters')}" if fact.matters else "≠" if fact.differs else "",
        )
        for fact in facts
    ]
    names = ("field", "reference", "candidate")
    return Section(phrase.get("section.environment"), [*(phrase.get(name) for name in names), ""], lines)


def _is_telling(fact: Fact) -> bool:
    """Whether a short report should show it: what differs, but not how and when it was started, and no long lists."""
    if fact.name in ("device", "dtype") or fact.matters:
        return True
    if fact.name == "time" or fact.name.startswith(("run.", "optimizers.")):
        return False
    return fact.differs


def _notes(alignment: Alignment, phrase: Words) -> Section:
    return Section(phrase.get("section.notes"), [""], [(text(phrase(note)),) for note in remarks(alignment)])


_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$])")
_LONGEST_NAME = 120
_LONGEST_TEXT = 1000


def code(name: str | Key) -> str:
    """A name as a code span inside a table cell: nothing in it is a link, a mention, HTML or the end of the cell."""
    text = shortened(plain(name), _LONGEST_NAME).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    return f"{fence}{space}{text}{space}{fence}"


def text(value: str) -> str:
    """Running text inside a table cell with every sign that Markdown or GitHub would act on made harmless."""
    safe = _SPECIAL.sub(r"\\\1", shortened(plain(value), _LONGEST_TEXT).replace("&", "&amp;"))
    # Mentions, issue numbers and bare addresses are made from the finished text, which an escape does not change.
    safe = safe.replace("@", "@\u200b").replace("#", "#\u200b").replace("://", "&#58;//")
    return re.sub(r"(?i)\bwww\.", "www&#46;", safe)


@dataclass(frozen=True)
class Section:
    """A heading and a table below it, whose last rows may be cut."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: int = 0
    """How many of the last columns hold numbers."""
    short: int = 20
    """How many rows the short form shows."""
    long: bool = False
    """Whether it takes only the space that the others leave."""

    def cut(self, rows: int) -> Section:
        return replace(self, rows=self.rows[:rows])

    def render(self, note: str = "") -> str:
        sides = ["---"] * (len(self.columns) - self.right) + ["---:"] * self.right
        lines = [f"### {self.title}", ""] if self.title else []
        lines += [_row(self.columns), _row(sides), *map(_row, self.rows), ""]
        return "\n".join([*lines, note, ""] if note else lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
