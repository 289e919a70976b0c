"""Every branch of the calibrated rule on evidence made by hand, with the exact word and numbers it must give."""

import math
from dataclasses import replace

import pytest

from reprod_log.errors import UsageError
from reprod_log.measure.comparison import Unmatched
from reprod_log.measure.measurement import Estimate
from reprod_log.recording import Key
from reprod_log.verdict import CalibratedPolicy, Status
from verdict.made import EPS, english, evidence, judged, measured, numbers, only, row, summary, told

BOTH, REFERENCE = "both in float64", "reference in float64"
FREE = "step0/forward/a#0:output"


def wide(error: float, *, noise: float = 1e-7, key: str = FREE, mode: str = "", size: float = 1.0, basis: str = BOTH):
    return evidence(
        key, mode, noise=measured(noise, size=size), float64=measured(error, size=size),
        float32=measured(noise, size=size), basis=basis,
    )  # fmt: skip


def narrow(error: float, *, noise: float = 1e-7, key: str = FREE, mode: str = "", size: float = 1.0, **facts: object):
    given = {"noise": measured(noise, size=size), "float32": measured(error, size=size), "basis": REFERENCE, **facts}
    return evidence(key, mode, **given)


def floors(noise: float, size: float = 1.0) -> tuple[float, float]:
    return noise + EPS * size, 2 * noise + EPS * 2 * size


@pytest.mark.parametrize("size", [1.0, 4.0, 0.25])
@pytest.mark.parametrize(("times", "status"), [(9.99, "PASS"), (10.01, "FAIL")])
def test_free_run_is_held_to_ten_floors_of_rms_and_of_the_largest_element(
    times: float, status: str, size: float
) -> None:
    rms, largest = floors(1e-7 * size, size)
    error = times * rms
    one = only(judged(wide(error, noise=1e-7 * size, size=size)))
    assert (one.key, str(one.status), one.evidence) == (FREE, status, BOTH)
    # A passing entry of the first step has a third check: the precision in which it runs.
    assert numbers(one)[:2] == [
        ("rms", error, 10 * rms, error <= 10 * rms, rms),
        ("max", 2 * error, 10 * largest, 2 * error <= 10 * largest, largest),
    ]
    assert one.checks[0].ratio == pytest.approx(times)
    said = (
        f"10 × rounding, 10 allowed (rms error {error:.3g}, rounding floor {rms:.3g}); "
        f"10 × rounding, 10 allowed (max error {2 * error:.3g}, rounding floor {largest:.3g})"
    )
    assert english(one.reason) == (said if status == "FAIL" else "")


def test_largest_element_alone_fails() -> None:
    error = measured(0.0, rmse=1e-8, max_abs=1e-3)
    one = only(judged(evidence(FREE, noise=measured(1e-7), float64=error, float32=error, basis=BOTH)))
    assert [check.passed for check in one.checks] == [True, False]
    assert one.status is Status.FAIL
    assert "(max error 0.001, " in english(one.reason)
    assert "rms" not in english(one.reason)


def test_optimizer_state_gets_twice_the_factor() -> None:
    rms, _ = floors(1e-7)
    key = "step0/optimizer/a.weight:exp_avg_sq"
    assert only(judged(wide(15 * rms, key=key))).status is Status.PASS
    assert only(judged(wide(15 * rms, key="step0/gradient/a.weight:raw"))).status is Status.FAIL
    assert numbers(only(judged(wide(15 * rms, key=key))))[0][2] == 20 * rms
    assert only(judged(wide(20.1 * rms, key=key))).status is Status.FAIL


def test_free_run_is_never_suspect() -> None:
    assert told(only(judged(wide(2e-7)))) == (FREE, "PASS", "", BOTH)


@pytest.mark.parametrize(
    ("error", "noise", "size", "status"),
    [
        (2.9, 1e-7, 1.0, "SUSPECT"),
        (3.1, 1e-7, 1.0, "FAIL"),
        (0.1, 1e-7, 1.0, "PASS"),
        (1.0, 0.06, 1.0, "PASS"),  # mostly rounding: not held to relative errors
        (1.0, 0.04, 1.0, "SUSPECT"),
        (1.0, 0.4, 8.0, "SUSPECT"),
        (1.0, 0.5, 8.0, "PASS"),
        (0.5, 8e-7, 8.0, "PASS"),
    ],
)
def test_isolated_layer_is_held_to_three_floors_and_may_be_suspect(
    error: float, noise: float, size: float, status: str
) -> None:
    rms, largest = floors(noise, size)
    one = only(judged(wide(error * rms, noise=noise, mode="isolated", size=size)))
    assert str(one.status) == status
    assert numbers(one)[0] == ("rms", error * rms, 3 * rms, error <= 3, rms)
    assert numbers(one)[1][2] == 3 * largest
    if status == "SUSPECT":
        share = error * rms / size
        reason = f"{share:.1e} relative in float64: within float32 rounding, but a constant may differ"
        assert told(one) == (f"isolated@{FREE}", "SUSPECT", reason, BOTH)


def test_zero_reference_is_suspect_with_an_infinite_share() -> None:
    one = wide(0.0, mode="isolated", size=0.0)
    error = measured(1e-9, size=0.0, max_abs=1e-9)
    one = replace(one, float64=error, noise=measured(1e-8, size=0.0))
    # Rounding of a true zero is noise only, so nothing relative is asked of it.
    assert only(judged(one)).status is Status.PASS
    assert only(judged(replace(one, noise=measured(0.0, size=0.0)))).status is Status.FAIL


def test_running_statistics_alone_get_the_wider_limit_and_are_not_suspect() -> None:
    rms, _ = floors(1e-7)
    key = "step0/buffer/bn.running_mean:of bn"
    one = only(judged(wide(9 * rms, key=key, mode="isolated")))
    assert told(one) == (f"isolated@{key}", "PASS", "", BOTH)
    assert numbers(one)[0][2] == 10 * rms
    assert only(judged(wide(11 * rms, key=key, mode="isolated"))).status is Status.FAIL


def test_layer_of_layers_is_told_after_the_free_run() -> None:
    rms, _ = floors(1e-7)
    inner, outer = "step0/forward/block.fc#0:output", "step0/forward/block#0:output"
    verdict = judged(
        wide(100 * rms, key=outer, mode="isolated"), wide(0.0, key=inner, mode="isolated"),
        wide(100 * rms, key=outer), wide(0.0, key=inner),
    )  # fmt: skip
    keys = [one.key for one in verdict.judgements]
    assert keys == [f"isolated@{inner}", outer, inner, f"isolated@{outer}"]
    assert verdict.first_divergence is not None
    assert verdict.first_divergence.key == outer


@pytest.mark.parametrize(
    ("outer", "inner", "last"),
    [
        ("step0/forward/#0:output", "step0/forward/fc#0:output", 0),
        ("step0/gradient/fc.weight:of model", "step0/backward/fc#0:output", 0),
        ("step0/gradient/block.fc.weight:of block", "step0/gradient/block.fc.weight:of block.fc", 0),
        ("step0/gradient/fc.weight:raw of block", "step0/forward/block.fc#0:output", 0),
        ("step0/forward/fc#0:output", "step0/forward/fc2#0:output", 1),
        ("step0/backward/fc#0:output", "step0/forward/fc#0:output", 1),
    ],
)
def test_containers_are_known_by_their_paths(outer: str, inner: str, last: int) -> None:
    verdict = judged(wide(0.0, key=outer, mode="isolated"), wide(0.0, key=inner, mode="isolated"))
    order = [outer, inner] if last else [inner, outer]
    assert [one.key for one in verdict.judgements] == [f"isolated@{key}" for key in order]


def test_data_must_be_the_same_bit_for_bit() -> None:
    key = "step0/data/x"
    same = only(judged(evidence(key, float32=measured(0.0))))
    assert told(same) == (key, "PASS", "", "inputs, bit for bit")
    assert numbers(same) == [("differing", 0.0, 0.0, True, None)]
    rounded = only(judged(evidence(key, float32=measured(1e-30, differing=1))))
    reason = "both programs computed this input, and 1 of 100 values differ by rounding"
    assert told(rounded) == (key, "SUSPECT", reason, "inputs, bit for bit")
    exact = measured(1e-30, differing=1, candidate_dtype="int64")
    assert only(judged(evidence(key, float32=exact))).status is Status.FAIL
    other = only(judged(evidence(key, float32=measured(1e-5, differing=1))))
    assert told(other) == (
        key, "FAIL", "the two sides were given different data: 1 of 100 differ", "inputs, bit for bit",
    )  # fmt: skip
    assert numbers(other) == [("differing", 1.0, 0.0, False, None)]
    assert only(judged(evidence(key, float32=measured(0.0, nonfinite_mismatched=1)))).status is Status.FAIL
    missing = evidence(key, float32=measured(0.0, nan_both=1))
    assert only(judged(missing)).status is Status.FAIL
    assert only(judged(missing, equal_nan=True)).status is Status.PASS
    # The float64 run is looked at first, when there is one.
    assert only(judged(evidence(key, float64=measured(1.0), float32=measured(0.0)))).status is Status.FAIL


def test_data_that_has_rounding_is_no_data() -> None:
    one = only(judged(wide(1e-8, key="step0/data/generated")))
    assert (one.status, one.evidence) == (Status.PASS, BOTH)
    assert judged(evidence("step0/data/x")).status is Status.NOTHING


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "str", "object"])
def test_kinds_without_rounding_must_be_equal(dtype: str) -> None:
    key = "step0/metric/label"
    one = only(judged(evidence(key, float32=measured(0.0, reference_dtype=dtype))))
    assert told(one) == (key, "PASS", "", "exact kind")
    assert numbers(one) == [("differing", 0.0, 0.0, True, None)]
    one = only(judged(evidence(key, float64=measured(1.0, differing=3, reference_dtype=dtype), noise=measured(9.0))))
    assert told(one) == (key, "FAIL", "3 of 100 values differ, and this kind has no rounding", "exact kind")
    assert numbers(one) == [("differing", 3.0, 0.0, False, None)]
    only_infinite = measured(0.0, reference_dtype=dtype, nonfinite_mismatched=1)
    assert only(judged(evidence(key, float32=only_infinite))).status is Status.FAIL


def test_float64_without_noise_is_judged_by_assumption() -> None:
    given = evidence(FREE, float64=measured(0.0), float32=measured(1e-6), reduction=4)
    one = only(judged(given))
    floor = EPS * 2.0
    basis = "assumed rounding; record a float64 run of the reference for a real floor"
    assert told(one) == (FREE, "PASS", "", basis)
    assert numbers(one) == [("rms", 1e-6, 300 * floor, True, floor)]
    failed = only(judged(evidence(FREE, float32=measured(1e-3, size=2.0))))
    floor = EPS * 2.0
    assert failed.status is Status.FAIL
    assert failed.evidence == basis
    assert (
        english(failed.reason)
        == f"{1e-3 / floor:,.0f} × rounding, 300 allowed (rms error 0.001, rounding floor {floor:.3g})"
    )
    assert english(only(judged(evidence(FREE, float64=measured(0.0)))).reason) == "no measurement"
    assert only(judged(evidence(FREE, float64=measured(0.0)))).status is Status.INCOMPARABLE


def test_assumed_rounding_grows_with_the_root_of_the_sum() -> None:
    limit = 300 * EPS
    for reduction, size in ((1, 1.0), (0, 1.0), (100, 3.0)):
        grown = limit * math.sqrt(max(reduction, 1)) * size
        for share, status in ((0.99, Status.PASS), (1.01, Status.FAIL)):
            one = evidence(FREE, float32=measured(share * grown, size=size), reduction=reduction)
            assert only(judged(one)).status is status


@pytest.mark.parametrize("maker", [wide, narrow], ids=["float64", "float32"])
@pytest.mark.parametrize("mode", ["", "isolated"])
def test_nan_fails_before_anything_else(maker, mode: str) -> None:
    bad = measured(0.0, nan_both=2, reference=summary(nan=2), candidate=summary(nan=2))
    given = replace(maker(0.0, mode=mode), float32=bad)
    given = replace(given, float64=bad) if given.float64 is not None else given
    reason = "2 of 100 NaN on both sides (equal_nan is off) (reference 2 NaN, 0 Inf; candidate 2 NaN, 0 Inf)"
    (one,) = judged(given).judgements
    assert told(one) == (given.key, "FAIL", reason, given.basis)
    assert one.checks == ()
    (one,) = judged(given, equal_nan=True).judgements
    assert one.status is Status.PASS


def test_assumed_rule_fails_on_infinity() -> None:
    bad = measured(0.0, nonfinite_mismatched=1, candidate=summary(inf=1))
    one = only(judged(evidence(FREE, float32=bad, basis="none")))
    reason = "1 of 100 NaN or infinity on one side only (reference 0 NaN, 0 Inf; candidate 0 NaN, 1 Inf)"
    assert told(one) == (FREE, "FAIL", reason, "none")


def test_nan_of_the_run_itself_fails_although_float64_is_fine() -> None:
    bad = measured(0.0, nonfinite_mismatched=1, candidate=summary(inf=1))
    one = only(judged(wide(0.0), rows=(row(FREE, bad),)))
    assert one.status is Status.FAIL
    assert english(one.reason).startswith("as it runs: 1 of 100 NaN or infinity on one side only")
    assert only(judged(wide(0.0), rows=(row(FREE, measured(0.0)),))).status is Status.PASS
    failed = only(judged(wide(1.0), rows=(row(FREE, bad),)))
    assert "(rms error 1, " in english(failed.reason)


def test_reference_in_float64_alone_gets_thirty_pooled_floors() -> None:
    floor = 1e-7 + EPS * 3.0
    for times, status in ((29.9, Status.PASS), (30.1, Status.FAIL)):
        one = only(judged(narrow(times * floor, reduction=9)))
        assert (one.status, one.evidence) == (status, REFERENCE)
        assert numbers(one) == [("rms", times * floor, 30 * floor, times < 30, floor)]
    assert (
        english(one.reason) == f"30.1 × rounding, 30 allowed (rms error {30.1 * floor:.3g}, rounding floor {floor:.3g})"
    )
    second = "step0/optimizer/a.weight:exp_avg_sq"
    assert only(judged(narrow(299 * floor, reduction=9, key=second))).status is Status.PASS
    assert only(judged(narrow(301 * floor, reduction=9, key=second))).status is Status.FAIL


def test_single_numbers_share_the_worst_relative_noise_of_their_kind() -> None:
    def loss(step: int, noise: float, error: float, size: float = 1.0):
        return narrow(
            0.0, key=f"step{step}/loss/loss", noise=noise, size=size, float32=measured(error, size=size, count=1)
        )

    floor = 4 * 1e-4 + EPS * 4.0  # 4: this one's size; 1e-4: the worst share of noise among the steps
    lucky = loss(0, 0.0, 29 * floor, size=4.0)
    unlucky = loss(1, 2e-4, 0.0, size=2.0)
    verdict = judged(lucky, unlucky)
    assert verdict.passed
    assert numbers(verdict.judgements[0])[0][4] == pytest.approx(floor, rel=1e-12)
    assert judged(lucky).status is Status.FAIL
    other = narrow(0.0, key="step1/loss/other", noise=2e-4)
    assert judged(lucky, other).status is Status.FAIL
    # A peer without values or without noise says nothing.
    assert not judged(lucky, replace(unlucky, noise=measured(2e-4, size=0.0))).passed
    assert not judged(lucky, replace(unlucky, noise=None)).passed


def test_larger_tensors_do_not_share_noise() -> None:
    lucky = narrow(1e-3, key="step0/loss/loss", noise=0.0)
    unlucky = narrow(0.0, key="step1/loss/loss", noise=1e-3)
    assert judged(lucky, unlucky).judgements[0].status is Status.FAIL


DRIFTED = "step3/forward/a#0:output"


def test_drift_after_the_first_update_is_left_to_the_injected_run() -> None:
    far, said = narrow(1.0, key=DRIFTED), narrow(0.0, key=DRIFTED, mode="injected")
    verdict = judged(far, said)
    reason = "without float64 a free run drifts by chance; judged with the reference's gradients instead"
    assert told(verdict.judgements[0]) == (DRIFTED, "PASS", reason, REFERENCE)
    assert verdict.judgements[0].checks == ()
    assert not judged(far).passed
    assert not judged(narrow(1.0), narrow(0.0, mode="injected")).passed, "step 0 does not drift"
    other = narrow(0.0, key="step3/forward/b#0:output", mode="injected")
    assert not judged(far, other).passed
    clipped = narrow(1.0, key="step3/clip/norm")
    assert judged(clipped, other).passed
    assert not judged(clipped).passed


def test_precision_is_looked_at_only_when_the_rest_passes() -> None:
    floor = 1e-7 + EPS
    alone = replace(wide(0.0, mode="isolated"), float32=measured(400 * floor))
    one = only(judged(alone))
    assert (one.status, one.evidence) == (Status.PRECISION, BOTH)
    assert [check.metric for check in one.checks] == ["rms", "max", "rms"]
    assert numbers(one)[2] == ("rms", 400 * floor, 300 * floor, False, floor)
    assert judged(alone).status is Status.PRECISION
    verdict = judged(alone, wide(1.0))
    assert verdict.judgements[0].status is Status.PASS, "the free run failed: precision is not looked at"
    fine = only(judged(replace(alone, float32=measured(299 * floor))))
    assert (fine.status, english(fine.reason), len(fine.checks)) == (Status.PASS, "", 3)


def test_layer_without_float64_fails_at_thirty_floors() -> None:
    floor = 1e-7 + EPS
    known = narrow(31 * floor, mode="isolated")
    one = only(judged(known))
    assert (one.status, numbers(one)[0][2]) == (Status.FAIL, 30 * floor)
    assert only(judged(narrow(29 * floor, mode="isolated"))).status is Status.PASS
    # That the candidate has float64 kernels is known from the free run.
    verdict = judged(known, wide(0.0))
    assert verdict.passed
    assert numbers(verdict.judgements[1])[0][2] == 300 * floor
    verdict = judged(narrow(301 * floor, mode="injected"), wide(0.0))
    assert verdict.status is Status.PRECISION


def test_gradient_that_jumps_at_one_step_passes_and_says_so() -> None:
    floor = 1e-7 + EPS

    def steps(*errors: float, phase: str = "gradient"):
        return [
            narrow(error * floor, key=f"step{step}/{phase}/a.weight:raw", mode="injected")
            for step, error in enumerate(errors)
        ]

    verdict = judged(*steps(1, 1, 1000))
    assert verdict.passed
    jumped = verdict.judgements[2]
    reason = "jumps at this step and not at the others, as when an activation lands on the other side of zero"
    assert told(jumped) == ("injected@step2/gradient/a.weight:raw", "PASS", reason, REFERENCE)
    assert len(jumped.checks) == 1
    assert not jumped.checks[0].passed
    assert not judged(*steps(1, 1000, 1000)).passed
    assert not judged(*steps(1, 1, 1000, phase="forward")).passed
    assert not judged(*steps(1000)).passed


def test_ratio_of_an_exact_zero_floor() -> None:
    zero = [
        narrow(0.0, key=f"step{step}/gradient/a.bias:raw", mode="injected", noise=0.0, size=0.0) for step in range(3)
    ]
    assert judged(*zero).passed
    moved = [replace(one, float32=measured(1e-9, size=0.0)) for one in zero]
    assert not judged(*moved).passed
    assert not judged(*zero[:2], moved[2]).passed, "a gradient of zero has no activation to lose"


def test_jump_as_large_as_the_gradient_is_no_activation_that_changed_side() -> None:
    def steps(last: float):
        return [
            narrow(error, key=f"step{step}/gradient/a.weight:raw", mode="injected")
            for step, error in enumerate((0.0, 0.0, last))
        ]

    assert judged(*steps(0.1)).passed
    assert not judged(*steps(0.11)).passed


def test_nan_in_one_step_is_no_activation_that_changed_side() -> None:
    *healthy, last = (narrow(0.0, key=f"step{step}/gradient/a.weight:raw", mode="injected") for step in range(3))
    assert judged(*healthy, last).passed
    assert not judged(*healthy, replace(last, float32=measured(0.0, nonfinite_mismatched=1))).passed


def test_without_float64_what_has_a_history_gets_the_wider_limit() -> None:
    floor = 1e-7 + EPS

    def at(key: str) -> bool:
        return judged(narrow(100 * floor, key=key, mode="injected")).passed

    assert at("step2/update/a.weight")
    assert at("step2/parameter/a.weight")
    assert at("step0/optimizer/a.weight:exp_avg_sq")
    assert not at("step0/update/a.weight")
    assert not at("step2/gradient/a.weight:raw")


def test_learning_rates_agree_to_a_share_of_the_largest() -> None:
    def rate(step: int, value: float, difference: float, *, narrow_too: bool = False):
        found = measured(difference, size=value, max_abs=difference, reference=summary(value)._replace(abs_max=value))
        name = "float32" if narrow_too else "float64"
        return evidence(f"step{step}/lr/group0", **{name: found})

    basis = "learning rate in float64"
    for narrow_too in (False, True):
        verdict = judged(rate(0, 0.1, 0.0), rate(1, 0.001, 0.9e-10, narrow_too=narrow_too))
        assert told(verdict.judgements[1]) == ("step1/lr/group0", "PASS", "", basis)
        assert numbers(verdict.judgements[1]) == [("max_abs", 0.9e-10, 1e-9 * 0.1, True, None)]
    verdict = judged(rate(0, 0.1, 0.0), rate(1, 0.001, 1.1e-10))
    reason = "the learning rates differ: reference 1.0, candidate 1.5"
    assert told(verdict.judgements[1]) == ("step1/lr/group0", "FAIL", reason, basis)
    assert numbers(verdict.judgements[1]) == [("max_abs", 1.1e-10, 1e-9 * 0.1, False, None)]
    assert not judged(rate(1, 0.001, 0.9e-10)).passed, "the largest rate is its own"
    assert not judged(rate(1, 0.001, 0.9e-10), wide(0.0, size=100.0)).passed, "only rates count"
    assert judged(rate(0, 0.0, 0.0)).passed
    lost = replace(rate(0, 0.1, 0.0), float64=measured(math.nan, max_abs=math.nan, worst=None))
    assert english(only(judged(lost)).reason) == "the learning rates differ: not finite"
    assert judged(lost, lr=0.9).status is Status.FAIL


def test_learning_rates_of_another_pass_do_not_count() -> None:
    small = evidence("step0/lr/group0", float64=measured(0.9e-10, size=0.0005, max_abs=0.9e-10))
    other = evidence("step0/lr/group0", "injected", float64=measured(0.0, size=1.0))
    assert not judged(small, other).passed


def test_what_cannot_be_compared_is_said_and_fails() -> None:
    verdict = judged(rows=(row("x", None, incomparable="shapes differ"), row("y", measured(0.0))))
    assert told(only(verdict)) == ("x", "INCOMPARABLE", "shapes differ", "fixed limit")
    assert verdict.status is Status.FAIL


def test_lonely_entries_fail_unless_allowed_or_accepted() -> None:
    lonely = (Unmatched(Key("fc.bias"), "reference"), Unmatched(Key("extra"), "candidate"))
    verdict = judged(wide(0.0), unmatched=lonely)
    assert verdict.status is Status.FAIL
    assert [one.key for one in verdict.judgements] == [FREE, "fc.bias", "extra"]
    verdict = judged(wide(0.0), unmatched=lonely, allow_unmatched=("fc.*", "ex*"))
    assert verdict.passed
    assert verdict.allowed == ("fc.bias", "extra")
    assert judged(wide(0.0), unmatched=lonely, allow_unmatched=("fc.*",)).allowed == ("fc.bias",)
    verdict = judged(wide(0.0), unmatched=lonely, accept=("*",))
    assert verdict.passed
    assert english(verdict.judgements[1].reason) == "accepted although: only in the reference"


def test_accepted_failure_lets_precision_be_looked_at() -> None:
    floor = 1e-7 + EPS
    alone = replace(wide(0.0, mode="isolated"), float32=measured(400 * floor))
    verdict = judged(alone, wide(1.0), accept=(FREE,))
    assert verdict.status is Status.PRECISION
    assert judged(alone, accept=("isolated@*",)).passed


def test_isolated_evidence_without_float64_waits_for_precision() -> None:
    verdict = judged(narrow(0.0, mode="isolated"), wide(0.0))
    assert [one.key for one in verdict.judgements] == [FREE, f"isolated@{FREE}"]


def test_estimates_are_not_for_this_rule() -> None:
    rough = row(FREE, measured(0.0, estimate=Estimate("sketches", 0.1)))
    with pytest.raises(UsageError, match="looks at single elements"):
        judged(wide(0.0), rows=(rough,))
    judged(wide(0.0), rows=(row("y", None), row(FREE, measured(0.0))))


def test_policy_survives_when_written_and_read() -> None:
    policy = CalibratedPolicy(allow_unmatched=("a", "b"), accept=("c",), equal_nan=True, free=7.0)
    assert CalibratedPolicy.from_dict(policy.to_dict()) == policy
    data = {**policy.to_dict(), "allow_unmatched": ["a", "b"], "accept": ["c"]}
    assert CalibratedPolicy.from_dict(data) == policy
    assert CalibratedPolicy.from_dict({}) == CalibratedPolicy()


def test_limit_itself_still_passes() -> None:
    exact = wide(0.0, noise=0.0, size=0.0)
    assert only(judged(exact)).checks[0].passed, "0 is not beyond 0"
    moved = only(judged(replace(exact, float64=measured(1e-9, size=0.0))))
    assert english(moved.reason) == (
        "inf × rounding, 0 allowed (rms error 1e-09, rounding floor 0); "
        "inf × rounding, 0 allowed (max error 2e-09, rounding floor 0)"
    )


def test_suspicion_begins_beyond_its_share() -> None:
    assert only(judged(wide(1e-7, mode="isolated"))).status is Status.PASS
    assert only(judged(wide(1.001e-7, mode="isolated"))).status is Status.SUSPECT


def test_isolated_layer_without_noise_is_held_to_one_rounding() -> None:
    one = only(judged(evidence(FREE, "isolated", float64=measured(0.0), basis=BOTH)))
    assert [check.floor for check in one.checks] == [EPS, 2 * EPS]


def test_data_that_differs_from_its_float64_at_one_place_is_no_data() -> None:
    given = replace(wide(0.0, key="step0/data/x"), noise=measured(1e-8, differing=1))
    assert only(judged(given)).evidence == BOTH


def test_narrow_judgement_that_passes_has_nothing_to_add() -> None:
    assert told(only(judged(narrow(0.0)))) == (FREE, "PASS", "", REFERENCE)


def test_isolated_layer_without_its_own_precision_is_not_asked_for_it() -> None:
    one = only(judged(replace(wide(0.0, mode="isolated"), float32=None)))
    assert (one.status, len(one.checks)) == (Status.PASS, 2)


def test_single_number_shares_noise_in_the_precision_tier_too() -> None:
    def loss(step: int, noise: float, error: float):
        single = measured(error, count=1)
        return narrow(0.0, key=f"step{step}/loss/loss", mode="injected", noise=noise, float32=single)

    assert judged(loss(0, 0.0, 1e-4), loss(1, 1e-4, 0.0)).passed
    assert not judged(loss(0, 0.0, 1e-4), loss(1, 1e-9, 0.0)).passed


def test_entry_without_any_measurement_in_its_own_precision_is_named() -> None:
    assert told(only(judged(evidence(FREE, float64=measured(0.0)))))[:3] == (FREE, "INCOMPARABLE", "no measurement")


def test_nan_on_both_sides_of_the_run_itself_passes_when_allowed() -> None:
    rows = (row(FREE, measured(0.0, nan_both=1)),)
    assert only(judged(wide(0.0), rows=rows, equal_nan=True)).status is Status.PASS
    assert only(judged(wide(0.0), rows=rows)).status is Status.FAIL


@pytest.mark.parametrize(("error", "status"), [(1e-17, "PASS"), (1e-13, "FAIL")])
def test_an_update_is_judged_no_finer_than_its_parameter_is_known(error: float, status: str) -> None:
    # The true gradient is zero: the reference does not move at all, the candidate in its parameter's last digit.
    still = evidence("step0/update/fc.bias", noise=measured(0.0, size=0.0), float64=measured(error, size=0.0))
    parameter = evidence("step0/parameter/fc.bias", noise=measured(EPS), float64=measured(0.0))
    found = {one.key.phase: str(one.status) for one in judged(still, parameter).judgements}
    assert found == {"update": status, "parameter": "PASS"}


def test_largest_element_of_a_large_tensor_counts_as_the_candidate_runs() -> None:
    floor = 2 * (1e-7 + EPS)
    for count, times, status in ((128, 301, Status.PRECISION), (128, 299, Status.PASS), (127, 301, Status.PASS)):
        error = measured(1e-7, max_abs=times * floor, count=count)
        alone = replace(wide(0.0, mode="isolated"), float32=error)
        assert only(judged(alone)).status is status, (count, times)
    gradient = replace(wide(0.0, key="step0/gradient/a.weight", mode="isolated"), float32=error)
    assert only(judged(gradient)).status is Status.PASS
