"""Fixed limits: passing is earned."""

import math

import ml_dtypes
import numpy as np
import pytest

from reprod_log import Limit, Policy, Recording, Status, align
from reprod_log.alignment import Alignment
from reprod_log.errors import NotAligned, UsageError
from verdict.made import english


def aligned(reference: dict[str, object], candidate: dict[str, object], *limits: str, **options: object) -> Alignment:
    return align(Recording.from_arrays(reference), Recording.from_arrays(candidate), limits=limits, **options)  # type: ignore[arg-type]


def test_equal_entries_pass() -> None:
    found = aligned({"x": np.ones(3), "y": np.arange(3)}, {"x": np.ones(3), "y": np.arange(3)})
    assert found.passed
    assert found.status is Status.PASS
    assert found.first_divergence is None
    found.raise_if_failed()


def test_nothing_compared_is_its_own_outcome() -> None:
    assert aligned({}, {}).status is Status.NOTHING
    assert aligned({"x": np.ones(1)}, {"y": np.ones(1)}).status is Status.NOTHING
    assert not aligned({}, {}).passed


def test_unmatched_entry_fails_the_whole() -> None:
    found = aligned({"x": np.ones(1), "only": np.ones(1)}, {"x": np.ones(1)})
    assert found.status is Status.FAIL
    assert [one.key for one in found.verdict.judgements if one.status is Status.UNMATCHED] == ["only"]
    assert aligned({"x": np.ones(1)}, {"x": np.ones(1), "extra": np.ones(1)}).status is Status.FAIL


def test_unmatched_entry_passes_only_when_allowed_by_pattern() -> None:
    found = aligned({"x": np.ones(1), "aux.w": np.ones(1)}, {"x": np.ones(1)}, allow_unmatched=("aux.*",))
    assert found.passed
    assert found.verdict.allowed == ("aux.w",)


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (np.ones((3, 1)), np.ones(3)),
        (np.ones((2, 3)), np.ones((3, 2))),
        (np.ones(1), np.ones((1, 1))),
        (np.array(["a"]), np.ones(1)),
    ],
)
def test_incomparable_entry_fails(reference: np.ndarray, candidate: np.ndarray) -> None:
    found = aligned({"x": reference}, {"x": candidate})
    assert found.status is Status.FAIL
    assert found.verdict.judgements[0].status is Status.INCOMPARABLE


def test_one_element_and_scalar_are_the_same_and_said() -> None:
    found = aligned({"loss": np.ones(1)}, {"loss": np.array(1.0)})
    assert found.passed
    assert "single number" in str(found.comparison.rows[0].view)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nonfinite_on_one_side_fails_whatever_the_limit(value: float) -> None:
    found = aligned({"x": np.array([1.0, 2.0])}, {"x": np.array([1.0, value])}, "max_abs:1e300", "mean_abs:1e300")
    assert found.status is Status.FAIL
    assert "on one side only" in english(found.verdict.judgements[0].reason)


def test_nan_on_both_sides_fails_unless_asked() -> None:
    pair = {"x": np.array([1.0, math.nan])}, {"x": np.array([1.0, math.nan])}
    assert aligned(*pair).status is Status.FAIL
    assert aligned(*pair, equal_nan=True).passed
    assert not aligned({"x": np.array([math.nan])}, {"x": np.array([math.nan])}).passed
    assert aligned({"x": np.array([math.nan])}, {"x": np.array([math.nan])}, equal_nan=True).passed


def test_value_at_the_limit_passes_and_beyond_fails() -> None:
    pair = {"x": np.array([0.0, 0.0])}, {"x": np.array([0.0, 0.5])}
    assert aligned(*pair, "max_abs:0.5").passed
    assert not aligned(*pair, "max_abs:0.49").passed
    assert aligned(*pair, "mean_abs:0.25").passed
    assert not aligned(*pair, "mean_abs:0.24").passed


def test_every_given_limit_must_hold() -> None:
    pair = {"x": np.array([1.0, 1.0])}, {"x": np.array([1.0, 1.1])}
    assert not aligned(*pair, "mean_abs:1", "max_rel:1e-3").passed
    checks = aligned(*pair, "mean_abs:1", "max_rel:1e-3").verdict.judgements[0].checks
    assert [(check.metric, check.passed) for check in checks] == [("mean_abs", True), ("max_rel", False)]


def test_limit_that_names_keys_replaces_the_general_one() -> None:
    reference = {"loss_0": np.array(1.0), "logits": np.array(1.0)}
    candidate = {"loss_0": np.array(1.01), "logits": np.array(1.01)}
    found = aligned(reference, candidate, "mean_abs:1e-6", "loss_*=mean_abs:0.1")
    assert [one.status for one in found.verdict.judgements] == [Status.PASS, Status.FAIL]


def test_integers_are_exact_unless_named() -> None:
    reference, candidate = {"ids": np.zeros(10**6, np.int64)}, {"ids": np.eye(1, 10**6, dtype=np.int64)[0]}
    assert not aligned(reference, candidate).passed
    assert not aligned(reference, candidate, "mean_abs:1").passed
    assert aligned(reference, candidate, "ids=mean_abs:1").passed
    assert aligned(reference, candidate, "int64/mean_abs:1").passed


def test_text_must_be_equal() -> None:
    assert aligned({"x": np.array(["a"])}, {"x": np.array(["a"])}).passed
    assert not aligned({"x": np.array(["a"])}, {"x": np.array(["b"])}).passed
    assert not aligned({"x": np.array([None, "b"])}, {"x": np.array([None, "c"])}).passed


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_half_precision_is_judged_relative_to_the_values(dtype: type) -> None:
    values = np.random.default_rng(0).normal(size=1000) * 100
    one = values.astype(dtype)
    rounded_otherwise = (values * (1 + float(ml_dtypes.finfo(dtype).eps) / 8)).astype(dtype)
    assert aligned({"x": one}, {"x": rounded_otherwise}).passed
    assert not aligned({"x": one}, {"x": (values * 2).astype(dtype)}).passed


def test_first_divergence_is_the_earliest_in_execution_order() -> None:
    keys = [f"step0/forward/layer{i}#0:output" for i in range(5)]
    reference = {key: np.ones(2) for key in keys}
    candidate = {key: np.ones(2) * (1 if i < 2 or i == 3 else 2) for i, key in enumerate(keys)}
    found = aligned(reference, candidate)
    assert found.first_divergence is not None
    assert found.first_divergence.key == keys[2]
    assert found.verdict.last_agreement is not None
    assert found.verdict.last_agreement.key == keys[1]


def test_mismatch_says_metric_value_limit_place_and_share() -> None:
    candidate = np.ones((2, 4))
    candidate[1, 2] = 1.5
    reason = english(aligned({"x": np.ones((2, 4))}, {"x": candidate}, "max_abs:1e-6").verdict.judgements[0].reason)
    assert "max_abs 0.5 > 1e-06" in reason
    assert "worst at [1, 2]: reference 1, candidate 1.5" in reason
    assert "12.5% of elements beyond 1e-06" in reason


def test_failure_can_be_raised_with_the_report_as_text() -> None:
    with pytest.raises(NotAligned, match="NOT ALIGNED: 1 fail; 0 of 1 entry passes"):
        aligned({"x": np.ones(1)}, {"x": np.zeros(1)}).raise_if_failed()


@pytest.mark.parametrize("text", ["mean_abs", "mean_abs:", "mean_abs:abc", "typo:1e-6", "mean_abs:-1", "mean_abs:nan"])
def test_wrong_limit_is_a_clear_error(text: str) -> None:
    with pytest.raises(UsageError):
        Limit.parse(text)


def test_limit_is_read_from_text() -> None:
    assert Limit.parse("mean_abs:1e-6") == Limit("mean_abs", 1e-6, reason="given by the user")
    assert Limit.parse("a=b=max_rel:2").keys == "a=b"
    assert Limit.parse("float16/max_abs:1").dtype == "float16"


def test_every_default_limit_has_a_reason() -> None:
    assert all(english(limit.reason) for limit in Policy().limits)


def test_alignment_survives_when_saved_and_judged_again(tmp_path: object) -> None:
    found = aligned(
        {"x": np.array([1.0, math.inf]), "y": np.array([1 + 2j]), "z": np.ones(2), "only": np.ones(1)},
        {"x": np.array([1.0, math.inf]), "y": np.array([1 + 3j]), "z": np.array([1.0, math.nan])},
    )
    path = found.save(f"{tmp_path}/alignment.json")
    loaded = Alignment.load(path)
    assert loaded.verdict == found.verdict
    assert loaded.comparison.rows[0].measurement == found.comparison.rows[0].measurement
    assert loaded.comparison.rows[1].measurement == found.comparison.rows[1].measurement
    looser = loaded.judged_by(Policy.fixed(["max_abs:10"]))
    assert [one.status for one in looser.verdict.judgements] == [
        Status.PASS,
        Status.PASS,
        Status.FAIL,
        Status.UNMATCHED,
    ]


def test_share_needs_to_know_beyond_what() -> None:
    half = {"x": np.zeros(4)}, {"x": np.array([0.0, 0.0, 1.0, 1.0])}
    with pytest.raises(UsageError, match="does not say beyond what.*mean_abs"):
        aligned(*half, "share_beyond:0.5")
    with pytest.raises(UsageError, match="does not say beyond what"):
        aligned(*half, "mean_abs:0.6", "x=share_beyond:0.5")
    assert aligned(*half, "mean_abs:0.6", "share_beyond:0.5").passed
    assert not aligned(*half, "mean_abs:0.6", "share_beyond:0.4").passed


def test_known_difference_passes_only_when_accepted_and_says_so() -> None:
    pair = {"bn.running_var": np.ones(2), "x": np.ones(2)}, {"bn.running_var": np.zeros(2), "x": np.ones(2)}
    assert not aligned(*pair).passed
    found = aligned(*pair, accept=("*running_var",))
    assert found.passed
    assert english(found.verdict.judgements[0].reason).startswith("accepted although: mean_abs 1")
    assert not aligned({"x": np.ones(1)}, {"x": np.zeros(1)}, accept=("*running_var",)).passed
