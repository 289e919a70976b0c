"""How alignments and recordings show themselves in a notebook."""

import re

import numpy as np
from made_alignments import HOSTILE, calibrated, classic, hostile

from reprod_log import Recording


def test_alignment_shows_its_first_screen_and_what_does_not_pass() -> None:
    shown = classic()._repr_html_()
    assert "NOT ALIGNED: 1 fail, 2 unmatched" in shown
    assert "<code>loss_7</code>" in shown
    assert "loss_6" in shown
    assert "<code>loss_6</code>" not in shown


def test_long_alignment_is_cut_and_counted() -> None:
    shown = calibrated()._repr_html_()
    assert shown.count("<tr>") == 21
    assert "+ 119" in shown


def test_hostile_names_are_text() -> None:
    shown = hostile()._repr_html_()
    ours = {"div", "b", "bdi", "code", "table", "thead", "tbody", "tr", "th", "td", "small"}
    ours |= {"br", "circle", "details", "figure", "img", "summary", "svg", "text", "title"}
    assert set(re.findall(r"<(\w+)", shown)) <= ours
    assert "&lt;script&gt;" in shown
    assert "<img src=x" not in shown
    recording = Recording.from_arrays({HOSTILE[7]: np.ones(1)})._repr_html_()
    assert "<img" not in recording
