"""Chosen pairs of arrays against exact arithmetic: every kind of number, special value, size of block and rescue."""

from __future__ import annotations

import math

import exact_measurement as exact
import ml_dtypes
import numpy as np
import pytest
from test_measure_arrays import assert_as_exact
from ways import measured_by

from reprod_log.errors import UsageError
from reprod_log.measure.elements import plain_number, samples_of, thinned, worst_elements
from reprod_log.measure.fused import measure_arrays
from reprod_log.measure.measurement import Measurement
from reprod_log.measure.numpy_pass import dot

CHANCE = np.random.default_rng(11)
NAN, INF = np.nan, np.inf


def shaken(values: np.ndarray, share: float = 1e-3) -> np.ndarray:
    return (values * (1 + share * CHANCE.normal(size=values.shape))).astype(values.dtype)


PLAIN = CHANCE.normal(size=37)
CASES: dict[str, tuple[np.ndarray, np.ndarray]] = {
    **{
        dtype: (PLAIN.astype(dtype), shaken(PLAIN).astype(dtype))
        for dtype in ("float16", "float32", "float64", "complex64", "complex128")
    },
    "bfloat16": (PLAIN.astype(ml_dtypes.bfloat16), shaken(PLAIN, 0.1).astype(ml_dtypes.bfloat16)),
    "float8": (PLAIN.astype(ml_dtypes.float8_e4m3fn), shaken(PLAIN, 0.5).astype(ml_dtypes.float8_e4m3fn)),
    "complex": (PLAIN + 1j * PLAIN[::-1], PLAIN * 1.01 + 1j * PLAIN[::-1]),
    "equal": (PLAIN, PLAIN.copy()),
    "one": (np.array(2.0), np.array(2.5)),
    "one element": (np.array([-2.0]), np.array([2.0])),
    "empty": (np.zeros((0, 3)), np.zeros((0, 3))),
    "zeros": (np.zeros(5), np.zeros(5)),
    "reference of zeros": (np.zeros(5), np.array([0.0, 0.0, 1e-9, 0.0, 0.0])),
    "candidate of zeros": (np.arange(1.0, 5), np.zeros(4)),
    "signs of zero": (np.array([0.0, -0.0]), np.array([-0.0, 0.0])),
    "opposite": (PLAIN, -PLAIN),
    "signed integers": (np.array([-5, 0, 7], np.int32), np.array([-5, 1, -7], np.int32)),
    "unsigned bytes": (np.array([0, 255, 3], np.uint8), np.array([255, 0, 3], np.uint8)),
    "wide integers": (np.array([2**62, -(2**62)], np.int64), np.array([2**62 + 1, 2**62], np.int64)),
    "mixed integers": (np.array([2**63], np.uint64), np.array([-1], np.int64)),
    "flags": (np.array([True, False, True]), np.array([True, True, False])),
    "float16 against float32": (PLAIN.astype(np.float16), PLAIN.astype(np.float32)),
    "float32 against float64": (PLAIN.astype(np.float32), PLAIN),
    "integers against floats": (np.arange(5), np.arange(5) + 0.25),
    "large and small": (np.array([1e300, 1e-300, 1.0]), np.array([1e300, 2e-300, 1.0])),
    "squares beyond range": (np.array([1e200, 2e200]), np.array([1e200, 2.5e200])),
    "squares below range": (np.array([1e-200, 2e-200]), np.array([1e-200, 2.5e-200])),
    "difference beyond range": (np.array([1.7e308, 1.0]), np.array([-1.7e308, 1.0])),
    "subnormal": (np.array([5e-324, 1e-310]), np.array([1e-323, 1e-310])),
    "nan on both": (np.array([NAN, 1.0, 2.0]), np.array([NAN, 1.5, 2.0])),
    "nan on one": (np.array([NAN, 1.0, 2.0]), np.array([0.0, 1.5, NAN])),
    "same infinities": (np.array([INF, -INF, 1.0]), np.array([INF, -INF, 1.5])),
    "other infinities": (np.array([INF, -INF, 1.0, 3.0]), np.array([-INF, 2.0, INF, 3.0])),
    "nothing comparable": (np.array([NAN, INF]), np.array([NAN, -INF])),
    "complex nan": (np.array([complex(NAN, 1), 1 + 1j]), np.array([complex(NAN, 1), 1 + 2j])),
    "turned": (PLAIN[:36].reshape(6, 6).T, shaken(PLAIN[:36].reshape(6, 6))),
    "strided": (PLAIN[::2], shaken(PLAIN)[::2]),
    "backwards": (PLAIN[::-1], shaken(PLAIN)[::-1]),
    "big endian": (PLAIN.astype(">f4"), shaken(PLAIN).astype("<f4")),
    "cube": (CHANCE.normal(size=(3, 4, 5)), CHANCE.normal(size=(3, 4, 5))),
    "long": (CHANCE.normal(size=150), CHANCE.normal(size=150)),
    "long and beyond range": (1e200 * CHANCE.normal(size=60), 1e200 * CHANCE.normal(size=60)),
    "subnormal differences": (np.array([1e-310, 5e-320, 1.0]), np.array([3e-310, 1e-319, 1.0])),
    "half integers apart": (np.array([2**63 - 1, -(2**63)], np.int64), np.array([-(2**63), 2**63 - 1], np.int64)),
    "complex against floats": (PLAIN[:5] + 1j, PLAIN[:5]),
    "long doubles": (PLAIN[:5].astype(np.longdouble), shaken(PLAIN[:5]).astype(np.longdouble)),
    "small integers of ml_dtypes": (
        np.array([1, -3, 7], ml_dtypes.int4),
        np.array([1, 3, -7], ml_dtypes.int4),
    ),
    "as far apart as integers go": (np.array([2**64 - 1, 0], np.uint64), np.array([-(2**63), -(2**63)], np.int64)),
    "carried": (np.array([2**64 - 1, 2**63 + 1], np.uint64), np.array([-(2**63) + 1, -2], np.int64)),
    "complex squares beyond range": (np.array([1e200 + 2e200j, 3e200j]), np.array([1e200 + 2.5e200j, -3e200j])),
    "complex squares below range": (np.array([1e-200 + 2e-200j, 3e-200j]), np.array([1e-200 + 2.5e-200j, -3e-200j])),
    "beyond range among nan": (np.array([1e200, NAN, 2e200, INF]), np.array([1e200, 1.0, 2.5e200, 1.0])),
    "complex against wide integers": (np.array([2**62 + 1j]), np.array([2**62 + 1])),
    "complex long doubles": (PLAIN[:5].astype(np.clongdouble) + 1j, shaken(PLAIN[:5]).astype(np.clongdouble) + 1j),
    "long doubles against integers": (PLAIN[:5].astype(np.longdouble), np.arange(5)),
    "equal infinities and nan": (np.array([1.0, INF, NAN]), np.array([1.0, INF, NAN])),
    "one step apart": (np.float32([1, 2, 4]), np.nextafter(np.float32([1, 2, 4]), np.float32(9))),
    "across zero": (np.float32([1e-45, -1e-45]), np.float32([-1e-45, 1e-45])),
}


@pytest.mark.parametrize("block", [None, 1, 4, 5])
@pytest.mark.parametrize("name", CASES)
def test_numpy_measures_as_exact_arithmetic_does(name: str, block: int | None) -> None:
    with measured_by("numpy"):
        for limit in (None, 0.0, 1e-3, 0.5):
            found = measure_arrays(*CASES[name], limit=limit, block=block)
            assert_as_exact(found, *CASES[name], limit=limit)
            assert found.limit == limit


@pytest.mark.parametrize("name", CASES)
def test_installed_kernel_measures_as_exact_arithmetic_does(name: str) -> None:
    for limit in (None, 1e-3):
        assert_as_exact(measure_arrays(*CASES[name], limit=limit), *CASES[name], limit=limit)


@pytest.mark.parametrize("name", CASES)
def test_measurement_survives_when_written_and_read(name: str) -> None:
    found = measure_arrays(*CASES[name], limit=0.1)
    assert repr(Measurement.from_dict(found.to_dict())) == repr(found)


@pytest.mark.parametrize("name", CASES)
def test_worst_element_is_where_the_largest_difference_is(name: str) -> None:
    reference, candidate = CASES[name]
    found = measure_arrays(reference, candidate)
    if found.worst is None:
        assert not found.comparable or not found.differing or found.count == 0
        return
    left, right = (exact.number(side[found.worst.index]) for side in (reference, candidate))
    assert exact.rounded(abs(left.re - right.re)) <= found.max_abs or reference.dtype.kind == "c"


def test_properties_count_what_could_be_compared() -> None:
    found = measure_arrays(np.array([1.0, NAN, INF, 4.0]), np.array([1.0, NAN, 1.0, 5.0]), limit=0.5)
    assert (found.comparable, found.beyond_limit, found.share_beyond, found.identical) == (2, 1, 0.5, False)
    assert measure_arrays(np.ones(3), np.ones(3)).identical
    assert not measure_arrays(np.array([NAN]), np.array([NAN])).identical
    nothing = measure_arrays(np.array([NAN]), np.array([NAN]), limit=1.0)
    assert nothing.share_beyond is not None
    assert np.isnan(nothing.share_beyond)
    assert measure_arrays(np.zeros(0), np.zeros(0), limit=1.0).share_beyond == 0.0
    assert measure_arrays(np.ones(1), np.ones(1)).share_beyond is None


def test_text_and_objects_are_compared_for_equality() -> None:
    words = np.array(["a", "b", "c"])
    found = measure_arrays(words, np.array(["a", "x", "c"]), limit=0.5)
    # How far apart two words are is no number.
    assert (found.count, found.differing, found.beyond_limit) == (3, 1, 1)
    assert np.isnan(found.max_abs)
    assert found.worst is not None
    assert (found.worst.index, found.worst.reference, found.worst.candidate) == ((1,), "'b'", "'x'")
    assert measure_arrays(words, words).identical
    things = np.array([None, 1, "x"], dtype=object)
    assert measure_arrays(things, things.copy()).differing == 0
    assert measure_arrays(things, np.array([None, 2, "x"], dtype=object)).differing == 1


@pytest.mark.parametrize("limit", [-1.0, NAN])
def test_what_makes_no_sense_is_refused(limit: float) -> None:
    with pytest.raises(UsageError, match="not a size of a difference"):
        measure_arrays(np.ones(2), np.ones(2), limit=limit)
    with pytest.raises(UsageError, match="The shapes differ"):
        measure_arrays(np.ones(2), np.ones((2, 1)))


@pytest.mark.parametrize("size", [0, 1, 8191, 8192, 8193, 20_000])
def test_dot_product_is_exact_to_the_last_digits_at_any_length(size: int) -> None:
    left, right = CHANCE.normal(size=(2, size))
    wanted = math.fsum((left * right).tolist())
    assert dot(left, right) == pytest.approx(wanted, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("shape", [(300, 400), (400, 300), (3, 200, 150)])
def test_large_turned_arrays_are_measured_like_small_ones(shape: tuple[int, ...]) -> None:
    reference = CHANCE.normal(size=shape)
    candidate = shaken(reference)
    turned = np.asfortranarray(candidate)
    with measured_by("numpy"):
        found = measure_arrays(reference, turned, limit=1e-3)
    plain = np.abs(candidate - reference)
    assert found.max_abs == plain.max()
    assert found.mean_abs == pytest.approx(plain.mean(), rel=1e-12)
    assert found.beyond_limit == int((plain > 1e-3).sum())
    assert found.worst is not None
    assert found.worst.index == np.unravel_index(plain.argmax(), shape)
    assert found.rel_l2 == pytest.approx(np.linalg.norm(plain) / np.linalg.norm(reference), rel=1e-12)


@pytest.mark.parametrize(
    ("reference", "candidate", "note"),
    [
        (np.float16, np.float32, "float16 against float32"),
        (np.int32, np.float64, "int32 against float64"),
        (np.uint64, np.int64, "uint64 against int64"),
        (np.complex64, np.float32, "complex64 against float32"),
    ],
)
def test_other_kinds_beside_each_other_are_noted(reference: type, candidate: type, note: str) -> None:
    found = measure_arrays(np.ones(2, reference), np.ones(2, candidate))
    assert [str(one).startswith(f"{note}, ") for one in found.notes] == [True]
    assert (found.reference_dtype, found.candidate_dtype) == tuple(note.split(" against "))
    assert measure_arrays(np.ones(2, reference), np.ones(2, reference)).notes == ()


@pytest.mark.parametrize(
    ("left", "right", "differing"),
    [
        (np.array([b"a", b"bc"]), np.array([b"a", b"bd"]), 1),
        (np.array(["2020-01-01"], "M8[D]"), np.array(["2020-01-02"], "M8[D]"), 1),
        (np.array([1, 2], "m8[s]"), np.array([1, 2], "m8[s]"), 0),
        (np.array([1, 2], "m8[s]"), np.array([1, 3], "m8[s]"), 1),
        (np.array([["a", "b"]]), np.array([["a", "b"]]), 0),
    ],
)
def test_kinds_without_numbers_are_counted(left: np.ndarray, right: np.ndarray, differing: int) -> None:
    found = measure_arrays(left, right)
    assert (found.count, found.differing) == (left.size, differing)
    # Without a difference the first element stands for all.
    assert found.worst is None or found.worst.index == ((left.size - 1,) if differing else (0,) * left.ndim)


def test_single_elements_are_shown_as_plain_numbers() -> None:
    for dtype, kind in (("int4", int), ("bfloat16", float), ("float8_e4m3fn", float)):
        real = np.dtype(getattr(ml_dtypes, dtype))
        worst = measure_arrays(np.array([1, 2], real), np.array([1, 3], real)).worst
        assert worst is not None
        assert (type(worst.reference), worst.reference, worst.candidate) == (kind, 2, 3)
    for dtype, kind in ((np.complex64, complex), (np.int8, int), (np.bool_, bool), (np.float16, float)):
        worst = measure_arrays(np.array([0, 1], dtype), np.array([0, 0], dtype)).worst
        assert worst is not None
        assert type(worst.reference) is kind
    found = samples_of(np.array([1, 2], ml_dtypes.bfloat16), np.array([1, 3], np.int8), most=5)
    assert found == ((1.0, 1.0), (2.0, 3.0))
    assert all(type(one) is float for pair in found for one in pair)


def test_samples_are_thinned_evenly_and_keep_both_ends() -> None:
    many = tuple((float(n), float(n)) for n in range(100))
    few = thinned(many, most=5)
    assert len(few) == 5
    assert (few[0], few[-1]) == (many[0], many[-1])
    assert thinned(many, most=100) is many
    assert thinned(many, most=200) is many


def test_worst_elements_are_the_largest_differences_in_order() -> None:
    reference, candidate = np.zeros(100), np.zeros(100)
    candidate[[3, 50, 70, 99]] = [1.0, 4.0, 3.0, 2.0]
    found = worst_elements(reference, candidate, most=3)
    assert [(one.index, one.candidate) for one in found] == [((50,), 4.0), ((70,), 3.0), ((99,), 2.0)]
    assert len(worst_elements(reference, candidate, most=9)) == 4


def test_numbers_that_numpy_has_no_plain_kind_for_are_made_plain() -> None:
    worst = measure_arrays(np.array([1, 2], np.longdouble), np.array([1, 3], np.longdouble)).worst
    assert worst is not None
    assert (type(worst.reference), worst.reference, worst.candidate) == (float, 2.0, 3.0)
    assert plain_number(np.array([3], ml_dtypes.int4)[0]) == 3
    assert type(plain_number(np.array([3], ml_dtypes.int4)[0])) is int
    assert type(plain_number(np.array([3], ml_dtypes.bfloat16)[0])) is float
    assert plain_number(np.clongdouble(1 + 2j)) == 1 + 2j
    assert type(plain_number(np.clongdouble(1 + 2j))) is complex


def test_kinds_without_numbers_are_named_as_numpy_prints_them() -> None:
    found = measure_arrays(np.array(["2020-01-01"], "M8[D]"), np.array(["2020-01-01"], "M8[D]"))
    assert found.reference_dtype == found.candidate_dtype == "datetime64[D]"
