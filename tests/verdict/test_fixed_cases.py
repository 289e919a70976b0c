"""Every branch of the fixed rule on rows made by hand, with the exact word and numbers it must give."""

import math

import pytest

from reprod_log.measure.comparison import Comparison, Unmatched
from reprod_log.measure.measurement import Estimate, Worst
from reprod_log.recording import Key
from reprod_log.verdict import DEFAULT_LIMITS, Limit, Policy, Status, Verdict, judge
from verdict.made import english, measured, numbers, only, row, summary, told


def judged(*rows, unmatched=(), policy: Policy | None = None, limits=("max_abs:1",), **options) -> Verdict:
    return judge(Comparison(rows, unmatched), policy or Policy.fixed(limits, **options))


@pytest.mark.parametrize(("value", "passed"), [(1.0, True), (1.0 + 1e-15, False), (0.0, True), (math.inf, False)])
def test_limit_is_the_largest_value_that_passes(value: float, passed: bool) -> None:
    one = only(judged(row("x", measured(0.1, max_abs=value))))
    assert one.status is (Status.PASS if passed else Status.FAIL)
    assert numbers(one) == [("max_abs", value, 1.0, passed, None)]
    assert one.evidence == "fixed limit"


def test_nan_of_a_metric_fails() -> None:
    assert only(judged(row("x", measured(0.1, max_abs=math.nan)))).status is Status.FAIL


def test_every_limit_must_hold() -> None:
    one = only(judged(row("x", measured(0.5)), limits=("max_abs:1", "mean_abs:0.1")))
    assert [(check.metric, check.passed) for check in one.checks] == [("max_abs", True), ("mean_abs", False)]
    assert one.status is Status.FAIL
    assert english(one.reason) == "mean_abs 0.5 > 0.1; worst at [3]: reference 1, candidate 1.5"


def test_mismatch_says_what_where_and_how_much() -> None:
    far = measured(2.0, max_abs=4.0, beyond_limit=25, limit=1.0, worst=Worst((1, 2), 0.123456789012, "text"))
    assert english(only(judged(row("x", far))).reason) == (
        "max_abs 4 > 1; worst at [1, 2]: reference 0.123456789, candidate text; 25.0% of elements beyond 1"
    )
    few = measured(2.0, count=10_000, beyond_limit=4, limit=1.0, worst=Worst((7,), 1.0, 3))
    assert english(only(judged(row("x", few))).reason).endswith("; 4 of 10000 elements beyond 1")
    five = measured(2.0, count=10_000, beyond_limit=5, limit=1.0, worst=Worst((7,), 1.0, 3))
    assert english(only(judged(row("x", five))).reason).endswith("; 0.1% of elements beyond 1")
    single = measured(2.0, count=1, beyond_limit=1, limit=1.0, worst=Worst((), 1.0, 3))
    assert english(only(judged(row("x", single))).reason) == "max_abs 4 > 1; worst: reference 1, candidate 3"
    assert english(only(judged(row("x", measured(2.0, worst=None)))).reason) == "max_abs 4 > 1"
    both = only(judged(row("x", measured(2.0, worst=None)), limits=("max_abs:1", "mean_abs:0.5")))
    assert english(both.reason) == "max_abs 4 > 1, mean_abs 2 > 0.5"


def test_what_was_not_measured_is_incomparable() -> None:
    verdict = judged(row("x", None, incomparable="shapes differ"))
    assert told(only(verdict)) == ("x", "INCOMPARABLE", "shapes differ", "fixed limit")
    assert verdict.status is Status.FAIL


def test_entry_without_a_limit_is_incomparable() -> None:
    verdict = judge(Comparison((row("x", measured(0.0)),)), Policy(limits=(Limit.parse("loss=max_abs:1"),)))
    assert told(only(verdict)) == ("x", "INCOMPARABLE", "no limit applies to float32 'x'; give one", "fixed limit")


def test_empty_pair_passes_and_says_so() -> None:
    assert told(only(judged(row("x", measured(0.0, count=0))))) == ("x", "PASS", "both are empty", "fixed limit")
    assert english(only(judged(row("x", measured(0.0)))).reason) == ""


NANS = {"max_abs": math.nan, "mean_abs": math.nan, "worst": None}


def test_pair_of_nothing_but_nan_passes_only_when_allowed() -> None:
    all_nan = row("x", measured(0.0, nan_both=100, reference=summary(nan=100), candidate=summary(nan=100), **NANS))
    assert only(judged(all_nan)).status is Status.FAIL
    one = only(judged(all_nan, equal_nan=True))
    assert told(one) == ("x", "PASS", "every element is NaN on both sides, allowed by equal_nan", "fixed limit")
    assert one.checks == ()
    other = row("x", measured(0.0, nan_both=99, nonfinite_mismatched=1, **NANS))
    assert only(judged(other, equal_nan=True)).status is Status.FAIL
    assert english(only(judged(row("x", measured(0.0, count=0)), equal_nan=True)).reason) == "both are empty"


def test_nan_among_numbers_is_counted() -> None:
    given = measured(0.0, nan_both=3, nonfinite_mismatched=2, reference=summary(nan=3), candidate=summary(nan=4, inf=1))
    one = only(judged(row("x", given)))
    assert told(one) == (
        "x", "FAIL",
        "2 of 100 NaN or infinity on one side only; 3 of 100 NaN on both sides (equal_nan is off) "
        "(reference 3 NaN, 0 Inf; candidate 4 NaN, 1 Inf)",
        "fixed limit",
    )  # fmt: skip
    assert len(one.checks) == 1
    one = only(judged(row("x", measured(0.0, nan_both=3)), equal_nan=True))
    assert one.status is Status.PASS
    assert len(one.checks) == 1


@pytest.mark.parametrize(
    ("reference", "candidate", "limit"),
    [
        ("float32", "float32", 32.0), ("float16", "float32", 16.0), ("float32", "float16", 16.0),
        ("bfloat16", "float16", 17.0), ("float64", "float32", 32.0), ("float64", "float64", 64.0),
        ("complex64", "complex128", 32.5), ("float32", "complex64", 32.0), ("float8_e5m2", "float8_e4m3fn", 5.0),
        ("float8_e4m3fn", "bfloat16", 4.0), ("int64", "float32", 0.6), ("float16", "int32", 0.5),
        ("int32", "int64", 0.5),
    ],
)  # fmt: skip
def test_coarser_kind_of_a_pair_decides_the_limit(reference: str, candidate: str, limit: float) -> None:
    values = {
        "float32": 32.0, "float16": 16.0, "bfloat16": 17.0, "float64": 64.0, "complex64": 32.5, "complex128": 64.5,
        "float8_e5m2": 5.0, "float8_e4m3fn": 4.0, "int32": 0.5, "int64": 0.6,
    }  # fmt: skip
    limits = tuple(Limit("max_abs", value, dtype=name) for name, value in values.items())
    one = only(
        judged(
            row("x", measured(0.0), reference_dtype=reference, candidate_dtype=candidate), policy=Policy(limits=limits)
        )
    )
    assert numbers(one)[0][2] == limit


def test_most_specific_limits_hold_and_the_last_of_them() -> None:
    general, family, dtype, keys = (
        Limit("max_abs", 1.0), Limit("max_abs", 2.0, dtype="float*"), Limit("max_abs", 3.0, dtype="float32"),
        Limit("mean_abs", 4.0, keys="x*"),
    )  # fmt: skip
    assert [one.specificity for one in (general, family, dtype, keys)] == [0, 1, 2, 3]
    assert Policy(limits=(general, family, dtype, keys)).limits_for("x1", "float32") == {"mean_abs": keys}
    assert Policy(limits=(general, family, dtype, keys)).limits_for("y", "float32") == {"max_abs": dtype}
    assert Policy(limits=(general, family, dtype)).limits_for("y", "float16") == {"max_abs": family}
    assert Policy(limits=(general, family)).limits_for("y", "int8") == {"max_abs": general}
    assert Policy(limits=(keys,)).limits_for("y", "int8") == {}
    later = Limit("max_abs", 9.0)
    assert Policy(limits=(general, later)).limits_for("y", "int8") == {"max_abs": later}


def test_given_limits_replace_the_defaults_but_exact_kinds_stay_exact() -> None:
    assert Policy.fixed().limits == DEFAULT_LIMITS
    policy = Policy.fixed(("max_abs:1", Limit("mean_abs", 2.0)), allow_unmatched=iter("ab"), accept=iter("cd"))
    assert policy.limits[-2:] == (
        Limit("max_abs", 1.0, reason="given by the user"), Limit("mean_abs", 2.0),
    )  # fmt: skip
    assert {one.dtype for one in policy.limits[:-2]} == {"int*", "uint*", "bool*", "str*", "object*"}
    assert all(one.value == 0.0 for one in policy.limits[:-2])
    assert (policy.allow_unmatched, policy.accept, policy.equal_nan) == (("a", "b"), ("c", "d"), False)
    assert Policy.fixed(equal_nan=True).equal_nan


def test_limit_is_read_from_text() -> None:
    given = "given by the user"
    assert Limit.parse("mean_abs:1e-6") == Limit("mean_abs", 1e-6, reason=given)
    assert Limit.parse("loss_*=mean_abs:1e-5") == Limit("mean_abs", 1e-5, keys="loss_*", reason=given)
    assert Limit.parse("float16/max_abs:0.01") == Limit("max_abs", 0.01, dtype="float16", reason=given)
    assert Limit.parse("a=b=int*/max_abs:0") == Limit("max_abs", 0.0, keys="a=b", dtype="int*", reason=given)
    for text in ("mean_abs", "mean_abs:x", "mean_abs:", ""):
        with pytest.raises(ValueError, match="cannot read the limit"):
            Limit.parse(text)
    for value in (-1.0, math.nan, "1"):
        with pytest.raises(ValueError, match="a limit must be a number of at least 0"):
            Limit("mean_abs", value)  # type: ignore[arg-type]
    Limit("mean_abs", 0)


def test_policy_survives_when_written_and_read() -> None:
    policy = Policy.fixed(("max_abs:1",), equal_nan=True, allow_unmatched=("a",), accept=("b",))
    data = policy.to_dict()
    assert Policy.from_dict(data) == policy
    assert Policy.from_dict({**data, "allow_unmatched": ["a"], "accept": ["b"]}) == policy
    del data["accept"]
    assert Policy.from_dict(data) == Policy(policy.limits, equal_nan=True, allow_unmatched=("a",))
    with pytest.raises(TypeError, match=r"Policy\.name"):
        Policy.from_dict({**data, "name": 7})


def rough(source: str = "sketches", **bounds: tuple[float, float]) -> Estimate:
    return Estimate(source, 0.1, bounds)


def test_estimate_decides_only_where_its_bounds_leave_no_other_way() -> None:
    def one(low: float, high: float):
        given = measured(0.5, rel_l2=0.25, estimate=rough(rel_l2=(low, high)))
        return only(judged(row("x", given), limits=("rel_l2:1",)))

    head = "estimated from sketches: rel_l2 2.50e-01 ± 10.0%; rel_l2 "
    passed = one(0.5, 1.0)
    assert told(passed) == ("x", "PASS", f"{head}5.00e-01 to 1.00e+00, limit 1", "estimate from sketches")
    assert numbers(passed) == [("rel_l2", 1.0, 1.0, True, None)]
    failed = one(1.1, 1.2)
    assert told(failed) == ("x", "FAIL", f"{head}1.10e+00 to 1.20e+00, limit 1", "estimate from sketches")
    assert numbers(failed) == [("rel_l2", 1.2, 1.0, False, None)]
    for low, high, between in (
        (0.9, 1.1, "9.00e-01 to 1.10e+00"),
        (1.0, 1.1, "1.00e+00 to 1.10e+00"),
        (0.5, math.inf, "at least 5.00e-01"),
        (0.0, math.inf, "not known"),
    ):
        open_ = one(low, high)
        advice = "it cannot be decided without the values: record this entry in full (reprod zoom)"
        assert told(open_) == ("x", "INCOMPARABLE", f"{head}{between}, limit 1: {advice}", "estimate from sketches")


def test_estimate_of_several_metrics_takes_the_worst_word() -> None:
    def status(*, first: tuple[float, float], second: tuple[float, float]) -> Status:
        given = measured(0.5, estimate=rough(rel_l2=first, rmse=second))
        return only(judged(row("x", given), limits=("rel_l2:1", "rmse:1"))).status

    good, bad, unknown = (0.0, 0.5), (2.0, 3.0), (0.5, 2.0)
    assert status(first=good, second=good) is Status.PASS
    assert status(first=bad, second=good) is Status.FAIL
    assert status(first=good, second=bad) is Status.FAIL
    assert status(first=unknown, second=good) is Status.INCOMPARABLE
    assert status(first=good, second=unknown) is Status.INCOMPARABLE
    assert status(first=unknown, second=bad) is Status.FAIL
    assert status(first=bad, second=unknown) is Status.FAIL


def test_estimate_knows_what_is_not_finite() -> None:
    given = measured(0.0, estimate=rough("statistics"))
    one = only(judged(row("x", given), limits=("nonfinite:0",)))
    reason = "only statistics were recorded; nonfinite 0.00e+00 to 0.00e+00, limit 0"
    assert told(one) == ("x", "PASS", reason, "estimate from statistics")
    one = only(judged(row("x", given), limits=("max_abs:1", "nonfinite:0")))
    assert one.status is Status.INCOMPARABLE
    assert english(one.reason).startswith(
        "only statistics were recorded; max_abs not known, limit 1; nonfinite 0.00e+00"
    )
    worse = measured(0.0, nonfinite_mismatched=2, estimate=rough("statistics"))
    assert english(only(judged(row("x", worse), limits=("nonfinite:5",))).reason).startswith("2 of 100 NaN or infinity")


def test_lonely_entry_says_where_it_is_and_what_is_near() -> None:
    lonely = (
        Unmatched(Key("a"), "reference", ("b", "c")),
        Unmatched(Key("d"), "candidate", ("e",)),
        Unmatched(Key("f"), "candidate"),
    )
    verdict = judged(row("x", measured(0.0)), unmatched=lonely)
    assert [told(one)[:3] for one in verdict.judgements[1:]] == [
        ("a", "UNMATCHED", "only in the reference; similar names in the candidate: b, c"),
        ("d", "UNMATCHED", "only in the candidate; similar names in the reference: e"),
        ("f", "UNMATCHED", "only in the candidate"),
    ]
    assert verdict.status is Status.FAIL
    verdict = judged(row("x", measured(0.0)), unmatched=lonely, allow_unmatched=("a", "[d-f]"))
    assert (verdict.status, verdict.allowed) == (Status.PASS, ("a", "d", "f"))
    assert len(verdict.judgements) == 1


def test_verdict_names_first_divergence_and_last_agreement() -> None:
    good, bad = measured(0.0), measured(9.0)
    verdict = judged(row("a", good), row("b", good), row("c", bad), row("d", good), row("e", bad))
    assert verdict.first_divergence is not None
    assert verdict.last_agreement is not None
    assert (verdict.first_divergence.key, verdict.last_agreement.key) == ("c", "b")
    assert verdict.counts == {Status.PASS: 3, Status.FAIL: 2}
    assert judged(row("c", bad), row("d", good)).last_agreement is None
    fine = judged(row("a", good), unmatched=(Unmatched(Key("x"), "reference"),))
    assert fine.first_divergence is None
    assert fine.last_agreement is None
    assert judged(unmatched=(Unmatched(Key("x"), "reference"),)).status is Status.NOTHING
    assert judged().status is Status.NOTHING


def test_accepted_difference_passes_and_says_so() -> None:
    verdict = judged(row("a", measured(9.0, worst=None)), row("b", measured(0.0)), accept=("a", "b"))
    assert told(verdict.judgements[0])[:3] == ("a", "ACCEPTED", "accepted although: max_abs 18 > 1")
    assert english(verdict.judgements[1].reason) == ""
    assert not judged(row("a", measured(9.0)), accept=("b", "c*")).passed


def test_limit_with_two_values_cannot_be_read() -> None:
    with pytest.raises(ValueError, match="cannot read the limit"):
        Limit.parse("max_abs:1:2")


def test_undecided_estimate_shows_its_checks() -> None:
    one = only(judged(row("x", measured(0.5, estimate=rough(rel_l2=(0.5, 2.0)))), limits=("rel_l2:1",)))
    assert numbers(one) == [("rel_l2", 2.0, 1.0, False, None)]


def test_share_beyond_the_limit_is_told_from_two_elements_on() -> None:
    two = measured(2.0, count=2, beyond_limit=1, limit=1.0)
    assert english(only(judged(row("x", two))).reason).endswith("; 50.0% of elements beyond 1")


def test_limit_for_some_keys_leaves_the_defaults_to_the_rest() -> None:
    rows = (
        row("loss_0", measured(0.5)),
        row("x", measured(0.5)),
        row("half", measured(1e-9), reference_dtype="float16", candidate_dtype="float16"),
    )
    verdict = judged(*rows, limits=("loss_*=mean_abs:1",))
    assert [(one.status, numbers(one)[0][0]) for one in verdict.judgements] == [
        (Status.PASS, "mean_abs"),
        (Status.FAIL, "mean_abs"),
        (Status.PASS, "rel_l2"),
    ]


def test_limit_for_a_dtype_takes_the_place_of_its_default_only() -> None:
    policy = Policy.fixed(["float16/max_abs:1"])
    assert list(policy.limits_for("x", "float16")) == ["max_abs"]
    assert list(policy.limits_for("x", "bfloat16")) == ["rel_l2"]
    assert list(policy.limits_for("x", "int64")) == ["max_abs"]
    everything = Policy.fixed(["mean_abs:1"])
    assert list(everything.limits_for("x", "bfloat16")) == ["mean_abs"]
    assert everything.limits_for("x", "int64")["max_abs"].value == 0


def test_float64_run_of_an_entry_is_not_judged_beside_it() -> None:
    plain, wide = "step0/loss/loss", "float64@step0/loss/loss"
    alone, alone_wide = "isolated@step0/loss/loss", "isolated.float64@step0/loss/loss"
    verdict = judged(*(row(key, measured(0.0)) for key in (plain, wide, alone, alone_wide)))
    assert [one.key for one in verdict.judgements] == [plain, alone]
    assert [one.key for one in judged(row(wide, measured(0.0))).judgements] == [wide]


def test_accepting_what_has_no_partner_compares_nothing() -> None:
    lonely = (Unmatched(Key("x"), "reference"),)
    assert judged(unmatched=lonely, accept=("*",)).status is Status.NOTHING
    assert judged(row("a", measured(0.0)), unmatched=lonely, accept=("*",)).passed


def test_accepted_difference_is_no_agreement() -> None:
    bad = measured(9.0)
    verdict = judged(row("a", measured(0.0)), row("b", bad), row("c", bad), accept=("b",))
    assert verdict.last_agreement is not None
    assert (verdict.last_agreement.key, verdict.counts[Status.ACCEPTED]) == ("a", 1)
