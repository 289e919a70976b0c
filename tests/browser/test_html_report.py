"""The HTML report in a real Chromium, as a reader uses it. Any request or complaint of the page fails the test."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_alignments import HOSTILE, calibrated, classic, finding_of, fixed, hostile
from reading import WRONG, WRONG_KEY, OpenPage, chart, rows, until
from test_cause_cards import LAYER, lined

from reprod_log import Alignment, Recording, align
from reprod_log.recording import Key

# Opening


@pytest.mark.parametrize(
    "made",
    [fixed, calibrated, classic, hostile, lambda: fixed(wrong=False), lambda: align(Recording(()), Recording(()))],
    ids=["fixed", "calibrated", "classic", "hostile", "aligned", "nothing"],
)
def test_every_kind_of_report_opens_without_complaint(open_report: OpenPage, made: Callable[[], Alignment]) -> None:
    alignment = made()
    page = open_report(alignment)
    if any(row.measurement for row in alignment.comparison.rows):
        chart(page, "#depth-chart")
    else:
        page.locator("#depth-chart .calm").wait_for()
    expected = alignment.verdict.judgements
    page.get_by_role("button", name="all", exact=True).click()
    assert page.locator("#shown").inner_text() == f"{len(expected)} of {len(expected)} shown"
    for section in ("#environment", "#policy", "#coverage", "#steps"):
        page.locator(section).scroll_into_view_if_needed()


def test_first_screen_answers_the_questions(open_report: OpenPage) -> None:
    page = open_report(calibrated(), viewport={"width": 1280, "height": 720})
    assert "NOT ALIGNED" in page.locator("h1").inner_text()
    for text in (WRONG + " (isolated pass)", "wrong on its own", "× rounding"):
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


# Causes


def test_cause_has_code_to_copy_and_shows_what_comes_from_it(open_report: OpenPage) -> None:
    page = open_report(lined(calibrated()))
    card = page.locator("article.cause")
    assert card.count() == 1
    assert "net_torch.py:19 ↔ net_paddle.py:23" in card.inner_text()
    card.get_by_role("button", name="copy").click()
    page.get_by_role("button", name="copied").wait_for()
    page.locator("#search").focus()
    page.keyboard.press("Control+V")
    assert page.locator("#search").input_value() == "Conv2D(…, stride=2)"
    page.locator("#search").fill("")
    card.get_by_role("button", name="show them").click()
    failing = sum(not one.status.passed for one in calibrated().verdict.judgements)
    assert page.locator("#shown").inner_text().startswith(f"{failing} of ")
    page.locator("#module").click()
    assert not page.locator("#shown").inner_text().startswith(f"{failing} of ")


def test_inherited_failures_are_folded_under_their_cause(open_report: OpenPage) -> None:
    page = open_report(lined(calibrated()))
    shown = page.locator("#table tbody tr.FAIL td:nth-child(2)").all_inner_texts()
    assert shown
    assert all(LAYER in one for one in shown)


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
    assert rows(page) == ["step 2 · gradient · fc.weight · raw"]
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
    page.locator("#table th[data-sort=entry] button").press("Enter")
    assert rows(page) == ["a", "b", "c", "d"]
    assert head.get_attribute("aria-sort") is None


# The tree


def test_module_of_the_tree_filters_the_table(open_report: OpenPage) -> None:
    page = open_report(fixed())
    page.locator("#tree a[data-path='layer1.1']").click()
    assert page.locator("#shown").inner_text() == "48 of 240 shown"
    assert all("layer1.1." in one for one in rows(page))
    page.locator("#module").click()
    assert page.locator("#shown").inner_text() == "205 of 240 shown"
    page.locator("#tree a[data-path='(loss)']").click()
    assert rows(page) == [f"step {step} · loss · loss" for step in range(4)]


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
    top = page.locator("#tree > ul > li > .node > a")
    assert top.first.get_attribute("data-path") == "layer1"
    page.select_option("#tree-sort", "order")
    assert top.first.get_attribute("data-path") == "(data)"


# The page of an entry


def test_entry_page_has_numbers_pictures_and_the_way_back(open_report: OpenPage) -> None:
    page = open_report(calibrated())
    page.fill("#search", WRONG_KEY)
    page.locator("#table tbody tr").last.click()
    until(page, "!document.getElementById('entry').hidden")
    text = page.locator("#entry").inner_text()
    for part in ("Checks", "Statistics", "Elements that differ most", "both in float64", "by its name", "2×8×4×4"):
        assert part in text
    charts = "#entry .grid .chart .bk-Figure, #entry .grid .chart .bk-Column"
    until(page, f"document.querySelectorAll('{charts}').length === 2")
    assert page.locator("#report").is_hidden()
    page.go_back()
    until(page, "document.getElementById('entry').hidden")
    assert page.locator("#search").input_value() == WRONG_KEY


def test_entry_page_opens_from_its_address(open_report: OpenPage) -> None:
    page = open_report(classic(), at="#entry-7")
    assert page.locator("#entry h1").inner_text() == "loss_7"
    assert "0.25003" in page.locator("#entry").inner_text()


@pytest.mark.parametrize("address", ["#entry-9999", "#entry-x", "#nonsense"])
def test_unknown_address_shows_the_report(open_report: OpenPage, address: str) -> None:
    page = open_report(classic(), at=address)
    assert page.locator("#report").is_visible()


def test_entry_page_shows_the_findings_about_it(open_report: OpenPage) -> None:
    finding = finding_of("made_up", "the cause", "the evidence", "proven", "the advice", (Key.parse(WRONG_KEY),))
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
    assert "similar names in the candidate: logit" in page.locator("#entry").inner_text()


# Keys


def test_keys_lead_through_the_report(open_report: OpenPage) -> None:
    page = open_report(fixed())
    page.get_by_role("button", name="all", exact=True).click()
    page.keyboard.press("n")
    assert page.evaluate("document.activeElement.innerText") == WRONG
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.innerText") == "step 0 · forward · layer1.1.bn1 · output"
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    until(page, "location.hash.startsWith('#entry-')")
    # The address changes first; until the entry is there, keys belong to the table.
    until(page, f"document.querySelector('#entry h1')?.innerText === '{WRONG}'")
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


def test_both_names_are_shown_and_found(open_report: OpenPage) -> None:
    ours = {f"step0/forward/layers.{at}.ln1#0:output": np.ones(3) for at in range(3)}
    theirs = {key.replace("layers", "blocks").replace("ln1", "norm1"): value + 1 for key, value in ours.items()}
    names = {f"layers.{at}.ln1": f"blocks.{at}.norm1" for at in range(3)}
    page = open_report(align(Recording.from_arrays(ours), Recording.from_arrays(theirs), rename=names))
    page.fill("#search", "blocks.2.norm1")
    assert rows(page) == ["step 0 · forward · layers.2.ln1 ↔ blocks.2.norm1 · output"]
    title = page.locator("#table tbody tr bdi").first.get_attribute("title")
    assert title == "step0/forward/layers.2.ln1#0:output ↔ step0/forward/blocks.2.norm1#0:output"
    assert "ln1 ↔ blocks.0.norm1" in page.locator("#tree").inner_text()
    assert "layers.0.ln1 ↔ blocks.0.norm1" in page.locator("#answer").inner_text()
    page.click("#language")
    assert rows(page) == ["第 0 步 · forward · layers.2.ln1 ↔ blocks.2.norm1 · output"]
    assert "第 0 步 · forward · layers.0.ln1" in page.locator("#answer").inner_text()


def test_table_opens_at_what_matters_and_searches_everything(open_report: OpenPage) -> None:
    page = open_report(calibrated())
    chosen = page.locator("#status-filter [aria-pressed=true]")
    assert chosen.inner_text() == "without inherited"
    assert rows(page)[:2] == [WRONG + " (isolated pass)", WRONG]
    inherited = "step 0 · forward · layer1.1.bn2 · output"
    assert inherited not in rows(page)
    page.get_by_role("button", name="not passing").click()
    assert inherited in rows(page)
    page = open_report(fixed())
    page.fill("#search", "step 0 · data · image")
    assert rows(page) == ["step 0 · data · image"]
    assert (
        page.locator("#table th[data-sort=times_limit]")
        .get_attribute("title")
        .startswith("the error divided by its limit")
    )


def test_what_is_not_finite_is_drawn_and_named(open_report: OpenPage) -> None:
    ours = {f"step{step}/loss/loss": np.array(1.0 + step) for step in range(4)}
    theirs = {**ours, "step2/loss/loss": np.array(np.nan), "step3/loss/loss": np.array(np.inf)}
    page = open_report(align(Recording.from_arrays(ours), Recording.from_arrays(theirs)))
    chart(page, "#curve-chart")
    drawn = "document.querySelector('#curve-chart > div > *')"
    models = "Bokeh.documents.flatMap((one) => [...one._all_models.values()])"
    labels = f"{models}.filter((one) => one.type === 'Label').map((one) => one.text)"
    until(page, f"{drawn}?.shadowRoot && {labels}.includes('NaN or infinity')")


def test_paper_has_the_answer_the_curve_and_the_first_entries_on_two_pages(open_report: OpenPage) -> None:
    page = open_report(fixed())
    chart(page, "#depth-chart")
    paper = page.pdf()
    assert paper.count(b"/Type /Page\n") == 2
