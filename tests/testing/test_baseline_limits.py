"""What a baseline holds the values of a test to when the test names no limit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reprod_log.errors import NotAligned
from reprod_log.testing.baseline import Baseline


def checked(path: Path, before: Any, now: Any, **judged: Any) -> bool:
    for update, value in ((True, before), (False, now)):
        baseline = Baseline(path / "x.safetensors", update=update)
        baseline.add("x", value)
        if judged:
            baseline.judge_by(**judged)
        try:
            baseline.check()
        except NotAligned:
            return False
    return True


@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e-9, 1e-20])
def test_small_values_are_held_to_a_relative_limit(tmp_path: Path, scale: float) -> None:
    assert checked(tmp_path, np.array([1.0, 2.0]) * scale, np.array([1.0, 2.0 + 1e-7]) * scale)
    assert not checked(tmp_path, np.array([1e-9]) * scale, np.array([-5e-7]) * scale)


def test_limit_of_the_test_takes_the_place_of_the_usual_ones(tmp_path: Path) -> None:
    assert checked(tmp_path, np.array([1e-9]), np.array([-5e-7]), limits="max_abs:1e-6")


def test_half_precision_keeps_its_own_limit(tmp_path: Path) -> None:
    assert checked(tmp_path, np.array([1.0, 2.0], "f2"), np.array([1.0, 2.002], "f2"))
