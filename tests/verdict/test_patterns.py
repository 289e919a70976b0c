"""Patterns and limits given as a single text: one pattern, never its letters, one of which may be a star."""

import numpy as np
import pytest

from reprod_log import CalibratedPolicy, Policy, Recording, align
from reprod_log.errors import UsageError
from reprod_log.testing import assert_aligned

ONES = {"a": np.ones(3), "b": np.ones(3)}


def apart(**options: object) -> bool:
    other = {"a": np.ones(3) * 2, "b": np.ones(3)}
    return not align(Recording.from_arrays(ONES), Recording.from_arrays(other), **options).passed  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [Policy, Policy.fixed, CalibratedPolicy])
@pytest.mark.parametrize("name", ["accept", "allow_unmatched"])
def test_single_text_is_one_pattern(policy, name: str) -> None:  # type: ignore[no-untyped-def]
    assert getattr(policy(**{name: "*running_var*"}), name) == ("*running_var*",)
    assert getattr(policy(**{name: ["a*", "b"]}), name) == ("a*", "b")
    with pytest.raises(UsageError, match=f"{name} takes patterns of keys .* not 5"):
        policy(**{name: [5]})


def test_single_text_accepts_only_what_it_fits() -> None:
    assert apart(accept="*b*")
    assert not apart(accept="*a*")
    assert apart(policy=Policy(accept="*b*"))  # type: ignore[arg-type]


def test_single_text_allows_only_what_it_fits_to_be_missing() -> None:
    with pytest.raises(AssertionError):
        assert_aligned(ONES, {"a": np.ones(3)}, allow_unmatched="*zz*")
    assert_aligned(ONES, {"a": np.ones(3)}, allow_unmatched="*b*")


def test_limits_as_text_are_read_wherever_they_are_given() -> None:
    assert not apart(limits="max_abs:1.5")
    assert apart(limits="max_abs:0.5")
    assert not apart(policy=Policy(limits=["max_abs:1.5"]))  # type: ignore[arg-type]
    assert Policy(limits="max_abs:1.5") == Policy(limits=("max_abs:1.5",))  # type: ignore[arg-type]
