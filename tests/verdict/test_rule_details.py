"""Corners of both rules on evidence made by hand: what a running mean is rounded like, what rates and first steps are
held to, what is read back from a saved policy, and the word for a recording that was cut short."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reprod_log.measure.comparison import Comparison
from reprod_log.measure.fused import measure_arrays
from reprod_log.verdict import CalibratedPolicy, FloorEvidence, Judgement, NoiseFloor, Policy, Status, Verdict
from reprod_log.verdict.fixed import has_no_size, judge, judge_row, mismatch_line, require_complete
from reprod_log.verdict.floors import pooled_floor, ratio
from reprod_log.verdict.precision import precision_tier
from verdict.made import EPS, evidence, judged, measured, only, row, summary

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


@pytest.mark.parametrize(("mean", "variance"), [("running_mean", "running_var"), ("_mean", "_variance")])
def test_running_mean_is_rounded_like_the_values_it_sums(mean: str, variance: str) -> None:
    key, sibling = f"step0/buffer/bn.{mean}", f"step0/buffer/bn.{variance}"
    ours, deviation = narrow(0.0, key, size=0.5, noise=0.0), narrow(0.0, sibling, size=16.0)
    plain = EPS * 0.5
    assert pooled_floor(ours, NoiseFloor((ours, deviation))) == pytest.approx(plain + EPS * 4.0, rel=1e-12)
    assert pooled_floor(ours, NoiseFloor((ours,))) == plain
    # Only of a buffer, only its own layer's, and only when it was measured in its own precision.
    gradient = narrow(0.0, key.replace("buffer", "gradient"), size=0.5, noise=0.0)
    theirs = narrow(0.0, sibling.replace("buffer", "gradient"), size=16.0)
    assert pooled_floor(gradient, NoiseFloor((gradient, theirs, deviation))) == plain
    elsewhere = narrow(0.0, sibling.replace("bn", "other"), size=16.0)
    assert pooled_floor(ours, NoiseFloor((ours, elsewhere))) == plain
    assert pooled_floor(ours, NoiseFloor((ours, replace(deviation, float32=None)))) == plain
    # A buffer that is no mean has no deviation of its own: even one that a name beside it would fit.
    count = narrow(0.0, "step0/buffer/bn.count", size=0.5, noise=0.0)
    beside = narrow(0.0, f"step0/buffer/bn.count{variance}", size=16.0)
    assert pooled_floor(count, NoiseFloor((count, beside, deviation))) == plain


def test_error_in_floors_of_what_has_none_is_nothing_or_endless() -> None:
    zero = narrow(0.0, size=0.0, noise=0.0)
    assert ratio(zero, NoiseFloor((zero,))) == 0.0
    moved = replace(zero, float32=measured(1.0, size=0.0))
    assert ratio(moved, NoiseFloor((moved,))) == float("inf")
    plain = narrow(3e-7)
    assert ratio(plain, NoiseFloor((plain,))) == 3e-7 / (1e-7 + EPS)


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
    isolated = replace(wide("step4/forward/b#0:output"), key="isolated@step4/forward/b#0:output", mode="isolated")
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
    reason = "no more than what an activation on the other side does to gradients"
    for one in verdict.judgements:
        assert (one.reason, one.evidence) in (("", "both in float64"), (reason, "both in float64"))
        assert [check.passed for check in one.checks] == [True, True, False]
    assert not judged(update).passed, "nothing flipped"
    assert not judged(flipped, wide(OUTPUT, 0.05)).passed, "an output is not behind gradients"


def test_excuse_is_said_when_the_precision_tier_stands_alone() -> None:
    gradient = wide("step0/gradient/a.weight:raw", 0.05)
    (one,) = precision_tier(NoiseFloor((gradient,)), CalibratedPolicy())
    assert one.reason == "no more than what an activation on the other side does to gradients"
    assert one.evidence == "both in float64"
    assert one.status is Status.PASS


@pytest.mark.parametrize(
    ("unasked", "asked"),
    [
        (wide("step0/data/x", noise=measured(1e-7, differing=1)), False),
        (wide("step0/lr/group0"), False),
        (wide(OUTPUT, float32=measured(0.0, reference_dtype="int64")), False),
        (wide(OUTPUT, float64=None), False),
        (wide(OUTPUT, noise=measured(0.051)), False),
        (wide(OUTPUT, noise=measured(0.05)), True),
        (wide(OUTPUT), True),
    ],
)
def test_precision_is_asked_of_what_can_tell_it(unasked: FloorEvidence, asked: bool) -> None:
    assert len(precision_tier(NoiseFloor((unasked,)), CalibratedPolicy())) == asked


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
    passed, failed = Verdict(Status.PASS, ()), Verdict(Status.FAIL, (Judgement("a", Status.FAIL),))
    assert require_complete(passed, complete=True, allow_incomplete=False) is passed
    assert require_complete(passed, complete=False, allow_incomplete=True) is passed
    assert require_complete(failed, complete=False, allow_incomplete=False) is failed
    assert require_complete(passed, complete=False, allow_incomplete=False) == Verdict(Status.INCOMPLETE, ())


def test_float64_runs_of_other_modes_are_evidence_too() -> None:
    rows = tuple(row(key, measured(0.0)) for key in (OUTPUT, f"float64@{OUTPUT}", f"isolated@{OUTPUT}"))
    rows += (row(f"isolated.float64@{OUTPUT}", measured(0.0)), row("float64@step0/loss/loss", measured(0.0)))
    found = [one.key for one in judge(Comparison(rows, ()), Policy.fixed()).judgements]
    assert found == [OUTPUT, f"isolated@{OUTPUT}", "float64@step0/loss/loss"]
    alone = tuple(row(f"{run}@{OUTPUT}", measured(0.0)) for run in ("isolated", "isolated.float64"))
    assert [one.key for one in judge(Comparison(alone, ()), Policy.fixed()).judgements] == [f"isolated@{OUTPUT}"]


def test_texts_that_differ_are_told_with_the_first_of_them() -> None:
    def said(reference: list[str], candidate: list[str]) -> str:
        found = measure_arrays(np.array(reference), np.array(candidate))
        return judge_row(row("names", found, reference_dtype="str", candidate_dtype="str"), Policy.fixed()).reason

    assert said(["a"], ["b"]) == "the two are not equal: reference 'a', candidate 'b'"
    several = said(["a", "b", "c"], ["a", "x", "y"])
    assert several == "2 of 3 values not equal; first at [1]: reference 'b', candidate 'x'"


def test_difference_without_size_is_told_without_its_place_when_that_is_not_known() -> None:
    lost = measured(float("nan"), worst=None, differing=2, count=3)
    assert has_no_size(lost)
    assert mismatch_line(row("a", lost), ()) == "2 of 3 values not equal"
    assert mismatch_line(row("a", lost._replace(count=1)), ()) == "the two are not equal: "
    assert not has_no_size(lost._replace(nonfinite_mismatched=1))
    assert not has_no_size(lost._replace(differing=0))
    assert not has_no_size(measured(1.0))
    assert mismatch_line(row("a"), ()) == ""
