"""Dtypes, single elements and values without arithmetic, each asked directly for its exact answer."""

from __future__ import annotations

import datetime
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from reprod_log.measure.dtypes import (
    Arithmetic,
    dtype_name,
    dtype_pair,
    integer_bits,
    notes_of,
)
from reprod_log.measure.elements import element_at, plain_number, samples_of, thinned, worst_at, worst_elements
from reprod_log.measure.fused import measure_arrays

LONG = np.finfo(np.longdouble).nmant != np.finfo(np.float64).nmant


@pytest.mark.parametrize(
    ("dtype", "name"), [(">f4", "float32"), ("<f8", "float64"), ("<U5", "<U5"), ("O", "object"), ("bool", "bool")]
)
def test_names_are_those_that_people_use(dtype: str, name: str) -> None:
    assert dtype_name(np.dtype(dtype)) == name


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        ("int8", 8),
        ("uint16", 16),
        ("int64", 64),
        ("float64", 0),
        ("bool", 0),
        (ml_dtypes.int4, 8),
        (ml_dtypes.bfloat16, 0),
    ],
)
def test_bits_are_those_of_integers_only(dtype: Any, bits: int) -> None:
    assert integer_bits(np.dtype(dtype)) == bits


FLOAT64, EQUALITY = Arithmetic.FLOAT64, Arithmetic.EQUALITY


@pytest.mark.parametrize(
    ("one", "other", "arithmetic", "note"),
    [
        ("float32", "float32", FLOAT64, None),
        ("float32", "float64", FLOAT64, "float32 against float64, compared in float64"),
        ("int32", "float64", FLOAT64, "int32 against float64, compared in float64"),
        ("bool", "uint8", FLOAT64, "bool against uint8, compared in float64"),
        (ml_dtypes.int4, "int32", FLOAT64, "int4 against int32, compared in float64"),
        ("int64", "int64", Arithmetic.INTEGER, None),
        ("int64", "uint8", Arithmetic.INTEGER, "int64 against uint8, compared as exact integers"),
        ("bool", "uint64", Arithmetic.INTEGER, "bool against uint64, compared as exact integers"),
        ("int64", "float32", Arithmetic.SPLIT, "int64 against float32, compared as exact integer against float"),
        ("float16", "uint64", Arithmetic.SPLIT, "float16 against uint64, compared as exact integer against float"),
        ("complex64", "float32", Arithmetic.COMPLEX128, "complex64 against float32, compared in complex128"),
        ("complex64", "int64", Arithmetic.COMPLEX128, "complex64 against int64, compared in complex128"),
        ("<U3", "<U3", EQUALITY, "<U3, compared for equality only"),
        ("<U3", "float32", EQUALITY, "<U3 against float32, compared for equality only"),
        ("O", "M8[s]", EQUALITY, "object against datetime64[s], compared for equality only"),
    ],
)
def test_two_dtypes_have_one_arithmetic_that_is_said(
    one: Any, other: Any, arithmetic: Arithmetic, note: str | None
) -> None:
    for left, right in ((one, other), (other, one)):
        pair = dtype_pair(np.dtype(left), np.dtype(right))
        assert pair.arithmetic is arithmetic
        assert pair.same == (np.dtype(left) == np.dtype(right))
    found = dtype_pair(np.dtype(one), np.dtype(other)).note
    assert (None if found is None else str(found)) == note


@pytest.mark.skipif(not LONG, reason="longdouble is float64 here")
def test_long_doubles_have_an_arithmetic_of_their_own() -> None:
    assert dtype_pair(np.dtype(np.longdouble), np.dtype("float32")).arithmetic is Arithmetic.LONGDOUBLE
    assert dtype_pair(np.dtype("int64"), np.dtype(np.longdouble)).arithmetic is Arithmetic.LONGDOUBLE
    assert dtype_pair(np.dtype(np.clongdouble), np.dtype("float32")).arithmetic is Arithmetic.CLONGDOUBLE
    assert dtype_pair(np.dtype("complex64"), np.dtype(np.longdouble)).arithmetic is Arithmetic.CLONGDOUBLE
    for dtype in (np.longdouble, np.clongdouble):
        assert dtype_pair(np.dtype(dtype), np.dtype(dtype)).ulp_component is None


@pytest.mark.parametrize(
    ("dtype", "component"),
    [
        ("float32", "float32"), (">f4", "float32"), ("float16", "float16"), (ml_dtypes.bfloat16, ml_dtypes.bfloat16),
        ("complex64", "float32"), ("complex128", "float64"), ("int32", None), ("bool", None), ("<U3", None),
        (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fn), (ml_dtypes.int4, None),
    ],
)  # fmt: skip
def test_steps_are_counted_of_floating_components(dtype: Any, component: Any) -> None:
    found = dtype_pair(np.dtype(dtype), np.dtype(dtype)).ulp_component
    assert found == (None if component is None else np.dtype(component))


def test_no_steps_are_counted_between_two_dtypes() -> None:
    assert dtype_pair(np.dtype("float32"), np.dtype("float64")).ulp_component is None


@pytest.mark.parametrize(
    ("one", "other", "possible"),
    [("float32", "int8", True), ("int8", "complex64", True), ("int8", "int64", False), ("bool", "bool", False)],
)
def test_only_floating_and_complex_values_may_not_be_finite(one: str, other: str, possible: bool) -> None:
    assert dtype_pair(np.dtype(one), np.dtype(other)).may_be_nonfinite == possible


def test_notes_say_what_was_compared_and_that_it_is_empty() -> None:
    same, other = dtype_pair(np.dtype("f4"), np.dtype("f4")), dtype_pair(np.dtype("f4"), np.dtype("f8"))
    assert notes_of(same, 1) == ()
    assert tuple(map(str, notes_of(same, 0))) == ("both are empty",)
    assert tuple(map(str, notes_of(other, 2))) == ("float32 against float64, compared in float64",)
    assert tuple(map(str, notes_of(other, 0))) == ("float32 against float64, compared in float64", "both are empty")


# Single elements.


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float32(1.5), 1.5), (np.int8(-3), -3), (np.uint64(2**63), 2**63), (np.bool_(True), True),
        (np.complex64(1 + 2j), 1 + 2j), (np.longdouble(1.5), 1.5), (np.clongdouble(1 + 2j), 1 + 2j),
        (ml_dtypes.bfloat16(2.5), 2.5), (ml_dtypes.int4(-3), -3), (ml_dtypes.float8_e4m3fn(0.5), 0.5),
    ],
)  # fmt: skip
def test_numbers_of_any_dtype_become_plain_ones(value: Any, plain: Any) -> None:
    found = plain_number(value)
    assert (found, type(found)) == (plain, type(plain))
    array = np.array([value, value])
    assert type(element_at(1, array, array).reference) is type(plain)
    assert element_at(1, array, array) == ((1,), plain, plain)


def test_element_is_found_by_its_place_in_the_flattened_array() -> None:
    ours = np.arange(24.0).reshape(2, 3, 4)
    assert element_at(17, ours, -ours) == ((1, 1, 1), 17.0, -17.0)
    assert element_at(0, np.array(2.0), np.array(3.0)) == ((), 2.0, 3.0)
    assert worst_at(None, ours, ours) is None
    assert worst_at(5, ours, ours) == ((0, 1, 1), 5.0, 5.0)


def test_samples_are_evenly_spaced_real_numbers() -> None:
    ours = np.arange(10.0)
    assert samples_of(ours, -ours, most=4) == ((0.0, 0.0), (3.0, -3.0), (6.0, -6.0), (9.0, -9.0))
    assert samples_of(ours[:1], ours[:1], most=4) == ((0.0, 0.0),)
    assert len(samples_of(ours, ours, most=10)) == len(samples_of(ours, ours, most=11)) == 10
    assert samples_of(ours, ours, most=0) == samples_of(ours[:0], ours[:0], most=4) == ()
    assert samples_of(ours, ours * 1j, most=4) == samples_of(ours * 1j, ours, most=4) == ()
    assert samples_of(np.array(["a"]), np.array(["b"]), most=4) == ()
    half = np.arange(3).astype(ml_dtypes.bfloat16)
    assert samples_of(half, half, most=2) == ((0.0, 0.0), (2.0, 2.0))
    turned = np.arange(6.0).reshape(2, 3).T
    assert [one for one, _ in samples_of(turned, turned, most=6)] == [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
    assert thinned(((1.0, 1.0), (2.0, 2.0), (3.0, 3.0)), 2) == ((1.0, 1.0), (3.0, 3.0))
    assert thinned(((1.0, 1.0), (2.0, 2.0)), 2) == ((1.0, 1.0), (2.0, 2.0))


def test_worst_elements_are_none_where_none_are_asked_for_or_there_is_no_size() -> None:
    assert worst_elements(np.zeros(2), np.ones(2), most=0) == ()
    assert worst_elements(np.array(["a"]), np.array(["b"]), most=3) == ()


# Values without arithmetic.


def test_texts_bytes_dates_and_objects_are_equal_or_not() -> None:
    cases: list[tuple[list[Any], list[Any], str]] = [
        (["a", "b", "c"], ["a", "x", "y"], "U"),
        ([b"a", b"b", b"c"], [b"a", b"x", b"y"], "S"),
    ]
    for ours, theirs, kind in cases:
        found = measure_arrays(np.array(ours), np.array(theirs), limit=0.5)
        assert np.array(ours).dtype.kind == kind
        assert (found.differing, found.count, found.limit, found.beyond_limit) == (2, 3, 0.5, 2)
        assert found.worst is not None
        assert found.worst == ((1,), repr(ours[1]), repr(theirs[1]))
        assert math.isnan(found.max_abs)
    days = np.array(["2026-01-01", "2026-01-02"], "M8[D]")
    assert measure_arrays(days, days).differing == 0
    assert measure_arrays(days, days[::-1]).differing == 2
    assert measure_arrays(days - days[0], days - days[1]).differing == 2
    same = measure_arrays(np.array(["a"]), np.array(["a"]))
    assert (same.differing, same.max_abs, same.beyond_limit, same.limit) == (0, 0.0, None, None)
    assert same.worst == ((0,), "'a'", "'a'")
    empty = measure_arrays(np.array([], "U1"), np.array([], "U1"))
    assert (empty.worst, empty.count) == (None, 0)


def test_place_of_the_first_unequal_value_is_that_in_the_array() -> None:
    ours, theirs = np.array([["a", "b"], ["c", "d"]]), np.array([["a", "b"], ["c", "x"]])
    found = measure_arrays(ours, theirs)
    assert found.worst is not None
    assert found.worst.index == (1, 1)


class Odd:
    """Cannot be compared with anything."""

    def __eq__(self, other: object) -> bool:
        raise TypeError

    __hash__ = None  # type: ignore[assignment]


def objects(*values: Any) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def test_objects_decide_for_themselves_and_those_that_cannot_are_not_equal() -> None:
    lists = objects(np.arange(2), np.arange(3), None)
    assert measure_arrays(lists, objects(np.arange(2), np.arange(3), None)).differing == 0
    assert measure_arrays(lists, objects(np.arange(2), np.arange(2), None)).differing == 1
    assert measure_arrays(lists, objects([0, 1], "x", 0)).differing == 2
    assert measure_arrays(objects(Odd()), objects(Odd())).differing == 1
    assert measure_arrays(objects("a"), np.array(["a"])).differing == 0
    today = datetime.date(2026, 1, 1)
    assert measure_arrays(objects(today), np.array(["2026-01-01"], "M8[D]")).differing == 0


def shown(left: Any, right: Any) -> tuple[Any, Any]:
    worst = measure_arrays(objects(left), objects(right)).worst
    assert worst is not None
    return worst.reference, worst.candidate


def test_short_texts_are_shown_whole() -> None:
    assert shown("abc", "abd") == ("'abc'", "'abd'")
    long = "x" * 78
    assert shown(long, long[:-1] + "y") == (f"'{long}'", f"'{long[:-1]}y'"), "80 letters with their marks"
    assert shown(1, None) == ("1", "None")
    assert shown(np.bytes_(b"a"), np.bytes_(b"b")) == ("b'a'", "b'b'")
    assert shown("x" * 79, "y") == ("'" + "x" * 78 + "…", "'y'"), "81 letters with their marks"


def test_of_long_texts_the_part_is_shown_where_they_begin_to_differ() -> None:
    long = "".join(chr(97 + place % 26) for place in range(200))
    other = long[:100] + "!" + long[101:]
    ours, theirs = shown(long, other)
    # 30 letters before the first that differs, 80 in all with both marks of what is left out.
    assert ours == "…" + repr(long)[71 : 71 + 78] + "…"
    assert theirs == "…" + repr(other)[71 : 71 + 78] + "…"
    assert len(ours) == 80
    assert theirs[31] == "!"
    early = shown("!" + long, long)
    assert early[0].startswith("'!abc")
    assert early[0].endswith("…")
    ours, theirs = shown(long, long + "tail")
    assert theirs.endswith("tail'")
    assert ours.startswith("…")


def test_distance_of_65_bits_is_rounded_once() -> None:
    far = measure_arrays(np.array([2**64 - 1], np.uint64), np.array([-2050], np.int64))
    assert far.max_abs == float(2**64 + 2049) == 2.0**64 + 4096
    near = measure_arrays(np.array([2**64 - 1], np.uint64), np.array([-2049], np.int64))
    assert near.max_abs == float(2**64 + 2048) == 2.0**64
