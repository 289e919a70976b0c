"""The calibrated rule on recordings whose rounding and defects are made by hand."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from reprod_log import Alignment, Policy, Recording, Status, align
from reprod_log.measure.comparison import measure
from reprod_log.pairing import match
from reprod_log.verdict import CalibratedPolicy, NoiseFloor, Verdict, calibrate, judge_calibrated
from verdict.made import english

RNG = np.random.default_rng(0)
TRUTH = {
    "step0/data/x": RNG.normal(size=8),
    "step0/forward/a#0:output": RNG.normal(size=100),
    "step0/forward/b#0:output": RNG.normal(size=100),
    "step0/loss/loss": np.array(2.3),
    "step0/lr/group0": np.array(0.1),
    "step0/gradient/a.weight:raw": RNG.normal(size=50),
}
ISOLATED = ("step0/forward/a#0:output", "step0/forward/b#0:output")


def rounded(seed: int, error: Mapping[str, float] = {}, *, wide: bool = False) -> dict[str, np.ndarray]:
    """The truth with float32 rounding (not when `wide`) and the planted relative errors."""
    noise = np.random.default_rng(seed)
    found = {}
    for key, value in TRUTH.items():
        exact = "data" in key or "/lr/" in key
        shaken = value * (1 + error.get(key, 0.0))
        if not wide and not exact:
            shaken = (shaken * (1 + 2.0**-23 * noise.normal(size=value.shape))).astype(np.float32)
        found[key] = shaken
    return found


def side(
    seed: int,
    *,
    free: Mapping[str, float] = {},
    isolated: Mapping[str, float] = {},
    narrow: Mapping[str, float] = {},
    float64: bool = True,
) -> dict[str, np.ndarray]:
    """All passes of one side; `narrow` errors are there in float32 only."""
    found = rounded(seed, {**free, **narrow})
    isolated_narrow = rounded(seed + 1, {**isolated, **narrow})
    found |= {f"isolated@{key}": isolated_narrow[key] for key in ISOLATED}
    found |= {f"injected@{key}": value for key, value in rounded(seed + 2, narrow).items() if "gradient" in key}
    if float64:
        found |= {f"float64@{key}": value for key, value in rounded(seed, free, wide=True).items()}
        wide = rounded(seed, isolated, wide=True)
        found |= {f"isolated.float64@{key}": wide[key] for key in ISOLATED}
        found |= {f"injected.float64@{key}": v for key, v in rounded(seed, wide=True).items() if "gradient" in key}
    return found


def judged(
    candidate: dict[str, np.ndarray], reference: dict[str, np.ndarray] | None = None
) -> tuple[Verdict, NoiseFloor]:
    ours = Recording.from_arrays(side(1) if reference is None else reference)
    pairing = match(ours, Recording.from_arrays(candidate))
    floor = calibrate(pairing, reference=ours)
    return judge_calibrated(measure(pairing), floor, CalibratedPolicy()), floor


def first(verdict: Verdict) -> str:
    assert verdict.first_divergence is not None
    return verdict.first_divergence.key


def test_rounding_alone_passes() -> None:
    verdict, floor = judged(side(50))
    assert verdict.status is Status.PASS
    assert floor.basis == "both in float64"
    assert {one.evidence for one in verdict.judgements if one.key.phase == "forward"} == {"both in float64"}


@pytest.mark.parametrize("size", [1e-6, 1e-5, 1e-3, 1.0])
def test_wrong_layer_is_found_in_isolation(size: float) -> None:
    wrong = {"step0/forward/b#0:output": size}
    verdict, _ = judged(side(50, isolated=wrong, free=wrong))
    assert verdict.status is Status.FAIL
    assert first(verdict) == "isolated@step0/forward/b#0:output"


def test_error_below_float32_is_suspect_and_passes() -> None:
    verdict, _ = judged(side(50, isolated={"step0/forward/a#0:output": 1.5e-7}))
    assert verdict.status is Status.SUSPECT
    assert verdict.passed
    assert [one.key for one in verdict.judgements if one.status is Status.SUSPECT] == [
        "isolated@step0/forward/a#0:output"
    ]


def test_defect_between_layers_is_found_in_the_free_run() -> None:
    verdict, _ = judged(side(50, free={"step0/gradient/a.weight:raw": 1e-5}))
    assert verdict.status is Status.FAIL
    assert first(verdict) == "step0/gradient/a.weight:raw"
    assert verdict.first_divergence is not None
    assert verdict.first_divergence.checks[0].ratio == pytest.approx(1e-5 / 2.0**-22.6, rel=0.5)


def test_precision_lost_only_in_float32_is_called_so() -> None:
    verdict, _ = judged(side(50, narrow={"step0/forward/b#0:output": 1e-3}))
    assert verdict.status is Status.PRECISION
    assert not verdict.passed
    assert first(verdict) == "isolated@step0/forward/b#0:output"


def test_other_data_is_said_before_anything_else() -> None:
    verdict, _ = judged(side(50, free={"step0/data/x": 1e-3, "step0/forward/a#0:output": 1.0}))
    assert verdict.status is Status.FAIL
    assert first(verdict) == "step0/data/x"
    assert verdict.first_divergence is not None
    assert "given different data" in english(verdict.first_divergence.reason)


def test_learning_rate_is_held_to_its_own_limit() -> None:
    verdict, _ = judged(side(50, free={"step0/lr/group0": 1e-7}))
    assert first(verdict) == "step0/lr/group0"
    assert judged(side(50, free={"step0/lr/group0": 1e-11}))[0].passed


def test_candidate_without_float64_falls_back_to_the_references_truth() -> None:
    verdict, floor = judged(side(50, float64=False) | {})
    assert floor.basis == "reference in float64"
    assert verdict.passed
    wrong = {"step0/forward/b#0:output": 1e-4}
    worse, _ = judged(side(50, free=wrong, isolated=wrong, float64=False))
    assert worse.first_divergence is not None
    assert worse.first_divergence.status is Status.FAIL


def test_without_any_float64_the_verdict_says_that_it_is_weak() -> None:
    verdict, floor = judged(rounded(50), rounded(1))
    assert floor.basis == "none"
    assert verdict.passed
    assert all("assumed" in one.evidence for one in verdict.judgements if one.key.phase == "forward")
    assert not judged(rounded(50, {"step0/forward/a#0:output": 1e-3}), rounded(1))[0].passed


def test_repeats_of_the_reference_give_a_floor() -> None:
    reference = rounded(1) | {f"perturbed1@{key}": value for key, value in rounded(2).items()}
    ours, theirs = Recording.from_arrays(reference), Recording.from_arrays(rounded(50))
    pairing = match(ours, theirs)
    floor = calibrate(pairing, reference=ours)
    assert floor.basis == "repeats of the reference"
    assert judge_calibrated(measure(pairing), floor, CalibratedPolicy()).passed


def test_reference_that_does_not_repeat_itself_is_named() -> None:
    reference = rounded(1) | {f"repeat@{key}": value for key, value in rounded(2).items()}
    ours = Recording.from_arrays(reference)
    floor = calibrate(match(ours, ours), reference=ours)
    assert "does not repeat itself: step0/forward/a#0:output" in str(floor.notes[0])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nonfinite_never_passes(value: float) -> None:
    candidate = side(50)
    broken = candidate["float64@step0/forward/a#0:output"].copy()
    broken[3] = value
    verdict, _ = judged(candidate | {"float64@step0/forward/a#0:output": broken})
    assert verdict.status is Status.FAIL


def test_one_jump_of_a_gradient_is_a_kink_and_many_are_not() -> None:
    def steps(seed: int, jumps: tuple[int, ...]) -> dict[str, np.ndarray]:
        found = {}
        for step in range(5):
            value = RNG_TRUTH * (1 + step)
            wide = f"injected.float64@step{step}/gradient/w:raw"
            noise = np.random.default_rng(seed + step)
            narrow = value * (1 + 2.0**-23 * noise.normal(size=value.shape)) * (1 + (1e-2 if step in jumps else 0))
            found[f"injected@step{step}/gradient/w:raw"] = narrow.astype(np.float32)
            found[wide] = value
            found[f"step{step}/loss/loss"] = np.array(1.0)
            found[f"float64@step{step}/loss/loss"] = np.array(1.0)
        return found

    assert judged(steps(60, (3,)), steps(1, ()))[0].passed
    verdict, _ = judged(steps(60, (1, 2, 3)), steps(1, ()))
    assert verdict.status is Status.PRECISION


RNG_TRUTH = np.random.default_rng(7).normal(size=40)


def test_true_zero_gradient_is_not_held_to_relative_error() -> None:
    key = "step0/gradient/conv.bias:raw"
    reference = {key: np.random.default_rng(1).normal(size=16).astype(np.float32) * np.float32(1e-9)}
    reference[f"float64@{key}"] = np.random.default_rng(2).normal(size=16) * 1e-18
    candidate = {key: np.random.default_rng(3).normal(size=16).astype(np.float32) * np.float32(1e-9)}
    candidate[f"float64@{key}"] = np.random.default_rng(4).normal(size=16) * 1e-18
    assert judged(candidate, reference)[0].passed


def test_align_uses_the_rule_when_the_reference_ran_in_float64(tmp_path: Path) -> None:
    ours, theirs = Recording.from_arrays(side(1)), Recording.from_arrays(side(50))
    found = align(ours, theirs)
    assert found.policy.name == "calibrated"
    assert found.passed
    assert align(ours, theirs, limits=["max_abs:1e-9"]).policy.name == "fixed limits"
    loaded = Alignment.load(found.save(tmp_path / "a.json"))
    assert loaded.verdict == found.verdict
    assert not loaded.judged_by(CalibratedPolicy(precision=1e-9)).passed
    assert not loaded.judged_by(Policy.fixed(["max_abs:0"])).passed


def test_evidence_survives_when_written_and_read() -> None:
    _, floor = judged(side(50))
    assert NoiseFloor.from_dict(floor.to_dict()) == floor
    assert CalibratedPolicy.from_dict(CalibratedPolicy(free=7.0).to_dict()) == CalibratedPolicy(free=7.0)


def test_nan_that_only_the_float32_run_has_never_passes() -> None:
    candidate = side(50)
    broken = candidate["step0/forward/a#0:output"].copy()
    broken[3] = np.nan
    verdict, _ = judged(candidate | {"step0/forward/a#0:output": broken})
    assert verdict.status is Status.FAIL
    assert verdict.first_divergence is not None
    assert verdict.first_divergence.key == "step0/forward/a#0:output"
    assert "as it runs" in english(verdict.first_divergence.reason)


def test_large_integers_have_no_rounding_floor() -> None:
    key = "step0/forward/ids#0:output"
    ids = np.array([200_000_000, 300_000_000])
    sides = [{key: value, f"float64@{key}": value} for value in (ids, ids + 1)]
    assert not judged(sides[1], sides[0])[0].passed
    assert judged(sides[0], sides[0])[0].passed
