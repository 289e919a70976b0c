"""Causes and what they account for: the headline, inherited entries, source lines, the code to copy."""

from dataclasses import replace

import pytest
from made_alignments import calibrated, finding_of, fixed

from reprod_log import Alignment
from reprod_log.diagnose.finding import Finding
from reprod_log.messages import Code, Name, message
from reprod_log.recording import Key
from reprod_log.report import render_report
from reprod_log.report.answer import answer_of
from reprod_log.report.causes import Causes
from reprod_log.report.first_screen import FirstScreen, headline
from reprod_log.report.github import workflow_commands

LAYER = "layer1.1.conv2"
AT = Key.parse(f"step0/forward/{LAYER}#0:output")


def with_cause(alignment: Alignment, *keys: Key, cause: str = "it is wrong") -> Alignment:
    found = finding_of("made_up", cause, "seen", "proven", "change it", keys)
    return replace(alignment, findings=(*alignment.findings, found))


def accounts_of(alignment: Alignment) -> Causes:
    return FirstScreen(alignment).accounts


def test_cause_at_the_wrong_layer_explains_what_follows_when_nothing_else_is_wrong_alone() -> None:
    made = with_cause(calibrated(), AT)
    failing = [one for one in made.verdict.judgements if not one.status.passed]
    assert headline(made).startswith(f"NOT ALIGNED: 1 cause explains {len(failing)} of {len(failing)} differences")
    (cause,) = accounts_of(made).causes
    assert {row.key.path for row in cause.at} == {LAYER, f"{LAYER}.weight"}
    assert Key.parse("step0/loss/loss") in [row.key for row in cause.inherited]


def test_layer_that_is_wrong_alone_is_not_explained_by_a_cause_elsewhere() -> None:
    made = with_cause(calibrated(), Key.parse("step0/forward/fc#0:output"))
    found = accounts_of(made)
    assert AT.in_run("isolated") not in found.inherited
    assert found.explained < found.differences
    left = found.differences - found.explained
    own = [one for one in made.verdict.judgements if not one.status.passed and LAYER in one.key.path]
    assert left >= len(own)


def test_entries_before_a_cause_are_not_explained_by_it() -> None:
    made = with_cause(fixed(), Key.parse("step1/forward/fc#0:output"))
    keys = [row.key for one in accounts_of(made).causes for row in (*one.at, *one.inherited)]
    assert keys
    assert min(key.step or 0 for key in keys) == 1


def test_mistake_in_training_is_at_its_phase_and_what_layers_compute_later_is_inherited() -> None:
    (cause,) = accounts_of(with_cause(fixed(steps=2), Key.parse("step0/gradient/fc.weight:raw"))).causes
    assert {(row.key.phase, row.key.path) for row in cause.at} == {("gradient", "fc.weight")}
    assert Key.parse("step1/forward/fc#0:output") in [row.key for row in cause.inherited]


def test_cause_that_names_its_layer_alone_explains_what_fails_there() -> None:
    made = with_cause(calibrated(), Key.parse(LAYER))
    assert accounts_of(made).explained == accounts_of(made).differences
    assert headline(made).startswith("NOT ALIGNED: 1 cause explains ")


def test_inherited_entries_are_not_annotated() -> None:
    lines = "\n".join(workflow_commands(with_cause(calibrated(), AT)))
    assert LAYER in lines
    assert "forward · fc · output" not in lines


def test_without_layers_run_alone_nothing_is_claimed_to_be_explained() -> None:
    assert "1 cause found; " in headline(with_cause(fixed(), AT))


def test_cause_without_entries_explains_nothing() -> None:
    assert "fail; " in headline(with_cause(fixed()))


def test_two_causes_share_the_differences_and_each_is_counted_once() -> None:
    made = with_cause(with_cause(calibrated(), AT), Key.parse("step1/loss/loss"), cause="another")
    found = accounts_of(made)
    assert found.explained == found.differences
    assert [bool(one.at) for one in found.causes] == [True, True]
    assert headline(made).startswith("NOT ALIGNED: 2 causes explain ")


def lined(alignment: Alignment) -> Alignment:
    sides = {
        "reference": replace(alignment.reference, lines={LAYER: "net_torch.py:19"}),
        "candidate": replace(alignment.candidate, lines={LAYER: "net_paddle.py:23"}),
    }
    advice = message("advice.setting_in_candidate", call=Code("Conv2D(…, stride=2)"), path=Name(LAYER))
    cause = Finding("made_up", message("text", text="wrong"), (), "proven", (advice,), (AT,))
    return replace(alignment, findings=(cause,), **sides)


@pytest.mark.parametrize("format", ["text", "markdown", "html"])
def test_cause_stands_with_the_lines_of_both_programs(format: str) -> None:
    text = render_report(lined(calibrated()), format=format).replace("\\", "")
    assert "net_torch.py:19" in text
    assert "net_paddle.py:23" in text


def test_answer_for_programs_has_lines_code_and_what_is_explained() -> None:
    cause = answer_of(lined(calibrated()))["causes"][0]
    assert cause["made_at"] == [{"reference": "net_torch.py:19", "candidate": "net_paddle.py:23"}]
    assert cause["code"] == "Conv2D(…, stride=2)"
    assert cause["explains"]["at"] > 0 < cause["explains"]["inherited"]


def test_annotation_is_at_the_line_of_the_candidate() -> None:
    assert workflow_commands(lined(calibrated()))[0].startswith("::error file=net_paddle.py,line=23,title=cause::")


def test_text_lists_own_failures_only_and_counts_the_others() -> None:
    text = render_report(with_cause(calibrated(), AT), format="text")
    listed = [line for line in text.splitlines() if line.startswith("  FAIL ")]
    assert listed
    assert all(LAYER in line for line in listed)
    assert "more entries not shown" in text
