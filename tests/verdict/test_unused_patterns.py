"""Patterns that fit nothing are named, with what they may have meant."""

from dataclasses import replace

import numpy as np
import pytest

from reprod_log import Recording, align
from reprod_log.errors import near_pattern
from reprod_log.verdict import unused_patterns

KEY = "step0/buffer/layer1.bn.running_var:raw"


def unused(**options) -> list[tuple[str, str, tuple[str, ...]]]:
    ours = Recording.from_arrays({KEY: np.ones(2), "loss_0": np.ones(1), "fc.bias": np.ones(1)})
    theirs = Recording.from_arrays({KEY: np.ones(2), "loss_0": np.ones(1), "extra": np.ones(1)})
    found = align(ours, theirs, **options)
    return [(one.option, one.pattern, one.near) for one in unused_patterns(found.comparison, found.policy)]


def test_patterns_that_fit_are_not_named() -> None:
    assert unused() == []
    assert unused(accept=["*running_var*"], allow_unmatched=["fc.*", "extra", "loss_?"]) == []
    assert unused(limits=["loss_*=mean_abs:1", "mean_abs:1", "float64/max_abs:1"]) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"accept": ["runing_var"]}, ("--accept", "runing_var", ("running_var", "layer1.bn.running_var"))),
        ({"accept": ["running_var"]}, ("--accept", "running_var", (KEY,))),
        ({"allow_unmatched": ["fx.bias"]}, ("--allow-unmatched", "fx.bias", ("fc.bias", "bias"))),
        ({"limits": ["lss_*=mean_abs:1"]}, ("--limit", "lss_*", ("loss_0",))),
        ({"limits": ["float16/max_abs:1"]}, ("--limit", "float16", ("float64",))),
    ],
)
def test_pattern_that_fits_nothing_is_named_with_near_names(options: dict, expected: tuple) -> None:
    assert unused(**options) == [expected]


def test_pattern_of_nothing_but_stars_has_no_near_names() -> None:
    assert near_pattern("[*]", ["a"]) == []


def test_star_is_never_unused() -> None:
    empty = align(Recording.from_arrays({"a": np.ones(1)}), Recording.from_arrays({"a": np.ones(1)}))
    nothing = replace(empty.comparison, rows=(), unmatched=())
    policy = replace(empty.policy, accept=("*",), allow_unmatched=("*",))
    assert unused_patterns(nothing, policy) == ()
