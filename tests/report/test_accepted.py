"""Differences that were accepted are shown as ACCEPTED in every format, and counted."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from reprod_log import Alignment, Recording, Status, align
from reprod_log.report import render_report, write_report
from reprod_log.report.first_screen import headline
from reprod_log.report.terminal import print_alignment, terminal


def made(**options) -> Alignment:
    ours = {"a": np.ones(3), "b": np.ones(3), "c": np.ones(3)}
    return align(
        Recording.from_arrays(ours),
        Recording.from_arrays({**ours, "b": np.zeros(3), "c": np.zeros(3)}),
        **{"accept": ["b", "c"], **options},
    )


def test_headline_counts_what_was_accepted() -> None:
    assert headline(made()) == "ALIGNED: 1 of 3 entries pass; 2 accepted"
    assert headline(made(accept=["b"])) == "NOT ALIGNED: 1 fail, 1 accepted; 1 of 3 entries pass"
    assert "2 项虽有差异但已接受" in headline(made(), language="zh")


def test_accepted_entries_are_marked_in_text_markdown_and_html() -> None:
    assert "  ACCEPTED     b: accepted although: mean_abs 1 > 1e-06" in render_report(made(), format="text", full=True)
    assert "| ○ ACCEPTED | `b` |" in render_report(made(), format="markdown", full=True)
    assert '<span class="st ACCEPTED" style="flex-grow:2">○ 2 ACCEPTED</span>' in render_report(made(), format="html")


def test_accepted_entries_are_skipped_cases_in_junit() -> None:
    top = ElementTree.fromstring(render_report(made(), format="junit"))
    assert (top.attrib["tests"], top.attrib["failures"], top.attrib["skipped"]) == ("4", "0", "2")
    skipped = top.find(".//testcase[@name='b']/skipped")
    assert skipped is not None
    assert skipped.attrib["message"].startswith("accepted although: mean_abs 1")


def test_json_says_accepted_and_is_read_back(tmp_path: Path) -> None:
    path = write_report(made(), tmp_path / "a.json")
    assert [one["status"] for one in json.loads(path.read_text())["judgements"]] == ["PASS", "ACCEPTED", "ACCEPTED"]
    assert Alignment.load(path).verdict.counts == {Status.PASS: 1, Status.ACCEPTED: 2}


def test_terminal_marks_accepted_entries_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    print_alignment(made(), terminal())
    said = capsys.readouterr().out
    assert "○ ACCEPTED" in said
    assert "accepted although: mean_abs 1" in said


def test_pattern_without_effect_is_a_warning_in_every_report(capsys: pytest.CaptureFixture[str]) -> None:
    found = made(accept=["bb"])
    print_alignment(found, terminal())
    told = "--accept bb matches no entry and has no effect; similar: b"
    assert f"warning: {told}" in capsys.readouterr().out
    for format in ("text", "markdown", "html", "junit"):
        assert told in render_report(found, format=format)
