"""Findings in the reader's language, and the page of several steps, in a real Chromium."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_alignments import calibrated
from reading import OpenPage, chart

from reprod_log.diagnose.finding import Finding
from reprod_log.messages import Code, Name, message
from reprod_log.recording import Key
from reprod_log.report.overview import write_overview
from reprod_log.steps.overview import Overview, StepResult

LAYER = Name("layer1.1.conv2")
CAUSE = Finding(
    "layer_setting",
    message("cause.layer_setting", setting="eps", path=LAYER, ours="1e-05", theirs="0.001"),
    (message("evidence.types", ours="Conv2d", theirs="Conv2D"), message("evidence.layer_alone_differs")),
    "explained",
    (message("advice.setting_in_candidate", call=Code("Conv2D(…, epsilon=1e-05)"), path=LAYER),),
    (Key(LAYER),),
)


def test_findings_and_reasons_change_their_language(open_report: OpenPage) -> None:
    page = open_report(replace(calibrated(), findings=(CAUSE,)))
    answer = page.locator("#answer")
    assert "eps of layer1.1.conv2 differs" in answer.inner_text()
    page.locator("#language").click()
    text = answer.inner_text()
    assert "layer1.1.conv2 的 eps 不同：参考侧 1e-05，候选侧 0.001" in text
    assert "× rounding" not in text
    assert "in the candidate" not in text
    page.locator("#answer a.key").first.click()
    entry = page.locator("main#entry")
    entry.wait_for()
    assert "倍，允许 3 倍" in entry.inner_text()
    assert "rounding" not in entry.inner_text()
    page.keyboard.press("l")
    assert "× rounding" in entry.inner_text()


def test_chinese_report_is_chinese_without_scripts(browser: Any, tmp_path: Path) -> None:
    from reprod_log import write_report

    path = write_report(replace(calibrated(), findings=(CAUSE,)), tmp_path / "zh.html", language="zh")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    text = page.locator("#answer").inner_text()
    context.close()
    assert "的 eps 不同" in text
    assert "differs" not in text


@pytest.fixture
def overview(tmp_path: Path) -> Path:
    steps = (
        StepResult("forward", None, None, None, alignment=replace(calibrated(), findings=(CAUSE,))),
        StepResult("training", None, None, None, skipped=True),
    )
    return write_overview(Overview("plan", "my port", tmp_path, steps), tmp_path / "plan.html")


def test_page_of_several_steps_leads_to_each_and_changes_language_and_theme(overview: Path, page: Any) -> None:
    page.goto(overview.as_uri())
    assert page.locator("h1").inner_text().endswith("NOT ALIGNED: 0 of 2 steps of my port pass")
    assert "torch 2.13.0" in page.locator(".sides").inner_text()
    line = page.locator("tbody tr").first
    assert "strong" in line.inner_text()
    assert line.locator("svg circle[fill='#cf222e']").count() > 1
    assert page.locator("tbody tr").nth(1).locator("svg").count() == 0
    page.locator("#language").click()
    assert page.locator("h1").inner_text().endswith("未对齐：my port 的 2 个步骤中有 0 个通过")
    assert "layer1.1.conv2 的 eps 不同" in page.locator("table").inner_text()
    light = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != light
    page.locator("table a").first.click()
    page.locator("#answer").wait_for()
    assert page.url.endswith("plan_steps/forward.html")


def test_pages_of_steps_share_their_scripts_and_draw_from_disk(overview: Path, page: Any) -> None:
    folder = overview.with_name("plan_steps")
    assert sorted(one.name for one in folder.iterdir()) == [
        "bokeh-api.min.js",
        "bokeh.min.js",
        "forward.html",
        "report.js",
    ]
    assert (folder / "forward.html").stat().st_size < 400_000
    page.goto((folder / "forward.html").as_uri())
    chart(page, "#depth-chart")
    page.locator("#answer a.key").first.click()
    page.locator("#entry h1").wait_for()


def test_page_of_several_steps_is_readable_without_scripts(overview: Path, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(overview.as_uri())
    assert "eps of layer1.1.conv2 differs" in page.locator("table").inner_text()
    assert page.locator("#language").is_hidden()
    context.close()
