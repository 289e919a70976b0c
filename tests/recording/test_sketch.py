"""Sketches: what they estimate, and that the C library and numpy give the same bits."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from reprod_log.errors import UnreadableFile, UsageError
from reprod_log.measure.build_kernel import build_sketch
from reprod_log.recording import kernel as sketch_kernel
from reprod_log.recording.sketch import Sketching, SketchOrder, read_facts, sketch_of
from reprod_log.recording.summary import joined, summarise

Array = np.ndarray


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, built now from the source as it is; with a compiler at hand it must build."""
    path = tmp_path_factory.mktemp("built") / "sketch.so"
    made = build_sketch(path)
    if "no C compiler" in made.report:
        pytest.skip(made.report)
    assert made.done, made.report
    return path


def estimate(one: Array, other: Array, **options: Sketching) -> float:
    return float(np.linalg.norm(sketch_of(one, **options).values - sketch_of(other, **options).values))


DIFFERENCES = {
    "noise": lambda n, random: random.standard_normal(n),
    "constant": lambda n, random: np.ones(n),
    "one element": lambda n, random: np.eye(1, n, n // 3)[0],
    "every 256th": lambda n, random: (np.arange(n) % 256 == 3).astype(float),
    "every 257th": lambda n, random: (np.arange(n) % 257 == 3).astype(float),
    "slope": lambda n, random: np.linspace(0, 1, n),
}


@pytest.mark.parametrize("kind", DIFFERENCES)
@pytest.mark.parametrize("share", [1e-2, 1e-7])
@pytest.mark.parametrize("count", [1_000, 200_000])
def test_estimated_difference_is_within_three_errors_for_any_kind_of_difference(
    kind: str, share: float, count: int
) -> None:
    random = np.random.default_rng(5)
    values = random.standard_normal(count)
    difference = DIFFERENCES[kind](count, random)
    moved = values + difference * (share * np.linalg.norm(values) / np.linalg.norm(difference))
    truth = float(np.linalg.norm(moved - values))
    assert estimate(values, moved) == pytest.approx(truth, rel=3 * Sketching().error)


def test_error_falls_with_the_size_when_many_seeds_are_tried() -> None:
    random = np.random.default_rng(1)
    values, moved = random.standard_normal((2, 5_000))
    truth = float(np.linalg.norm(moved - values))
    spread = {}
    for size in (64, 1024):
        found = [estimate(values, moved, made=Sketching(size, seed)) / truth for seed in range(60)]
        spread[size] = float(np.std(found))
        assert np.mean(found) == pytest.approx(1, abs=0.05)
    assert spread[64] == pytest.approx(Sketching(64).error, rel=0.4)
    assert spread[1024] == pytest.approx(Sketching(1024).error, rel=0.4)


def test_order_and_sign_are_seen_where_norms_and_means_are_equal() -> None:
    values = np.random.default_rng(2).standard_normal(10_000).astype(np.float32)
    for other in (values[::-1], -values, np.roll(values, 1), values.reshape(100, 100).T):
        truth = float(np.linalg.norm(np.ravel(other) - values))
        assert estimate(values, np.ascontiguousarray(other)) == pytest.approx(truth, rel=3 * Sketching().error)


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8, np.bool_, np.complex64]
)
@pytest.mark.parametrize("count", [1, 300, 16_384, 40_001])
def test_numpy_gives_the_same_bits_as_the_library(
    dtype: type, count: int, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = sketch_kernel.load(built)
    assert kernel is not None
    monkeypatch.setattr(sketch_kernel, "load", lambda: kernel)
    values = (np.random.default_rng(3).standard_normal(count) * 50).astype(dtype)
    fast = sketch_of(values)
    monkeypatch.setattr(sketch_kernel, "load", lambda: None)
    slow = sketch_of(values)
    assert fast.values.tobytes() == slow.values.tobytes()
    assert fast.summary == pytest.approx(slow.summary, rel=1e-12, abs=1e-12)


def test_values_that_are_not_finite_count_as_zero_and_their_places_are_hashed() -> None:
    values = np.random.default_rng(4).standard_normal(5_000).astype(np.float32)
    values[7], values[9], values[11] = np.nan, np.inf, -np.inf
    found = sketch_of(values)
    plain = sketch_of(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0))
    assert np.array_equal(found.values, plain.values)
    assert (found.summary["nan"], found.summary["inf"]) == (1, 2)
    moved = values.copy()
    moved[[7, 8]] = moved[[8, 7]]
    turned = values.copy()
    turned[9] = -np.inf
    assert len({found.nonfinite, sketch_of(moved).nonfinite, sketch_of(turned).nonfinite, plain.nonfinite}) == 4


def test_a_form_sketches_a_transposed_or_packed_tensor_as_its_canonical_parts() -> None:
    parts = np.random.default_rng(6).standard_normal((3, 40, 30)).astype(np.float32)
    packed = sketch_of(parts.reshape(120, 30), form=SketchOrder(parts=3))
    for part, row in zip(parts, packed.values, strict=True):
        stored = np.ascontiguousarray(part.T)
        assert np.array_equal(sketch_of(stored, form=SketchOrder(axes=(1, 0))).values[0], row)
    whole = joined([sketch_of(part).summary for part in parts])
    assert whole == pytest.approx(packed.summary, rel=1e-9)


def test_facts_are_read_back_and_damaged_ones_are_refused() -> None:
    made = sketch_of(np.ones((4, 6)), form=SketchOrder(axes=(1, 0), parts=2), made=Sketching(64, 9))
    assert read_facts(made.facts(), where="here") == (made.form, made.made, "", "")
    for wrong in (None, {}, {"size": 64}, {"size": 1, "seed": 0, "version": 1}, {**made.facts(), "axes": 3}):
        with pytest.raises(UnreadableFile, match="here"):
            read_facts(wrong, where="here")
    with pytest.raises(UsageError, match="16 to 65536"):
        Sketching(4)


def test_summary_of_a_large_offset_keeps_its_digits() -> None:
    values = 1e6 + np.random.default_rng(7).standard_normal(10_000)
    found = summarise(values)
    assert found["std"] == pytest.approx(values.std(), rel=1e-9)
    assert sketch_of(values).summary == pytest.approx(found, rel=1e-12)
