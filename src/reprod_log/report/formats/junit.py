"""JUnit XML: one test case per entry, so that any CI shows which do not pass; one per phase when there are many."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

from reprod_log.alignment import Alignment
from reprod_log.errors import counted
from reprod_log.messages import Words, message, words
from reprod_log.recording import Key
from reprod_log.report import USUAL, Options
from reprod_log.report.first_screen import headline
from reprod_log.report.formats import text
from reprod_log.report.groups import Group, groups
from reprod_log.report.view import ReportRow, in_run, rows
from reprod_log.report.writing import plain, shortened
from reprod_log.verdict import Status

SUFFIXES = (".xml",)

_MOST_CASES = 5_000
"""CI systems give up on more; beyond it a case is a phase of a step, unless the full form is asked for."""
_LONGEST = 500
_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(alignment: Alignment, options: Options = USUAL) -> str:
    """A suite per step and phase. Whatever is not a pass is a failure; entries let through are skipped cases."""
    phrase = words(options.language)
    everything = rows(alignment)
    by_entry = options.full or len(everything) <= _MOST_CASES
    top = ElementTree.Element("testsuites", name=_safe(headline(alignment, language=options.language)))
    _whole(top, alignment, options.language)
    for group in groups(everything):
        suite = ElementTree.SubElement(top, "testsuite", name=_suite(group))
        for row in group.rows if by_entry else ():
            _case(suite, row, phrase)
        if not by_entry:
            _group_case(suite, group, phrase)
        _count(suite)
    _allowed(top, alignment, phrase)
    _count(top)
    ElementTree.indent(top)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ElementTree.tostring(top, encoding='unicode')}\n"


def _suite(group: Group) -> str:
    return _safe(in_run(group.run, f"step{group.step}/{group.phase}" if group.phase else "entries"))


def _case(suite: ElementTree.Element, row: ReportRow, phrase: Words) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=suite.attrib["name"], name=_safe(row.key))
    if not row.status.passed:
        _fail(case, row.status.value, phrase(row.reason), "\n".join(_numbers(row, phrase)))
    elif row.status is Status.ACCEPTED:
        ElementTree.SubElement(case, "skipped", message=_safe(phrase(row.reason)))
    elif row.reason:
        ElementTree.SubElement(case, "system-out").text = _safe(phrase(row.reason))


def _group_case(suite: ElementTree.Element, group: Group, phrase: Words) -> None:
    total = len(group.rows)
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=suite.attrib["name"],
        name=f"{suite.attrib['name']}: {counted(total, 'entry', 'entries')}",
    )
    failed = [row for row in group.rows if not row.status.passed]
    if failed:
        lines = [f"{row.status.value} {_safe(phrase(row.title))}: {_safe(phrase(row.reason))}" for row in failed[:20]]
        rest = [phrase(message("table.more", count=len(failed) - 20, how="--all"))] if len(failed) > 20 else []
        _fail(
            case,
            group.status.value,
            phrase(message("junit.failing", count=len(failed), total=total)),
            "\n".join([*lines, *rest]),
        )


def _whole(top: ElementTree.Element, alignment: Alignment, language: str) -> None:
    """Both sides, the policy and the first screen, and the first case of all: the verdict."""
    suite = ElementTree.SubElement(top, "testsuite", name="alignment")
    properties = ElementTree.SubElement(suite, "properties")
    for name, side in (("reference", alignment.reference), ("candidate", alignment.candidate)):
        ElementTree.SubElement(properties, "property", name=name, value=_safe(side.source))
    ElementTree.SubElement(properties, "property", name="policy", value=alignment.policy.name)
    body = text.render(alignment, Options(language=language))
    case = ElementTree.SubElement(suite, "testcase", classname="alignment", name="verdict")
    if not alignment.passed:
        _fail(case, alignment.status.value, headline(alignment, language=language), body)
    ElementTree.SubElement(suite, "system-out").text = _safe(body, lines=True)
    _count(suite)


def _allowed(top: ElementTree.Element, alignment: Alignment, phrase: Words) -> None:
    if not alignment.verdict.allowed:
        return
    suite = ElementTree.SubElement(top, "testsuite", name=phrase.get("coverage.allowed"))
    for key in alignment.verdict.allowed:
        case = ElementTree.SubElement(suite, "testcase", classname=suite.attrib["name"], name=_safe(key))
        ElementTree.SubElement(case, "skipped", message=phrase.get("junit.allowed"))
    _count(suite)


def _fail(case: ElementTree.Element, status: str, reason: str, body: str) -> None:
    failure = ElementTree.SubElement(case, "failure", type=status, message=_safe(reason))
    failure.text = _safe(body, lines=True)


def _numbers(row: ReportRow, phrase: Words) -> list[str]:
    if row.compared is None:
        return []
    lines = [
        phrase(row.title),
        f"{phrase.get('shape')} {row.shape}, {row.dtype}",
        f"{phrase.get('entry.matched')}: {phrase.get(f'how.{row.compared.how}')}",
    ]
    lines += [
        f"{check.metric} {check.value:.6g}, {phrase.get('entry.limit')} {check.limit:.6g}"
        + (f", {phrase.get('floor')} {check.floor:.6g}" if check.floor is not None else "")
        for check in row.judgement.checks
        if not math.isnan(check.value)
    ]
    return [*lines, f"{phrase.get('evidence')}: {phrase(row.judgement.evidence.message)}"]


def _count(suite: ElementTree.Element) -> None:
    suite.set("tests", str(len(list(suite.iter("testcase")))))
    suite.set("failures", str(len(list(suite.iter("failure")))))
    suite.set("errors", "0")
    suite.set("skipped", str(len(list(suite.iter("skipped")))))


def _safe(value: str | Key, *, lines: bool = False) -> str:
    """Text that XML can hold, control characters made visible; only our own line breaks stay."""
    if lines:
        return "\n".join(_FORBIDDEN.sub("?", plain(line)) for line in str(value).split("\n"))
    return shortened(_FORBIDDEN.sub("?", plain(value)), _LONGEST)
