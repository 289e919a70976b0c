"""Matching by name and by rename map."""

import numpy as np
import pytest

from reprod_log import Recording
from reprod_log.errors import UsageError
from reprod_log.pairing import match


def recording(*keys: str) -> Recording:
    return Recording.from_arrays({key: np.ones(1) for key in keys})


def test_partners_are_found_by_name_in_the_references_order() -> None:
    pairing = match(recording("a", "b", "c"), recording("c", "b", "d"))
    assert [str(pair.reference.key) for pair in pairing.pairs] == ["b", "c"]
    assert [str(entry.key) for entry in pairing.only_in_reference] == ["a"]
    assert [str(entry.key) for entry in pairing.only_in_candidate] == ["d"]
    assert {pair.how for pair in pairing.pairs} == {"name"}


@pytest.mark.parametrize(
    ("rename", "reference", "candidate"),
    [
        ({"loss": "cost"}, "loss", "cost"),
        ({"fc": "linear"}, "step0/forward/fc#0:output", "step0/forward/linear#0:output"),
        ({"fc": "linear"}, "step0/gradient/fc.weight:raw", "step0/gradient/linear.weight:raw"),
        ({"a.b": "x"}, "step0/forward/a.b.c#0:output", "step0/forward/x.c#0:output"),
        ({"a": "y", "a.b": "x"}, "step0/forward/a.b.c#0:output", "step0/forward/x.c#0:output"),
    ],
)
def test_partner_is_found_when_renamed(rename: dict[str, str], reference: str, candidate: str) -> None:
    pairing = match(recording(reference), recording(candidate), rename=rename)
    assert [(str(pair.candidate.key), pair.how) for pair in pairing.pairs] == [(candidate, "rename")]


def test_rename_does_not_touch_names_that_only_begin_alike() -> None:
    pairing = match(recording("fc.w", "fc2.w"), recording("linear.w", "fc2.w"), rename={"fc": "linear"})
    assert [str(pair.candidate.key) for pair in pairing.pairs] == ["linear.w", "fc2.w"]


def test_rename_that_fits_nothing_is_an_error() -> None:
    with pytest.raises(UsageError, match="nothing named 'typo'.*has 'fc.weight'"):
        match(recording("fc.weight"), recording("fc.weight"), rename={"typo": "x"})


def test_one_entry_is_never_the_partner_of_two() -> None:
    pairing = match(recording("a", "b"), recording("b"), rename={"a": "b"})
    assert len(pairing.pairs) == 1
    assert len(pairing.only_in_reference) == 1
