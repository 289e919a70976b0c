"""The tensor of an entry in a real Chromium: pictures, axes, keys, what is not finite; from a file and a server."""

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from reading import OpenPage, chart, until

from reprod_log import Alignment, Recording, align
from reprod_log.recording.stores import save
from reprod_log.report.serve import serving

KEY = "step0/forward/conv#0:output"


def sides() -> tuple[Recording, Recording]:
    rng = np.random.default_rng(0)
    ours = rng.normal(size=(2, 8, 6, 5)).astype(np.float32)
    theirs = ours.copy()
    theirs[:, 5] *= 1.05
    theirs[1, 2, 3, 4] = np.nan
    theirs[0, 1, 0, 0] = np.inf
    return Recording.from_arrays({KEY: ours}), Recording.from_arrays({KEY: theirs})


def made() -> Alignment:
    return align(*sides())


def reading(page: Any) -> str:
    text: str = page.locator(".reading").inner_text()
    return text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_three_pictures_and_a_profile_are_drawn(open_report: OpenPage, scheme: str) -> None:
    page = open_report(made(), at="#entry-0", color_scheme=scheme)
    chart(page, ".tensor .chart")
    assert page.locator(".tensors canvas").count() == 3
    colours = (
        "new Set(new Uint32Array(one.getContext('2d').getImageData(0, 0, one.width, one.height).data.buffer)).size"
    )
    assert page.locator(".tensors canvas").first.evaluate(f"one => {colours}") > 10
    assert "1 not finite" in page.locator(".tensors figure").nth(1).inner_text()
    assert "not finite" not in page.locator(".tensors figure").nth(0).inner_text()


def test_element_that_differs_most_is_marked_and_arrow_keys_read_others(open_report: OpenPage) -> None:
    page = open_report(made(), at="#entry-0")
    page.locator(".tensors canvas").first.wait_for()
    assert reading(page).startswith("[0, 1, 0, 0] ")
    assert "candidate Infinity" in reading(page)
    page.locator(".tensors canvas").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    ours, theirs = (side[KEY].array()[0, 1, 1, 1] for side in sides())
    assert (
        reading(page)
        == f"[0, 1, 1, 1] reference {float(f'{ours:.6g}'):g} · candidate {float(f'{theirs:.6g}'):g} · difference 0"
    )
    for _ in range(20):
        page.keyboard.press("ArrowLeft")
    assert reading(page).startswith("[0, 1, 1, 0] ")


def test_any_two_axes_can_be_looked_at_and_the_others_are_chosen(open_report: OpenPage) -> None:
    page = open_report(made(), at="#entry-0")
    page.locator(".tensors canvas").first.wait_for()
    size = "one => [one.height / one.dataset.cell, one.width / one.dataset.cell]"
    assert page.locator(".tensors canvas").first.evaluate(size) == [6, 5]
    page.locator("select[name=rows]").select_option("1")
    page.locator("select[name=columns]").select_option("0")
    assert page.locator(".tensors canvas").first.evaluate(size) == [8, 2]
    assert page.locator(".tensor input[type=range]").count() == 2
    page.locator("input[data-axis='2']").fill("3")
    assert ", 3, 0] " in reading(page)
    page.locator("select[name=columns]").select_option("1")
    assert page.locator(".tensors canvas").first.evaluate(size) == [2, 8]


def test_click_reads_an_element(open_report: OpenPage) -> None:
    page = open_report(made(), at="#entry-0")
    canvas = page.locator(".tensors canvas").nth(2)
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] - 3, "y": box["height"] - 3})
    assert reading(page).startswith("[0, 1, 5, 4] ")


def test_phone_shows_the_pictures_below_each_other_in_chinese(open_report: OpenPage) -> None:
    page = open_report(made(), at="#entry-0", viewport={"width": 390, "height": 844}, locale="zh-CN")
    page.locator(".tensors canvas").first.wait_for()
    tops = [one.bounding_box()["y"] for one in page.locator(".tensors canvas").all()]
    assert tops == sorted(set(tops))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert "张量" in page.locator(".tensor h2").inner_text()
    assert "参考" in reading(page)


def test_vector_is_a_strip(open_report: OpenPage) -> None:
    ours = {"step0/parameter/bias": np.arange(9.0)}
    page = open_report(
        align(Recording.from_arrays(ours), Recording.from_arrays({"step0/parameter/bias": np.arange(9.0) + 1})),
        at="#entry-0",
    )
    page.locator(".tensors canvas").first.wait_for()
    assert page.locator("select[name=rows]").count() == 0
    page.locator(".tensors canvas").first.focus()
    page.keyboard.press("ArrowRight")
    assert reading(page) == "[1] reference 1 · candidate 2 · difference 1"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    ours, theirs = sides()
    save(ours, tmp_path / "ref.npz")
    save(theirs, tmp_path / "cand.npz")
    Alignment.load(align(tmp_path / "ref.npz", tmp_path / "cand.npz").save(tmp_path / "found.json"))
    server = serving(tmp_path)
    Thread(target=server.serve_forever, daemon=True).start()
    yield tmp_path, server.address.rstrip("/")
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("address", ["/alignment?name=found.json", "/compare?reference=ref.npz&candidate=cand.npz"])
def test_served_report_draws_from_the_recordings(
    browser: Any, watched: Any, served: tuple[Path, str], address: str
) -> None:
    _, server = served
    page = browser.new_context().new_page()
    watched.watch(page, allowed=server)
    page.goto(f"{server}{address}#entry-0")
    page.locator(".tensors canvas").first.wait_for()
    assert "candidate Infinity" in reading(page)
    page.context.close()


def test_server_says_when_the_recordings_are_not_what_was_compared(browser: Any, served: tuple[Path, str]) -> None:
    folder, server = served
    save(Recording.from_arrays({KEY: np.ones((2, 8, 6, 5), np.float32)}), folder / "cand.npz")
    page = browser.new_context().new_page()
    page.goto(f"{server}/alignment?name=found.json#entry-0")
    until(page, "document.querySelector('#entry').innerText.includes('have changed since')")
    (folder / "ref.npz").unlink()
    page.goto("about:blank")
    page.goto(f"{server}/alignment?name=found.json#entry-0")
    until(page, "document.querySelector('#entry').innerText.includes('not in the served folder')")
    page.context.close()


def test_file_without_a_picture_says_where_there_is_one(open_report: OpenPage) -> None:
    page = open_report(Alignment.from_dict(made().to_dict()), at="#entry-0")
    until(page, "document.querySelector('#entry').innerText.includes('reprod serve draws every tensor')")
