"""The HTML report in a real Chromium, as a reader uses it. Any request or complaint of the page fails the test."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_alignments import HOSTILE, calibrated, classic, fixed, hostile, many

from reprod_log import Alignment, Recording, align, write_report
from reprod_log.report.plain import plain

OpenPage = Callable[..., Any]
WRONG = "step0/forward/layer1.1.conv2#0:output"


def rows(page: Any) -> list[str]:
    found: list[str] = page.locator("#table tbody tr td:nth-child(2)").all_inner_texts()
    return found


def until(page: Any, condition: str) -> None:
    """Wait for the condition. The browser's own waiting is done by eval, which the page rightly forbids."""
    for _ in range(400):
        if page.evaluate(f"() => Boolean({condition})"):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never came true: {condition}")


def chart(page: Any, place: str) -> None:
    """Wait until the chart at `place` is drawn."""
    page.locator(place).scroll_into_view_if_needed()
    until(page, f"document.querySelector('{place} > div > *')?.shadowRoot")


# Opening


@pytest.mark.parametrize(
    "made",
    [fixed, calibrated, classic, hostile, lambda: fixed(wrong=False), lambda: align(Recording(()), Recording(()))],
    ids=["fixed", "calibrated", "classic", "hostile", "aligned", "nothing"],
)
def test_every_kind_of_report_opens_without_complaint(open_report: OpenPage, made: Callable[[], Alignment]) -> None:
    alignment = made()
    page = open_report(alignment)
    chart(page, "#depth-chart")
    expected = alignment.verdict.judgements
    assert page.locator("#shown").inner_text() == f"{len(expected)} of {len(expected)} shown"
    for section in ("#environment", "#policy", "#coverage", "#steps"):
        page.locator(section).scroll_into_view_if_needed()


def test_first_screen_answers_the_questions(open_report: OpenPage) -> None:
    page = open_report(calibrated(), viewport={"width": 1280, "height": 720})
    assert "NOT ALIGNED" in page.locator("h1").inner_text()
    for text in ("isolated@" + WRONG, "wrong by itself", "times the rounding floor"):
        box = page.get_by_text(text).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 720
    assert "strong" in page.locator("#answer").inner_text()


def test_nothing_is_fetched_even_if_the_page_tries(open_report: OpenPage, watched: Any) -> None:
    page = open_report(classic())
    blocked = page.evaluate("fetch('https://example.org/').then(() => 'fetched', () => 'blocked')")
    assert blocked == "blocked"
    assert any("Content Security Policy" in one for one in watched.complaints)
    watched.complaints.clear()


# Charts


def plot_point(page: Any, place: str, x: float, y: float) -> tuple[float, float]:
    """Where a point of a chart lies on the screen."""
    left, top = page.evaluate(
        """([place, x, y]) => {
            const host = document.querySelector(place + ' .bk-Figure') ?? document.querySelector(place + ' > div > *');
            const view = Object.values(Bokeh.index.roots ?? Bokeh.index).map((one) => one).flat()
                .find((one) => document.querySelector(place).contains(one.el));
            const frame = view.frame ?? view.child_views[0].frame;
            const box = view.el.getBoundingClientRect();
            return [box.left + frame.x_scale.compute(x), box.top + frame.y_scale.compute(y)];
        }""",
        [place, x, y],
    )
    return left, top


def test_click_on_a_point_of_the_depth_chart_opens_its_entry(open_report: OpenPage) -> None:
    page = open_report(calibrated())
    chart(page, "#depth-chart")
    at = plot_point(page, "#depth-chart", 8, 0.02)
    page.mouse.move(*at)
    page.mouse.click(*at)
    until(page, "location.hash.startsWith('#entry-')")
    assert page.locator("#entry h1").inner_text() == WRONG


def test_hovering_a_point_names_it_as_text(open_report: OpenPage) -> None:
    page = open_report(hostile())
    chart(page, "#depth-chart")
    page.mouse.move(*plot_point(page, "#depth-chart", 0, 0.2236))
    page.wait_for_timeout(300)
    shown = page.evaluate(
        """() => { const texts = []; const walk = (node) => { if (node.shadowRoot) walk(node.shadowRoot);
        for (const one of node.childNodes) { if (one.nodeType === 3) texts.push(one.data); else walk(one); } };
        walk(document.body); return texts.join(' '); }"""
    )
    assert HOSTILE[0] in shown


def test_depth_chart_follows_its_choices(open_report: OpenPage) -> None:
    page = open_report(fixed())
    chart(page, "#depth-chart")
    assert page.locator("#depth-step").input_value() == "0"
    assert page.locator("#depth-phase").input_value() == "forward"
    page.select_option("#depth-phase", "gradient")
    page.select_option("#depth-measure", "times_limit")
    page.wait_for_timeout(300)
    chart(page, "#depth-chart")
    assert page.evaluate("depthRows().length") == 19


def test_curves_can_be_chosen(open_report: OpenPage) -> None:
    page = open_report(classic())
    chart(page, "#curve-chart")
    assert page.locator("#curve option").all_inner_texts() == ["loss_* (12)", "step_*_linear_lr (5)"]
    page.select_option("#curve", "1")
    chart(page, "#curve-chart")


# Search, filter, sort


def test_search_needs_all_words(open_report: OpenPage) -> None:
    page = open_report(fixed())
    page.fill("#search", "GRADIENT fc step2")
    assert rows(page) == ["step2/gradient/fc.weight:raw"]
    assert page.locator("#shown").inner_text() == "1 of 240 shown"
    page.fill("#search", "no such name")
    assert rows(page) == []


def test_status_step_and_phase_filters_work_together(open_report: OpenPage) -> None:
    page = open_report(fixed())
    page.get_by_role("button", name="not passing").click()
    assert page.locator("#shown").inner_text() == "205 of 240 shown"
    page.select_option("#filter-step", "0")
    page.select_option("#filter-phase", "forward")
    assert page.locator("#shown").inner_text() == "11 of 240 shown"
    assert rows(page)[0] == WRONG
    assert page.locator("#status-filter [aria-pressed=true]").inner_text() == "not passing"


def test_sorting_puts_the_worst_first_and_nan_above_all(open_report: OpenPage) -> None:
    reference = {"a": np.array([1.0]), "b": np.array([1.0]), "c": np.array([np.nan]), "d": np.ones(2)}
    candidate = {"a": np.array([1.1]), "b": np.array([1.5]), "c": np.array([1.0]), "d": np.ones(3)}
    page = open_report(align(Recording.from_arrays(reference), Recording.from_arrays(candidate)))
    head = page.locator("#table th[data-sort=max_abs]")
    head.click()
    assert rows(page) == ["c", "b", "a", "d"]
    assert head.get_attribute("aria-sort") == "descending"
    head.click()
    assert rows(page) == ["a", "b", "c", "d"]
    page.locator("#table th[data-sort=entry]").press("Enter")
    assert rows(page) == ["a", "b", "c", "d"]
    assert head.get_attribute("aria-sort") is None


# The tree


def test_module_of_the_tree_filters_the_table(open_report: OpenPage) -> None:
    page = open_report(fixed())
    page.locator("#tree a[data-path='layer1.1']").click()
    assert page.locator("#shown").inner_text() == "48 of 240 shown"
    assert all("layer1.1." in one for one in rows(page))
    page.locator("#module").click()
    assert page.locator("#shown").inner_text() == "240 of 240 shown"
    page.locator("#tree a[data-path='(loss)']").click()
    assert rows(page) == [f"step{step}/loss/loss" for step in range(4)]


def test_tree_is_walked_with_arrow_keys(open_report: OpenPage) -> None:
    page = open_report(fixed())
    focused = "document.activeElement.dataset.path"
    page.locator("#tree a[data-path='layer1']").focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == "layer1.0"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused) == "layer1.0.conv1"
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(focused) == "layer1.0"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == "layer2"
    page.keyboard.press("Home")
    assert page.evaluate(focused) == "(data)"
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.locator("#shown").inner_text() == "4 of 240 shown"


def test_tree_can_be_sorted_by_error(open_report: OpenPage) -> None:
    page = open_report(fixed())
    page.select_option("#tree-sort", "error")
    top = page.locator("#tree > ul > li > * > a, #tree > ul > li > details > summary > a")
    assert top.first.get_attribute("data-path") == "layer1"
    page.select_option("#tree-sort", "order")
    assert top.first.get_attribute("data-path") == "(data)"


# The page of an entry


def test_entry_page_has_numbers_pictures_and_the_way_back(open_report: OpenPage) -> None:
    page = open_report(calibrated())
    page.fill("#search", WRONG)
    page.locator("#table tbody tr").last.click()
    until(page, "!document.getElementById('entry').hidden")
    text = page.locator("#entry").inner_text()
    for part in ("Checks", "Statistics", "Elements that differ most", "both in float64", "by its name", "2×8×4×4"):
        assert part in text
    until(page, "document.querySelectorAll('#entry .chart .bk-Figure, #entry .chart .bk-Column').length === 2")
    assert page.locator("#report").is_hidden()
    page.go_back()
    until(page, "document.getElementById('entry').hidden")
    assert page.locator("#search").input_value() == WRONG


def test_entry_page_opens_from_its_address(open_report: OpenPage) -> None:
    page = open_report(classic(), at="#entry-7")
    assert page.locator("#entry h1").inner_text() == "loss_7"
    assert "0.25003" in page.locator("#entry").inner_text()


@pytest.mark.parametrize("address", ["#entry-9999", "#entry-x", "#nonsense"])
def test_unknown_address_shows_the_report(open_report: OpenPage, address: str) -> None:
    page = open_report(classic(), at=address)
    assert page.locator("#report").is_visible()


def test_entry_page_shows_the_findings_about_it(open_report: OpenPage) -> None:
    from reprod_log.diagnose import Finding

    finding = Finding("made_up", "the cause", "the evidence", "proven", "the advice", (WRONG,))
    page = open_report(replace(fixed(), findings=(finding,)))
    page.locator("#answer a.key").first.click()
    assert "the evidence" in page.locator("#entry").inner_text()
    page.keyboard.press("j")
    until(page, f"document.querySelector('#entry h1').innerText !== '{WRONG}'")
    assert "the evidence" not in page.locator("#entry").inner_text()


def test_entry_without_measurement_has_a_page(open_report: OpenPage) -> None:
    page = open_report(classic())
    page.fill("#search", "logits")
    page.locator("#table tbody a").first.click()
    assert "near names in the candidate: logit" in page.locator("#entry").inner_text()


# Keys


def test_keys_lead_through_the_report(open_report: OpenPage) -> None:
    page = open_report(fixed())
    page.keyboard.press("n")
    assert page.evaluate("document.activeElement.innerText") == WRONG
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.innerText") == "step0/forward/layer1.1.bn1#0:output"
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    until(page, "location.hash.startsWith('#entry-')")
    page.keyboard.press("n")
    until(page, "document.querySelector('#entry h1').innerText.includes('layer1.1.bn2')")
    page.keyboard.press("p")
    until(page, f"document.querySelector('#entry h1').innerText === '{WRONG}'")
    page.keyboard.press("Escape")
    until(page, "document.getElementById('entry').hidden")
    page.keyboard.press("/")
    until(page, "document.activeElement.id === 'search'")
    page.keyboard.type("jnd")
    assert page.locator("#search").input_value() == "jnd"
    page.keyboard.press("Escape")
    assert page.locator("#search").input_value() == ""


# Light, dark, narrow, languages, no scripts

CONTRAST = """() => {
    const linear = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const light = (text) => { const [r, g, b] = text.match(/[\\d.]+/g).map((v) => linear(Number(v) / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const back = (one) => { for (; one; one = one.parentElement) { const c = getComputedStyle(one).backgroundColor;
        if (!/, 0\\)$/.test(c) && c !== 'transparent') return c; } return 'rgb(255, 255, 255)'; };
    const poor = [];
    for (const one of document.querySelectorAll('h1, h2, p, td, th, a, .st, summary, button, small')) {
        if (!one.innerText || !one.checkVisibility()) continue;
        const a = light(getComputedStyle(one).color), b = light(back(one));
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) poor.push(`${one.tagName}.${one.className} ${ratio.toFixed(2)} ${one.innerText.slice(0, 30)}`);
    }
    return [...new Set(poor)].slice(0, 10);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_in_light_and_dark(open_report: OpenPage, scheme: str) -> None:
    page = open_report(classic(), color_scheme=scheme)
    assert page.evaluate(CONTRAST) == []


def test_light_and_dark_can_be_switched(open_report: OpenPage) -> None:
    page = open_report(classic(), color_scheme="light")
    shade = "getComputedStyle(document.documentElement).backgroundColor"
    assert page.evaluate(shade) == "rgb(255, 255, 255)"
    page.locator("#theme").click()
    assert page.evaluate(shade) == "rgb(20, 23, 28)"
    page.keyboard.press("d")
    assert page.evaluate(shade) == "rgb(255, 255, 255)"
    chart(page, "#depth-chart")


def test_narrow_page_does_not_scroll_sideways(open_report: OpenPage) -> None:
    for made in (calibrated(), hostile()):
        page = open_report(made, viewport={"width": 390, "height": 844})
        chart(page, "#depth-chart")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.locator("#answer a.key").first.click()
        until(page, "!document.getElementById('entry').hidden")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_chinese_reader_gets_chinese_and_can_switch(open_report: OpenPage) -> None:
    page = open_report(calibrated(), locale="zh-CN")
    assert "未对齐" in page.locator("h1").inner_text()
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    page.locator("#answer a.key").first.click()
    assert "差异最大的元素" in page.locator("#entry").inner_text()
    page.keyboard.press("Escape")
    until(page, "document.getElementById('entry').hidden")
    page.locator("#language").click()
    assert "NOT ALIGNED" in page.locator("h1").inner_text()
    assert page.locator("#language").inner_text() == "中文"


def test_report_is_readable_without_scripts(open_report: OpenPage) -> None:
    made = calibrated()
    page = open_report(made, java_script_enabled=False)
    assert "NOT ALIGNED" in page.locator("h1").inner_text()
    assert page.locator("noscript p").first.is_visible()
    assert page.locator("noscript .entries tbody tr").count() == len(made.verdict.judgements)
    assert "2.0e-2" in page.locator("noscript .entries tr.FAIL").first.inner_text()
    assert page.locator("#heat td.h").count() == 76
    assert page.locator(".js:visible").count() == 0
    assert page.locator("#curves table").first.is_visible()


# Hostile names


def test_hostile_names_are_text_everywhere(open_report: OpenPage) -> None:
    made = hostile()
    page = open_report(made)
    assert rows(page) == [plain(one.key) for one in made.verdict.judgements]
    assert page.locator("#report img, #report script, #report iframe, td b, td style").count() == 0
    for place in range(len(made.verdict.judgements)):
        page.evaluate(f"location.hash = '#entry-{place}'")
        until(page, f"state.entry === {place}")
        assert page.locator("#entry h1").inner_text() == plain(made.verdict.judgements[place].key)
        assert page.locator("#entry img, #entry script").count() == 0
    page.evaluate("location.hash = ''")
    page.keyboard.press("l")
    assert page.locator("#report img, #report script").count() == 0


# Size


def test_size_of_reports(tmp_path: Path) -> None:
    assert write_report(many(200), tmp_path / "a.html").stat().st_size < 2_000_000


def test_five_thousand_entries_stay_usable(open_report: OpenPage, tmp_path: Path) -> None:
    page = open_report(many(5000))
    assert (tmp_path / "report.html").stat().st_size < 10_000_000
    assert page.evaluate("document.querySelectorAll('*').length") < 20_000
    chart(page, "#depth-chart")
    page.fill("#search", "step45 parameter fc")
    assert rows(page) == ["step45/parameter/fc.weight"]
    page.fill("#search", "")
    page.locator("#table th[data-sort=rel_l2]").click()
    assert "layer1.1.conv2" in rows(page)[0]
    page.locator("#table th[data-sort=entry]").click()
    page.locator("#entries").evaluate("one => one.scrollTo(0, 1e9)")
    until(page, "document.querySelectorAll('#table tbody tr').length > 150")
    page.evaluate("openEntry(data.keys.length - 1)")
    until(page, "!document.getElementById('entry').hidden")
    page.keyboard.press("Escape")
    until(page, "document.activeElement.innerText === data.keys.at(-1)")


def test_rows_beyond_the_most_are_left_out_and_counted(open_report: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    from reprod_log.report.formats import html

    monkeypatch.setattr(html, "MOST_ROWS", 230)
    page = open_report(fixed())
    assert page.get_by_text("10 of 240 entries are left out of this file").is_visible()
    assert page.locator("#shown").inner_text() == "230 of 230 shown"
    assert page.evaluate("data.status.filter((one) => !data.statuses[one].passed).length") == 205
    page.locator("#answer a.key").first.click()
    assert page.locator("#entry h1").inner_text() == WRONG
