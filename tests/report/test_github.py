"""GitHub Actions: summary and annotations, there and only there."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

from made_alignments import calibrated, classic, fixed, hostile
from test_cause_cards import lined

from reprod_log import Alignment
from reprod_log.diagnose import Finding
from reprod_log.messages import Code, Foreign, message
from reprod_log.report import render_report
from reprod_log.report.github import announce, workflow_commands


def announced(alignment: Alignment, **environment: str) -> str:
    stream = io.StringIO()
    announce(alignment, stream, environment=environment)
    return stream.getvalue()


def test_nothing_is_said_elsewhere() -> None:
    assert announced(classic()) == ""
    assert announced(classic(), GITHUB_ACTIONS="false") == ""


def test_summary_is_appended(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    assert announced(classic(), GITHUB_STEP_SUMMARY=str(summary)) == ""
    assert summary.read_text(encoding="utf-8").startswith("before\n## ✗ NOT ALIGNED")


def test_cause_comes_first_with_its_line_and_what_to_do() -> None:
    line = message("word.operator.at", name=Code("gelu"), line=Code("bert_paddle.py:23: x = gelu(x)"))
    advice = message("text", text=Foreign("use tanh: 100%"))
    cause = Finding("made_up", message("reason", reason=line), (), "explained", (advice,))
    lines = workflow_commands(replace(classic(), findings=(cause,)))
    assert lines[0] == (
        "::error file=bert_paddle.py,line=23,title=cause::gelu (bert_paddle.py:23: x = gelu(x))%0Ause tanh: 100%25"
    )
    assert lines[1].startswith("::error title=reprod_log::NOT ALIGNED")


def test_problems_have_the_line_to_change_as_editors_read_it() -> None:
    line = message("word.operator.at", name=Code("gelu"), line=Code("bert_paddle.py:23: x = gelu(x)"))
    cause = Finding(
        "made_up", message("reason", reason=line), (), "explained", (message("text", text=Foreign("fix it")),)
    )
    found = render_report(replace(classic(), findings=(cause,)), format="problems")
    assert found == "bert_paddle.py:23: error: gelu (bert_paddle.py:23: x = gelu(x)); fix it\n"
    assert render_report(fixed(wrong=False), format="problems") == ""
    without = render_report(replace(classic(), findings=()), format="problems")
    assert re.fullmatch(r"candidate:1: error: NOT ALIGNED.*\n", without)


def test_problem_matcher_of_the_documentation_reads_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
    matcher = json.loads(re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0])["problemMatcher"]["pattern"]
    found = re.match(matcher["regexp"], render_report(lined(calibrated()), format="problems").splitlines()[0])
    assert found is not None
    assert (found[matcher["file"]], found[matcher["line"]], found[matcher["severity"]]) == (
        "net_paddle.py",
        "23",
        "error",
    )


def test_hostile_names_cannot_begin_a_problem() -> None:
    assert all(re.match(r".+:\d+: error: ", line) for line in render_report(hostile(), format="problems").splitlines())


def test_first_divergence_is_annotated_after_the_verdict() -> None:
    lines = announced(classic(), GITHUB_ACTIONS="true").splitlines()
    assert lines[0].startswith("::error title=reprod_log::NOT ALIGNED")
    assert lines[1].startswith("::error title=FAIL loss_7::mean_abs 3e-05 > 1e-06")
    assert len(lines) == 4


def test_at_most_ten_errors_are_annotated() -> None:
    assert len(workflow_commands(fixed())) == 10


def test_aligned_run_gets_one_notice() -> None:
    assert [line.split(" ")[0] for line in workflow_commands(fixed(wrong=False))] == ["::notice"]


def test_hostile_names_cannot_begin_a_command() -> None:
    for line in announced(hostile(), GITHUB_ACTIONS="true").splitlines():
        assert line.startswith("::error title=")
        assert line.count("::") >= 2
        title = line.removeprefix("::error title=").split("::")[0]
        assert ":" not in title
        assert "," not in title
