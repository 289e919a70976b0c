"""The HTML report in a real Chromium: light and dark, narrow, in Chinese, without scripts, hostile names, large."""

import re
from pathlib import Path

import numpy as np
import pytest
from made_alignments import calibrated, classic, fixed, hostile, many
from reading import WRONG, OpenPage, chart, rows, until

from reprod_log import Recording, align, write_report
from reprod_log.report import view
from reprod_log.report.writing import plain

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
    for made in (classic(), calibrated()):
        assert open_report(made, color_scheme=scheme).evaluate(CONTRAST) == []


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
    assert page.locator("#heat td.h").count() == 114
    assert page.locator(".js:visible").count() == 0
    assert page.locator("#curves table").first.is_visible()


# Hostile names


def test_hostile_names_are_text_everywhere(open_report: OpenPage) -> None:
    made = hostile()
    page = open_report(made)
    titles = {plain(str(row.title)) for row in view.rows(made)}
    # What a cause explains is folded under it, so not every entry has its row here.
    assert rows(page)
    assert set(rows(page)) <= titles
    assert page.locator("#report img, #report script, #report iframe, td b, td style").count() == 0
    for place in range(len(made.verdict.judgements)):
        page.evaluate(f"location.hash = '#entry-{place}'")
        until(page, f"state.entry === {place}")
        assert page.locator("#entry h1").inner_text() == plain(str(view.rows(made)[place].title))
        assert page.locator("#entry img, #entry script").count() == 0
    page.evaluate("location.hash = ''")
    page.keyboard.press("l")
    assert page.locator("#report img, #report script").count() == 0


# Size


def test_size_of_reports(tmp_path: Path) -> None:
    assert write_report(many(200), tmp_path / "a.html").stat().st_size < 2_000_000


def test_five_thousand_entries_stay_usable(open_report: OpenPage, tmp_path: Path) -> None:
    page = open_report(many(5000))
    assert (tmp_path / "report.html").stat().st_size < 8_000_000
    assert page.evaluate("document.querySelectorAll('*').length") < 20_000
    chart(page, "#depth-chart")
    page.fill("#search", "step45 parameter fc")
    assert rows(page) == ["step 45 · parameter · fc.weight"]
    page.fill("#search", "")
    page.locator("#table th[data-sort=rel_l2]").click()
    assert "layer1.1.conv2" in rows(page)[0]
    page.locator("#table th[data-sort=entry]").click()
    page.locator("#entries").evaluate("one => one.scrollTo(0, 1e9)")
    until(page, "document.querySelectorAll('#table tbody tr').length > BATCH")
    page.evaluate("openEntry(data.keys.length - 1)")
    until(page, "!document.getElementById('entry').hidden")
    page.keyboard.press("Escape")
    until(page, "document.activeElement.innerText === inWords(data.keys.length - 1)")


def test_rows_beyond_the_most_are_left_out_and_counted(open_report: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    from reprod_log.report.formats import html

    monkeypatch.setattr(html, "MOST_ROWS", 230)
    page = open_report(fixed())
    assert page.get_by_text("10 of 240 entries are omitted from this file").is_visible()
    assert page.locator("#shown").inner_text() == "205 of 230 shown"
    assert page.evaluate("data.status.filter((one) => !data.statuses[one].passed).length") == 205
    page.locator("#answer a.key").first.click()
    assert page.locator("#entry h1").inner_text() == WRONG


def test_fields_and_numbers_are_whole_on_a_phone(open_report: OpenPage) -> None:
    page = open_report(calibrated(), viewport={"width": 390, "height": 844})
    # A number that is broken into two lines is twice as high as a line.
    height = page.evaluate(
        """() => Math.max(...[...document.querySelectorAll("#policy td:nth-child(2), #steps td:nth-child(2)")]
             .map((one) => one.getBoundingClientRect().height))"""
    )
    assert height < 40
    page.locator("#only-different").uncheck()
    assert page.locator("#environment .facts tr").nth(2).locator("th").bounding_box()["width"] > 200


def test_environment_shows_what_differs_until_all_is_asked_for(open_report: OpenPage) -> None:
    page = open_report(calibrated())
    same = page.locator("#environment tr.same").first
    assert page.locator("#environment tr.differs").first.is_visible()
    assert not same.is_visible()
    page.locator("#only-different").uncheck()
    assert same.is_visible()


def test_identical_entries_are_a_sentence_and_not_an_empty_chart(open_report: OpenPage) -> None:
    same = Recording.from_arrays({f"step{step}/loss/loss": np.full(1, 1.0 + step) for step in range(3)})
    page = open_report(align(same, same))
    page.locator("#depth-chart .calm").wait_for()
    assert page.locator("#depth-chart canvas").count() == 0
    assert page.locator("#table th", has_text="own error").count() == 0


def test_printed_report_is_two_pages_with_its_chart_and_without_buttons(open_report: OpenPage) -> None:
    page = open_report(calibrated())
    assert not page.locator("#depth .still").is_visible()
    page.emulate_media(media="print")
    assert page.locator("#depth .still svg").is_visible()
    assert page.locator("button:visible:not(th button)").count() == 0
    assert 0 < page.locator("#table tbody tr:visible").count() <= 20
    assert len(re.findall(rb"/Type /Page\b", page.pdf(format="A4"))) == 2


def test_long_heat_map_begins_where_something_fails(open_report: OpenPage) -> None:
    keys = [f"step0/gradient/layer{place}.weight:raw" for place in range(200)]
    ours = {key: np.ones(2) for key in keys}
    found = align(Recording.from_arrays(ours), Recording.from_arrays({**ours, keys[150]: np.zeros(2)}))
    page = open_report(found)
    box = page.locator(".heat").bounding_box()
    cell = page.locator(".heat td.x").bounding_box()
    assert box["y"] < cell["y"] < box["y"] + box["height"]
