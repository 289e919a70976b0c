"""Correct ports, recorded as two scripts: all pass, without a doubt, with and without a float64 pass."""

from __future__ import annotations

import pytest

from reprod_log import Status, align
from trust.right_pairs import RIGHT, SCRIPTS
from trust.wrong_passes import joined, recorded


@pytest.mark.parametrize("name", RIGHT)
def test_correct_pair_of_recordings_passes_without_a_doubt(name: str) -> None:
    plain, wide = (
        [recorded(framework, is_wide, scripts=SCRIPTS, **RIGHT[name]) for framework in ("torch", "paddle")]
        for is_wide in (False, True)
    )
    both = [joined(*passes, programs=True) for passes in zip(plain, wide, strict=True)]
    found = align(*both)
    assert (found.status, found.doubts) == (Status.PASS, ())
    without = align(both[0], plain[1])
    assert (without.status, without.doubts) == (Status.PASS, ())
    assert not align(*plain).doubts


def test_there_are_enough_of_them() -> None:
    assert len(RIGHT) >= 30
