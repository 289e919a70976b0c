"""A fixed limit that failed by little gets an answer, or the way to one."""

import numpy as np

from reprod_log import Recording, align
from reprod_log.diagnose import Finding
from reprod_log.messages import words

TRUTH = np.random.default_rng(0).normal(size=500)


def side(seed: int, error: float = 0.0, *, float64: bool) -> Recording:
    noise = 1 + 2.0**-23 * np.random.default_rng(seed).normal(size=TRUTH.shape)
    key = "step0/forward/fc#0:output"
    arrays = {key: (TRUTH * (1 + error) * noise).astype(np.float32)}
    if float64:
        arrays[f"float64@{key}"] = TRUTH * (1 + error)
    return Recording.from_arrays(arrays)


def remark(reference: Recording, candidate: Recording, limit: str = "mean_abs:1e-9") -> list[Finding]:
    found = align(reference, candidate, limits=[limit]).findings
    return [one for one in found if one.rule == "rounding_or_defect"]


def test_without_float64_the_way_to_record_it_is_said() -> None:
    (found,) = remark(side(1, float64=False), side(2, float64=False))
    assert "reprod run --float64" in words()(found.advice)


def test_with_float64_rounding_is_called_rounding() -> None:
    (found,) = remark(side(1, float64=True), side(2, float64=True))
    assert str(found.cause).endswith("are rounding")


def test_with_float64_a_defect_is_called_a_defect() -> None:
    (found,) = remark(side(1, float64=True), side(2, 1e-5, float64=True))
    assert str(found.cause).endswith("are a defect")
    assert "step0/forward/fc#0:output" in words()(found.evidence)


def test_large_or_passing_differences_need_no_remark() -> None:
    assert remark(side(1, float64=False), side(2, 0.5, float64=False)) == []
    assert remark(side(1, float64=False), side(2, float64=False), "mean_abs:1") == []
    nan = Recording.from_arrays({"x": np.array([1.0, np.nan])})
    assert remark(nan, Recording.from_arrays({"x": np.array([1.0, 1.0])})) == []
