"""The graph of both programs in a real Chromium: its looks, folding, clicks, keys, size and accessibility."""

from typing import Any

import numpy as np
from made_alignments import calibrated, classic, many
from reading import OpenPage, until
from test_cause_cards import LAYER, lined

from reprod_log import Recording, align


def looks(page: Any, path: str) -> str:
    found: str = page.locator("#graph .pair", has=page.locator(f"bdi:text-is('{path}')")).first.get_attribute("class")
    return found.removeprefix("pair ")


def test_layers_look_by_their_own_error_and_open_their_entry(open_report: OpenPage) -> None:
    page = open_report(lined(calibrated()))
    assert looks(page, LAYER) == "own"
    assert looks(page, "conv1") == "passes"
    assert looks(page, "fc") == "inherited"
    page.locator("#graph .pair", has=page.locator(f"bdi:text-is('{LAYER}')")).click()
    until(page, "location.hash.startsWith('#entry-')")
    assert LAYER in page.locator("#entry h1").inner_text()


def test_blocks_are_folded_but_for_the_one_that_is_wrong_and_keys_move(open_report: OpenPage) -> None:
    page = open_report(lined(calibrated()), viewport={"width": 390, "height": 800})
    opened = page.locator("#graph details[open] > summary bdi:first-child").all_inner_texts()
    assert "layer1" in opened
    folded = page.locator("#graph details:not([open]) > summary").first
    folded.focus()
    page.keyboard.press("Enter")
    assert page.locator("#graph details[open]").count() == len(set(opened)) + 1
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.classList.contains('pair')")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_unmatched_layer_is_hatched_on_one_side(open_report: OpenPage) -> None:
    values = {f"step0/forward/{name}#0:output": np.ones(4) * place for place, name in enumerate("abc", 1)}
    other = {key: value for key, value in values.items() if "/b#" not in key}
    page = open_report(align(Recording.from_arrays(values), Recording.from_arrays(other)))
    assert looks(page, "b") == "unmatched"
    assert page.locator("#graph .unmatched .box.absent").count() == 1


def test_graph_of_thousands_of_entries_draws_only_what_is_open(open_report: OpenPage) -> None:
    page = open_report(many(5_000))
    assert page.locator("#graph .pair").count() < 200
    # No layer ran alone: only the first that differs is accused, and those before it match.
    assert page.locator("#graph-list button.own").count() == 1
    assert looks(page, "conv1") == "passes"


def test_aligned_program_has_no_wrong_pair(open_report: OpenPage) -> None:
    page = open_report(calibrated(wrong=False))
    assert page.locator("#graph-list .own, #graph-list .inherited").count() == 0


def test_plain_log_has_no_graph_and_no_link_to_it(open_report: OpenPage) -> None:
    page = open_report(classic())
    assert page.locator("#graph:visible, .toc a[href='#graph']:visible").count() == 0
