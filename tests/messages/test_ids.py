"""The ids of messages: the source and the tables know the same ones, and no sentence goes around them as plain text."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from reprod_log.messages import PLACE, known_languages, words
from reprod_log.pairing.pairing import How
from reprod_log.pairing.units import PairedBy
from reprod_log.recording.key import PHASES
from reprod_log.report.first_screen import Level
from reprod_log.report.html_data import COLUMNS, COUNTS, SIDE
from reprod_log.report.map_view import PROOFS
from reprod_log.transfer.verification import Status as Check
from reprod_log.verdict import Basis, CalibratedPolicy, Status

SOURCE = Path(__file__).parents[2] / "src" / "reprod_log"
ENGLISH = words().sentences
SIDES = ("reference", "candidate")
FAMILIES = {
    *(f"advice.{phase}" for phase in PHASES),
    "advice.classic", "advice.forward.alone",
    *(f"basis.{one.name.lower()}" for one in Basis),
    *(f"cause.odd_pass.{how}" for how in ("data", "rates", "outputs", "apart", "truths", "repeats")),
    *(f"counts.{name}" for name in COUNTS),
    *(f"doubt.incomplete.{side}" for side in SIDES),
    *(f"how.{how}" for how in get_args(How)),
    *(f"{kind}.{word}" for kind in ("headline", "advice") for word in ("incomplete", "unproven")),
    *(f"note.experiments.cannot.{ability}" for ability in ("float64", "gradient", "isolate", "emulate")),
    *(f"{kind}.{word}" for kind in ("plan", "hand_in", "site") for word in ("pass", "fail", "unproven")),
    *(f"policy.{name}" for name, value in CalibratedPolicy().to_dict().items() if type(value) is float),
    *(f"proof.{proof}" for proof in PROOFS),
    *(f"reason.only_in_{side}.near" for side in SIDES),
    *(f"since.{how}" for how in ("fixed", "broken", "cause.fixed", "cause.new", "cause.moved")),
    *(f"side.{name}" for name in SIDE),
    *(f"status.{one.name}" for one in Status),
    *(f"term.{name}" for name in COLUMNS),
    *(f"sure.{level}" for level in get_args(Level)),
    *(f"transfer.how.{how.replace(' ', '_')}" for how in get_args(PairedBy)),
    *(f"transfer.{status}{count}" for status in get_args(Check) for count in ("", ".count")),
}  # fmt: skip
"""Ids that are put together from a prefix and a value of a closed set."""
FINDINGS = json.loads((SOURCE / "diagnose" / "findings.json").read_text(encoding="utf-8"))
"""What the diagnosis can find: by the id of a cause, or of a part of one, the ids that go with it."""
GETTERS = {"message", "get", "t", "sentence"}
TELLING = {
    "note", "notes", "reason", "reasons", "cause", "evidence", "advice", "problem", "view", "basis", "incomparable",
}  # fmt: skip
"""Keywords whose values a reader sees: messages, never text."""
WRITERS = {"Foreign", "View", "note", "message"}
"""What is called with something that a reader sees."""
SENTENCE = re.compile(r"[A-Za-z]{2,}'?,? [A-Za-z]{2,}")
PLAIN_TEXT = {
    # The classic face has its own words, which no table may change.
    "classic",
}


@cache
def trees() -> tuple[tuple[Path, ast.Module], ...]:
    return tuple((path, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(SOURCE.rglob("*.py")))


def called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def literals(node: ast.expr) -> Iterator[str]:
    """The texts that an expression can be, as far as they are written down."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from (*literals(node.body), *literals(node.orelse))


def template_ids() -> Iterator[str]:
    """The ids that templates and scripts ask for."""
    for path in (*SOURCE.rglob("*.j2"), *SOURCE.rglob("*.js")):
        text = path.read_text(encoding="utf-8")
        yield from re.findall(r"""\b(?:t|sentence|get)\(["']([\w.]+)["'][,)]""", text)
        yield from re.findall(r"""\battribute\("[\w-]+", "([\w.]+)"\)""", text)
        yield from re.findall(r"""data-t="([\w.]+)\"""", text)


def test_every_id_that_the_source_asks_for_exists() -> None:
    asked = {
        (path.name, id)
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and called(node) == "message" and node.args
        for id in literals(node.args[0])
    } | {("a template", id) for id in template_ids()}
    assert len(asked) > 500
    assert {one for one in asked if one[1] not in ENGLISH} == set()
    assert FAMILIES - set(ENGLISH) == set()


def test_every_id_of_the_tables_is_used() -> None:
    written = {
        node.value
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    # The columns of a table and the choices of a page stand in lists, in Python and in the scripts.
    scripts = " ".join(path.read_text(encoding="utf-8") for path in (*SOURCE.rglob("*.j2"), *SOURCE.rglob("*.js")))
    quoted = set(re.findall(r"""["']([\w.]+)["']""", scripts))
    assert set(ENGLISH) - written - quoted - FAMILIES - finding_ids() == set()


def finding_ids() -> set[str]:
    return {id for row in FINDINGS.values() for name in ("evidence", "advice") for id in row.get(name, ())}


def test_rows_of_findings_are_made_of_messages_and_each_is_made_somewhere() -> None:
    written = {node.value for _, tree in trees() for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert finding_ids() | set(FINDINGS) <= set(ENGLISH)
    assert set(FINDINGS) - written - FAMILIES == set()


def test_findings_are_given_every_argument_of_their_rows() -> None:
    """What a row's messages have no place for is dropped, so one that is missing would only show when it is made."""
    wrong = []
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and called(node) in ("told", "what") and node.args:
                given = {one.arg for one in node.keywords}
                for id in literals(node.args[0]):
                    row = FINDINGS[id]
                    ids = [id, *row.get("evidence", ()), *row.get("advice", ())]
                    # A whole cause that is passed on gets the rest of its arguments where the finding is made.
                    if called(node) == "what" and id.startswith("cause."):
                        continue
                    places = {place[1] for one in ids for table in tables() for place in PLACE.finditer(table[one])}
                    if not places <= given:
                        wrong.append((path.name, node.lineno, id, sorted(places - given)))
    assert wrong == []


def tables() -> list[Mapping[str, str]]:
    return [words(language).sentences for language in known_languages()]


def test_messages_are_given_the_arguments_that_their_rows_have_places_for() -> None:
    wrong = []
    for path, tree in trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or called(node) != "message" or len(node.args) != 1:
                continue
            if any(one.arg is None for one in node.keywords):
                continue
            given = {one.arg for one in node.keywords}
            for id in literals(node.args[0]):
                # `status.count` has a word for running English and the status as all languages write it.
                rows = [words(language).sentences[id] for language in known_languages()]
                if given != {place[1] for row in rows for place in PLACE.finditer(row)}:
                    wrong.append((path.name, node.lineno, id, sorted(map(str, given))))
    assert wrong == []


def texts(node: ast.expr) -> Iterator[str]:
    """What is written down in an expression as plain text; what another call makes of text is that call's own."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(one.value if isinstance(one, ast.Constant) else "{}" for one in node.values)
    elif isinstance(node, (ast.IfExp, ast.BoolOp, ast.BinOp, ast.Tuple, ast.List, ast.Starred)):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from texts(child)


def plain_sentences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Sentences in places where a message belongs."""
    raised = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Raise) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or id(node) in raised:
            continue
        name = called(node)
        given = [one.value for one in node.keywords if one.arg in TELLING or name == "message"]
        if name in WRITERS or (name == "append" and "notes" in ast.unparse(node.func)):
            given += node.args
        yield from ((node.lineno, text) for one in given for text in texts(one) if SENTENCE.search(text))


def test_no_sentence_stands_as_plain_text_where_a_message_belongs() -> None:
    found = [
        (path.relative_to(SOURCE).as_posix(), line, text)
        for path, tree in trees()
        if path.relative_to(SOURCE).parts[0] not in PLAIN_TEXT
        for line, text in plain_sentences(tree)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        'View("the rows come along other axes", axes=(1, 0))',
        'recorder.note("this was not recorded")',
        'self.notes.append(f"{path} was not called")',
        'Judgement(key, status, reason="not equal" if wrong else None)',
        'Foreign(f"it is compiled, {advice}")',
        'message("cause.data", name=name, step=0, what="another order of " + order)',
        'replace(recording, notes=(*recording.notes, "could not be saved"))',
    ],
)
def test_the_scan_finds_a_sentence(line: str) -> None:
    assert list(plain_sentences(ast.parse(line)))


ENGLISH_RUN = re.compile(r"(?:\b[a-z]+,? ){2}[a-z]+\b")
QUOTED = re.compile(r"`[^`]*`|\{[^{}]*\}")


def test_no_row_of_the_chinese_table_is_english() -> None:
    rows = {id: QUOTED.sub("", text) for id, text in words("zh").sentences.items()}
    assert {id: text for id, text in rows.items() if ENGLISH_RUN.search(text)} == {}
    assert sum(bool(ENGLISH_RUN.search(text)) for text in ENGLISH.values()) > 400
