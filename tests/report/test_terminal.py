"""The terminal's view: fits the width, keeps colour for terminals, shows the tree."""

import io
import unicodedata

import numpy as np
import pytest
from made_alignments import HOSTILE, calibrated, classic, fixed, hostile
from rich.console import Console

from reprod_log import Alignment, Recording, align
from reprod_log.recording import Key
from reprod_log.report.terminal import folded, print_alignment, terminal
from reprod_log.report.writing import plain


def printed(
    alignment: Alignment, *, width: int = 100, tree: bool = False, colour: bool = False, **options: object
) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False, force_terminal=colour)
    print_alignment(alignment, console, tree=tree, **options)  # type: ignore[arg-type]
    return stream.getvalue()


def cells(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("tree", [False, True])
def test_no_line_is_wider_than_the_terminal(width: int, tree: bool) -> None:
    for made in (fixed(), calibrated(), classic(), hostile()):
        assert max(map(cells, printed(made, width=width, tree=tree).splitlines())) <= width


def test_long_key_is_broken_only_where_its_parts_meet() -> None:
    key = "step4/gradient/encoder.layers.50.attention.dense.weight:raw"
    assert folded(key, 80) == key
    assert folded(key, 30).split("\n") == ["step4/gradient/encoder.layers.", "50.attention.dense.weight:raw"]
    assert folded("x" * 30, 20).split("\n") == ["x" * 20, "x" * 10]


def test_numbers_give_way_to_whole_keys() -> None:
    keys = {f"step0/gradient/encoder.layers.{n}.attention.dense.weight:raw": np.ones(2) for n in range(10, 13)}
    found = align(Recording.from_arrays(keys), Recording.from_arrays({key: value + 1 for key, value in keys.items()}))
    lines = printed(found, width=80).splitlines()
    for key in map(Key.parse, keys):
        assert any(key.path in line and "FAIL" in line for line in lines)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_every_key_can_be_read_at_any_width(width: int) -> None:
    whole = "".join(printed(classic(), width=width).split())
    for one in classic().verdict.judgements:
        assert str(one.key) in whole


def test_numbers_give_way_to_names_when_it_is_narrow() -> None:
    assert "mean abs" in printed(calibrated(), width=120)
    narrow = printed(calibrated(), width=80)
    assert "mean abs" not in narrow
    assert "× floor" in narrow
    assert "step 0 · forward · layer1.1.conv2 · output" in narrow


def test_colour_only_on_a_terminal() -> None:
    assert "\x1b[" in printed(fixed(), colour=True)
    assert "\x1b" not in printed(fixed())


def test_many_entries_are_cut_and_counted() -> None:
    content = printed(fixed())
    assert "… 220 more entries not shown; --all shows all of them" in content
    assert "not shown" not in printed(fixed(), all_rows=True)


def test_first_screen_comes_first() -> None:
    lines = printed(classic()).splitlines()
    assert lines[0].startswith("NOT ALIGNED: 1 fail, 2 unmatched")
    assert lines[1].strip() == "first divergence: loss_7  FAIL"
    assert any(line.strip().startswith("what to do:") for line in lines[:8])
    assert any(line.strip().startswith("how sure:") for line in lines[:10])


def test_tree_shows_modules_with_status_share_and_error() -> None:
    content = printed(fixed(), tree=True)
    assert "✗ FAIL conv2" in content
    assert "✓ PASS (lr)  4  rel L2 0" in content
    assert "layer1  82/96" in content


def test_control_characters_reach_no_terminal() -> None:
    for content in (printed(hostile(), width=300), printed(hostile(), width=300, tree=True)):
        assert all(c.isprintable() or c == "\n" for c in content)
    assert plain(HOSTILE[2]) in printed(hostile(), width=300)


def test_chinese_is_spoken() -> None:
    assert printed(classic(), language="zh").startswith("未对齐：1 项 FAIL、2 项 UNMATCHED")


@pytest.mark.parametrize(("asked", "width"), [("77", 77), ("", 160), ("0", 160), ("wide", 160)])
def test_width_of_a_pipe_is_what_columns_asks_for(monkeypatch: pytest.MonkeyPatch, asked: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", asked)
    assert terminal().width == width


def test_both_names_are_shown_where_the_sides_differ() -> None:
    ours = {"step0/forward/layers.5.ln1#0:output": np.ones(3), "step0/forward/layers.5.ln1#1:output": np.ones(3)}
    theirs = {key.replace("layers.5.ln1", "blocks.5.norm1"): value + 1 for key, value in ours.items()}
    found = align(Recording.from_arrays(ours), Recording.from_arrays(theirs), rename={"layers.5.ln1": "blocks.5.norm1"})
    content = printed(found)
    assert "first divergence: step 0 · forward · layers.5.ln1 ↔ blocks.5.norm1 · output  FAIL" in content
    assert "step 0 · forward · layers.5.ln1 ↔ blocks.5.norm1 · output · call 2" in content
    assert "ln1 ↔ blocks.5.norm1" in printed(found, tree=True)
