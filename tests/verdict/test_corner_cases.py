"""Corners of both rules on evidence made by hand: what a running mean is rounded like, what rates and first steps are
held to, what is read back from a saved policy, and the word for a recording that was cut short."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reprod_log import Recording, align
from reprod_log.measure.comparison import Comparison
from reprod_log.measure.fused import measure_arrays
from reprod_log.measure.measurement import Measurement
from reprod_log.recording import Key
from reprod_log.verdict import FloorEvidence, Policy, Status, judge
from verdict.made import EPS, english, evidence, judged, measured, only, row, summary

OUTPUT = "step0/forward/a#0:output"


def narrow(error: float, key: str = OUTPUT, *, size: float = 1.0, noise: float = 1e-7, mode: str = "") -> FloorEvidence:
    return evidence(
        key, mode, noise=measured(noise, size=size), float32=measured(error, size=size), basis="reference in float64"
    )  # fmt: skip


def wide(key: str, error: float = 0.0, *, size: float = 1.0, **facts: Any) -> FloorEvidence:
    given = {
        "noise": measured(1e-7, size=size),
        "float64": measured(0.0, size=size),
        "float32": measured(error, size=size),
        "basis": "both in float64",
    }
    return evidence(key, **{**given, **facts})


def floor_of(*given: FloorEvidence) -> float | None:
    """What rounding alone would give the first of these, as its judgement shows it."""
    found = {str(one.key): one for one in judged(*given).judgements}[str(given[0].key)]
    (check,) = found.checks
    return check.floor


@pytest.mark.parametrize(("mean", "variance"), [("running_mean", "running_var"), ("_mean", "_variance")])
def test_running_mean_is_rounded_like_the_values_it_sums(mean: str, variance: str) -> None:
    key, sibling = f"step0/buffer/bn.{mean}", f"step0/buffer/bn.{variance}"
    ours, deviation = narrow(0.0, key, size=0.5, noise=0.0), narrow(0.0, sibling, size=16.0)
    plain = EPS * 0.5
    assert floor_of(ours, deviation) == pytest.approx(plain + EPS * 4.0, rel=1e-12)
    assert floor_of(ours) == plain
    # Only of a buffer, only its own layer's, and only when it was measured in its own precision.
    gradient = narrow(0.0, key.replace("buffer", "gradient"), size=0.5, noise=0.0)
    theirs = narrow(0.0, sibling.replace("buffer", "gradient"), size=16.0)
    assert floor_of(gradient, theirs, deviation) == plain
    assert floor_of(ours, narrow(0.0, sibling.replace("bn", "other"), size=16.0)) == plain
    assert floor_of(ours, replace(deviation, float32=None)) == plain
    # A buffer that is no mean has no deviation of its own: even one that a name beside it would fit.
    count = narrow(0.0, "step0/buffer/bn.count", size=0.5, noise=0.0)
    assert floor_of(count, narrow(0.0, f"step0/buffer/bn.count{variance}", size=16.0), deviation) == plain


def test_what_has_no_floor_passes_only_when_nothing_differs() -> None:
    zero = narrow(0.0, size=0.0, noise=0.0)
    assert judged(zero).passed
    moved = replace(zero, float32=measured(1.0, size=0.0))
    one = only(judged(moved))
    assert one.status is Status.FAIL
    assert "inf × rounding, 0 allowed" in english(one.reason)


def test_learning_rate_is_told_in_the_pass_in_which_it_differs() -> None:
    def rate(difference: float) -> Any:
        return measured(difference, max_abs=difference, reference=summary(1.0)._replace(abs_max=1.0))

    one = only(judged(evidence("step0/lr/group0", float64=rate(0.0), float32=rate(0.5))))
    assert (one.status, one.checks[0].value) == (Status.FAIL, 0.5)
    one = only(judged(evidence("step0/lr/group0", float64=rate(0.25), float32=rate(0.5))))
    assert one.checks[0].value == 0.25
    one = only(judged(evidence("step0/lr/group0", float64=rate(1e-10), float32=rate(1e-9))))
    assert (one.status, one.checks[0].value) == (Status.PASS, 1e-10)


def test_precision_of_the_first_step_is_looked_at_unless_an_injected_run_speaks() -> None:
    coarse = wide(OUTPUT, 1e-3)
    assert judged(coarse).status is Status.PRECISION
    assert judged(coarse, narrow(0.0, "step1/update/a", mode="injected")).status is Status.PASS


def test_first_step_is_the_first_that_was_recorded() -> None:
    later = wide("step5/forward/a#0:output", 1e-3)
    assert judged(later).status is Status.PRECISION
    assert judged(later, wide("step4/forward/a#0:output")).passed
    assert judged(later, wide("fc1")).status is Status.PRECISION, "a name without a step is no step"
    assert judged(wide("fc1", 1e-3)).passed
    isolated = replace(
        wide("step4/forward/b#0:output"), key=Key("b", "forward", 4, 0, "output", "isolated"), mode="isolated"
    )
    assert judged(later, isolated).status is Status.PRECISION, "layers alone are no step of the run"


def test_single_number_of_the_first_step_shares_the_noise_of_later_ones() -> None:
    first = wide("step0/loss/loss", 0.02, float32=measured(0.02, count=1))
    assert judged(first).status is Status.PRECISION
    later = wide("step1/loss/loss", noise=measured(1e-4), float64=measured(0.0), float32=measured(0.0, count=1))
    assert judged(first, later).passed


@pytest.mark.parametrize("key", ["step0/gradient/a.weight:raw", "step0/backward/a#0:output"])
def test_activation_on_the_other_side_excuses_what_comes_behind_gradients(key: str) -> None:
    flipped, update = wide(key, 0.05), wide("step0/update/a.weight", 0.05)
    verdict = judged(flipped, update)
    assert verdict.passed
    reason = "no more than an activation on the other side of zero does to gradients"
    for one in verdict.judgements:
        assert (english(one.reason), one.evidence) in (("", "both in float64"), (reason, "both in float64"))
        assert [check.passed for check in one.checks] == [True, True, False]
    assert not judged(update).passed, "nothing flipped"
    assert not judged(flipped, wide(OUTPUT, 0.05)).passed, "an output is not behind gradients"


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (wide("step0/data/x", 1e-3, noise=measured(1e-7, differing=0)), False),
        (wide(OUTPUT, float32=measured(1e-3, reference_dtype="int64")), False),
        # What is rounding to a twentieth cannot tell more; 300 times that much would be too much.
        (wide(OUTPUT, 20.0, noise=measured(0.051)), False),
        (wide(OUTPUT, 20.0, noise=measured(0.05)), True),
        (wide(OUTPUT, 1e-3), True),
    ],
)
def test_precision_is_asked_of_what_can_tell_it(given: FloorEvidence, asked: bool) -> None:
    assert (judged(given).status is Status.PRECISION) is asked


def test_policy_for_a_recording_cut_short_survives_when_written_and_read() -> None:
    policy = Policy.fixed(allow_incomplete=True)
    assert policy.allow_incomplete
    assert Policy.from_dict(policy.to_dict()) == policy
    old = policy.to_dict()
    del old["allow_incomplete"]
    assert Policy.from_dict(old).allow_incomplete is False
    assert not Policy.fixed().allow_incomplete


def test_default_of_one_kind_is_replaced_only_by_a_limit_for_it() -> None:
    kept = {limit.dtype for limit in Policy.fixed(["max_abs:1"]).limits}
    assert kept == {"*", "int*", "uint*", "bool*", "str*", "object*"}


def test_recording_that_was_cut_short_does_not_pass() -> None:
    def status(values: float, *, complete: bool, **options: bool) -> Status:
        sides = (Recording.from_arrays({"x": np.full(3, value)}) for value in (1.0, values))
        return align(*(replace(one, complete=complete) for one in sides), **options).status

    assert status(1.0, complete=True) is Status.PASS
    assert status(1.0, complete=False) is Status.INCOMPLETE
    assert status(1.0, complete=False, allow_incomplete=True) is Status.PASS
    assert status(2.0, complete=False) is Status.FAIL


def test_float64_runs_of_other_modes_are_evidence_too() -> None:
    rows = tuple(row(key, measured(0.0)) for key in (OUTPUT, f"float64@{OUTPUT}", f"isolated@{OUTPUT}"))
    rows += (row(f"isolated.float64@{OUTPUT}", measured(0.0)), row("float64@step0/loss/loss", measured(0.0)))
    found = [one.key for one in judge(Comparison(rows, ()), Policy.fixed()).judgements]
    assert found == [OUTPUT, f"isolated@{OUTPUT}", "float64@step0/loss/loss"]
    alone = tuple(row(f"{run}@{OUTPUT}", measured(0.0)) for run in ("isolated", "isolated.float64"))
    assert [one.key for one in judge(Comparison(alone, ()), Policy.fixed()).judgements] == [f"isolated@{OUTPUT}"]


def reason(measurement: Measurement, **facts: Any) -> str:
    """Why a single pair fails under fixed limits."""
    (one,) = judge(Comparison((row("names", measurement, **facts),), ()), Policy.fixed()).judgements
    assert one.status is Status.FAIL
    return english(one.reason)


def test_texts_that_differ_are_told_with_the_first_of_them() -> None:
    def told(reference: list[str], candidate: list[str]) -> str:
        found = measure_arrays(np.array(reference), np.array(candidate))
        return reason(found, reference_dtype="str", candidate_dtype="str")

    assert told(["a"], ["b"]) == "the two are not equal: reference 'a', candidate 'b'"
    several = told(["a", "b", "c"], ["a", "x", "y"])
    assert several == "2 of 3 values not equal; first at [1]: reference 'b', candidate 'x'"


def test_difference_without_size_is_told_without_its_place_when_that_is_not_known() -> None:
    lost = measured(float("nan"), worst=None, differing=2, count=3)
    assert reason(lost) == "2 of 3 values not equal"
    assert reason(lost._replace(count=1)) == "2 of 1 values not equal"
    assert "NaN or infinity on one side only" in reason(lost._replace(nonfinite_mismatched=1))
