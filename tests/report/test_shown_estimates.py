"""Estimates from sketches in reports: the number that is known is shown, with a sign, and no other one is made up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reprod_log import Recording, align
from reprod_log.alignment import Alignment
from reprod_log.recording import entry_of
from reprod_log.recording.entry import content_hash
from reprod_log.recording.sketch import sketch_of
from reprod_log.report import render_report
from reprod_log.report.terminal import print_alignment, terminal
from reprod_log.report.view import rows


def recorded(values: np.ndarray, detail: str) -> Recording:
    key, found = "step0/forward/fc#0:output", sketch_of(values)
    whole = entry_of(key, values, hash=content_hash(values))
    if detail == "full":
        return Recording((whole,))
    meta = {"summary": found.summary, "sketch": found.facts()} if detail == "sketch" else {}
    return Recording((replace(whole, detail=detail, meta=meta, read=lambda: found.values),))  # type: ignore[arg-type]


def alignment(detail: str) -> Alignment:
    values = np.random.default_rng(0).standard_normal((64, 64))
    return align(recorded(values, detail), recorded(values * (1 + 1e-3), detail))


@pytest.mark.parametrize("format", ["markdown", "html"])
def test_relative_error_of_sketches_is_shown_as_an_estimate(format: str) -> None:
    (row,) = rows(alignment("sketch"))
    assert row.number("rel_l2") == pytest.approx(1e-3, rel=0.2)
    assert row.text("rel_l2") == f"≈{row.number('rel_l2'):.1e}".replace("e-0", "e-")
    assert (row.number("max_abs"), row.text("max_abs"), row.times_limit) == (None, "–", None)
    assert row.text("rel_l2") in render_report(alignment("sketch"), format=format, full=True)


def test_narrow_screen_shows_the_relative_error_of_estimates_before_ratios_that_are_not_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for detail, column in (("sketch", "rel L2"), ("full", "× limit")):
        print_alignment(alignment(detail), terminal())
        (head,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("status")]
        assert head.split(maxsplit=2)[2] == column


def test_measured_error_has_no_sign_before_it() -> None:
    (row,) = rows(alignment("full"))
    assert row.text("rel_l2") == "1.0e-3"
    assert row.times_limit is not None
    assert row.times_limit > 1
