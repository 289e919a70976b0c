"""Texts and objects that differ: both are shown, shortened and safe, and no number is made up for them."""

import numpy as np
import pytest

from reprod_log import Alignment, Recording, align
from reprod_log.report import render_report


def compared(ours: object, theirs: object) -> Alignment:
    return align(Recording.from_arrays({"t": np.array(ours)}), Recording.from_arrays({"t": np.array(theirs)}))


def reason(ours: object, theirs: object) -> str:
    return str(compared(ours, theirs).verdict.judgements[0].reason)


def test_two_texts_that_differ_are_shown_both() -> None:
    assert reason("cat", "dog") == "the two are not equal: reference 'cat', candidate 'dog'"


def test_of_many_texts_the_first_that_differs_is_shown() -> None:
    told = reason(["a", "b", "c"], ["a", "x", "y"])
    assert told == "2 of 3 values not equal; first at [1]: reference 'b', candidate 'x'"


def test_of_long_texts_the_part_that_differs_is_shown() -> None:
    told = reason("a" * 500 + "left", "a" * 500 + "right")
    assert "left'" in told
    assert "right'" in told
    assert len(told) < 250


@pytest.mark.parametrize("format", ["text", "markdown", "junit"])
def test_no_report_makes_up_numbers_for_texts(format: str) -> None:
    content = render_report(compared("cat", "dog\x1b[31m\u202e"), format=format, full=True)
    assert "nan" not in content
    assert "inf" not in content
    assert "\x1b" not in content
    assert "\u202e" not in content
