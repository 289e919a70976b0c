"""The settings of `align` are one value behind all faces, and do the same in each."""

import inspect
from dataclasses import fields

import numpy as np
import pytest

from reprod_log import CalibratedPolicy, Policy, Recording, align, align_models
from reprod_log.alignment import AlignOptions
from reprod_log.cli.app import flattened
from reprod_log.cli.commands import compare
from reprod_log.errors import UsageError
from reprod_log.testing import assert_aligned

REFERENCE = Recording.from_arrays({"loss": np.ones(3), "x": np.ones(3)})
CANDIDATE = Recording.from_arrays({"loss": np.ones(3), "x": np.full(3, 1.5)})


def keywords(function: object) -> set[str]:
    return set(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_align_takes_every_option() -> None:
    assert {one.name for one in fields(AlignOptions)} | {"reference", "candidate"} == keywords(align)


def test_the_command_and_the_other_faces_take_options_of_align_under_the_same_names() -> None:
    # The command calls some by the singular, shows progress by itself, and keeps elements when it writes a report.
    names = {"limit": "limits", "dask": "executor"}
    taken = {names.get(name, name) for name in keywords(flattened(compare.run))}
    assert keywords(align) - taken == {"policy", "progress", "elements"}
    assert keywords(assert_aligned) <= keywords(align)
    assert {"rename", "policy", "limits", "allow_unmatched", "accept", "equal_nan"} <= keywords(align_models)


def test_policy_and_limits_together_are_refused() -> None:
    with pytest.raises(UsageError, match="not both"):
        align(REFERENCE, CANDIDATE, policy=Policy.fixed(), limits=["max_abs:1"])


@pytest.mark.parametrize("policy", [None, Policy.fixed(), Policy.fixed(["max_abs:0.1"])])
def test_what_is_accepted_passes_under_any_policy(policy: Policy | None) -> None:
    assert not align(REFERENCE, CANDIDATE, policy=policy).passed
    assert align(REFERENCE, CANDIDATE, policy=policy, accept="x").passed
    assert_aligned(REFERENCE, CANDIDATE, policy=policy, accept="x")


@pytest.mark.parametrize("policy", [None, Policy.fixed(allow_unmatched=["loss"])])
def test_allowing_more_adds_to_what_the_policy_allows(policy: Policy | None) -> None:
    only_x, only_y = Recording.from_arrays({"loss": 1.0, "a": 1.0, "x": 1.0}), Recording.from_arrays({"x": 1.0})
    found = align(only_x, only_y, policy=policy, allow_unmatched="a")
    assert found.passed is (policy is not None)
    assert "a" in found.policy.allow_unmatched


def test_calibrated_policy_is_loosened_too() -> None:
    options = AlignOptions.of(accept="*x*", equal_nan=True)
    policy = options.policy_for(calibrated=True)
    assert isinstance(policy, CalibratedPolicy)
    assert (policy.accept, policy.equal_nan) == (("*x*",), True)
    assert not isinstance(AlignOptions.of(limits="max_abs:1").policy_for(calibrated=True), CalibratedPolicy)
