"""Pairs built to pass although they must not, each with the reason. A row is two recordings and the options of `align`.

A row belongs here when a reader who believed "aligned" would be wrong: values, kinds, shapes or places differ, or
nothing was shown. The looser the options, the better; they may not be so loose that the pair ought to pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

from reprod_log.recording import Entry, Key, Recording
from reprod_log.recording.entry import content_hash
from reprod_log.recording.sketch import Sketching, SketchOrder, sketch_of
from reprod_log.recording.summary import summarise

NAN, INF = float("nan"), float("inf")
KEY = "step0/forward/fc#0:output"


@dataclass(frozen=True)
class Row:
    """A pair and why it must not pass."""

    name: str
    why: str
    reference: Recording
    candidate: Recording
    options: dict[str, Any] = field(default_factory=dict)


def rows() -> tuple[Row, ...]:
    """Every pair."""
    themes = (
        _kinds, _objects, _texts, _complex, _nonfinite, _shapes, _keys, _float64, _empty, _sizes, _sketches, _claims,
        _summaries, _incomplete, _calibrated, _let_through, _wide_limits,
    )  # fmt: skip
    return tuple(row for theme in themes for row in theme())


def of(values: Any, key: str = "x") -> Recording:
    return Recording.from_arrays({key: values})


def _row(name: str, why: str, one: Any, other: Any, **options: Any) -> Row:
    sides = [side if isinstance(side, Recording) else of(side) for side in (one, other)]
    return Row(name, why, *sides, options)


def _kinds() -> Iterator[Row]:
    exact = {
        "int8": np.array([100], "i1"), "int16": np.array([1000], "i2"), "int32": np.array([1000], "i4"),
        "int64": np.array([1000]), "uint8": np.array([200], "u1"), "uint16": np.array([1000], "u2"),
        "uint32": np.array([1000], "u4"), "uint64": np.array([1000], "u8"),
    }  # fmt: skip
    for name, ours in exact.items():
        for kind in ("float16", "bfloat16", "float32", "float64"):
            wide = np.dtype(getattr(ml_dtypes, kind)) if kind == "bfloat16" else np.dtype(kind)
            step = 1 if kind != "bfloat16" else max(1, int(ours[0]) // 100)
            theirs = (ours.astype("f8") + step).astype(wide)
            yield _row(f"{name} against {kind}", "a whole number has no rounding to allow for", ours, theirs)
            yield _row(f"{kind} against {name}", "nor has one on the other side", theirs, ours)
    for kind in ("float8_e5m2", "float8_e4m3fn", "float16", "bfloat16"):
        wide = np.dtype(getattr(ml_dtypes, kind, None) or kind)
        flags = np.ones(100, bool)
        numbers = np.array([1] * 99 + [0], "f4").astype(wide)
        yield _row(f"flags against {kind}", "one flag of a hundred is another", flags, numbers)
    large = np.array([2**53, 2**62])
    yield _row("large integers", "they differ by one, which float64 cannot hold", large, large + np.array([1, 0]))
    yield _row("large integer against float64", "2^53 + 1 is not 2^53", large + 1, large.astype("f8"))
    yield _row("uint64 against int64", "the same bits, other numbers", np.array([2**64 - 1], "u8"), np.array([-1]))
    yield _row("uint8 around zero", "255 and 0 are 255 apart, not 1", np.array([255], "u1"), np.array([0], "u1"))
    yield _row("date against number", "a day is not a count", np.array(["1970-01-02"], "M8[D]"), np.array([1]))
    yield _row("dates", "another day", np.array(["2020-01-01"], "M8[D]"), np.array(["2020-01-02"], "M8[D]"))
    yield _row("text against number", "'1' is not 1", np.array(["1"]), np.array([1]))
    yield _row("bytes against text", "b'a' is not 'a'", np.array([b"a"]), np.array(["a"]))


def _objects() -> Iterator[Row]:
    def boxed(*values: Any) -> np.ndarray:
        array = np.empty(len(values), object)
        array[:] = values
        return array

    yield _row("True and 1", "a flag is not a number", boxed(True, 2), boxed(1, 2))
    yield _row("False and 0.0", "a flag is not a number", boxed(False), boxed(0.0))
    yield _row("True in a list", "nor inside a list", boxed([1, [True]], 2), boxed([1, [1]], 2))
    yield _row("True in a dict", "nor as the value of a dict", boxed({"a": True}), boxed({"a": 1}))
    yield _row("True as a name in a dict", "nor as its key", boxed({True: 1}), boxed({1: 1}))
    yield _row("an array of flags in objects", "nor in an array", boxed(np.array([True])), boxed(np.array([1])))
    yield _row("'1' and 1 in objects", "text is not a number", boxed("1"), boxed(1))
    yield _row("None and nan", "nothing is not NaN", boxed(None), boxed(NAN))
    yield _row("nan and nan in objects", "NaN equals nothing", boxed(NAN), boxed(NAN))
    yield _row("order in a dict", "another order of names", boxed({"a": 1, "b": 2}), boxed({"b": 2, "a": 1}))
    yield _row("objects against numbers", "kinds differ", boxed(1.0, 2.0), np.array([1.0, 2.0]))


def _texts() -> Iterator[Row]:
    yield _row("text that ends in NUL", "numpy drops the NUL", of("a\0"), of("a"))
    yield _row("text in a list that ends in NUL", "the same in a list", of(["a\0", "b"]), of(["a", "b"]))
    yield _row("bytes that end in NUL", "the same for bytes", of(b"a\0"), of(b"a"))
    yield _row("arrays of bytes, one with NUL", "bytes of other lengths", np.array([b"a\0"]), np.array([b"a"]))
    yield _row("composed and decomposed letters", "they look alike", np.array(["\u00e9"]), np.array(["e\u0301"]))
    yield _row("a direction mark", "it cannot be seen", np.array(["a"]), np.array(["a\u200e"]))
    yield _row("case", "another letter", np.array(["a"]), np.array(["A"]))


def _complex() -> Iterator[Row]:
    loose = {"equal_nan": True}
    why = "a NaN in one part does not make the other parts equal"
    for dtype in ("c8", "c16", "G"):
        pairs = (
            (complex(NAN, 1), complex(NAN, 2)), (complex(NAN, 1), complex(1, NAN)), (complex(INF, 1), complex(INF, 2)),
            (complex(NAN, 1), complex(NAN, NAN)), (complex(NAN, INF), complex(NAN, -INF)),
            (complex(INF, NAN), complex(NAN, INF)),
        )  # fmt: skip
        for one, other in pairs:
            sides = (np.array([value, 1], dtype) for value in (one, other))
            yield _row(f"{one} and {other} in {dtype}", why, *sides, **loose)
    yield _row("imaginary part lost", "1+1j is not 1", np.array([1 + 1j]), np.array([1.0]))
    yield _row("conjugated", "another sign", np.array([1 + 1j]), np.array([1 - 1j]))


def _nonfinite() -> Iterator[Row]:
    ones = np.ones(1000, "f4")

    def one_bad(value: float) -> np.ndarray:
        return np.concatenate([[np.float32(value)], ones[1:]])

    for value in (NAN, INF, -INF):
        yield _row(f"one {value} in the candidate", "999 equal values do not make up for it", ones, one_bad(value))
        yield _row(f"one {value} in the reference", "nor on the other side", one_bad(value), ones)
    yield _row("NaN on both sides", "NaN equals nothing unless asked", one_bad(NAN), one_bad(NAN))
    yield _row("other signs of infinity", "they are infinitely far apart", one_bad(INF), one_bad(-INF))
    yield _row("NaN against infinity", "both are broken, differently", one_bad(NAN), one_bad(INF), equal_nan=True)
    moved = np.concatenate([ones[1:], [np.float32(NAN)]])
    yield _row("as many NaN elsewhere", "they stand elsewhere", one_bad(NAN), moved, equal_nan=True)
    yield _row("all NaN", "nothing was shown", ones * NAN, ones * NAN)
    yield _row("a limit of infinity and NaN", "NaN is beyond every limit", ones, one_bad(NAN), limits="max_abs:inf")


def _shapes() -> Iterator[Row]:
    values = np.zeros((4, 1))
    for shape in ((4,), (1, 4), (4, 4), (2, 2), (1, 4, 1), (5, 1), (0, 1)):
        yield _row(f"(4, 1) and {shape}", "zeros broadcast to anything; shapes differ", values, np.zeros(shape))
    square = np.arange(9.0).reshape(3, 3)
    yield _row("a transposed square", "the shapes are equal, the values are not", square, square.T)
    yield _row("rows in reverse", "the same values in another order", square, square[::-1])
    yield _row("mean and norm kept", "only the order differs", np.array([1.0, 2, 3]), np.array([3.0, 1, 2]))


def _keys() -> Iterator[Row]:
    both = Recording.from_arrays({"a": np.ones(2), "b": np.ones(2)})
    one = Recording.from_arrays({"a": np.ones(2)})
    yield Row("an entry only in the reference", "b was not compared", both, one)
    yield Row("an entry only in the candidate", "b was not compared", one, both)
    other = Recording.from_arrays({"a": np.ones(2), "c": np.ones(2)})
    yield Row("another name", "b and c have no partner", both, other)
    yield Row("another step", "a later step has no partner", of(1.0, "step0/loss/loss"), of(1.0, "step1/loss/loss"))
    yield Row("a step missing", "the second step was not compared", *(
        Recording.from_arrays({f"step{n}/loss/loss": np.ones(1) for n in range(count)}) for count in (2, 1)
    ))  # fmt: skip
    swapped = (Recording.from_arrays({"a": np.ones(2) * x, "b": np.ones(2) * y}) for x, y in ((1, 2), (2, 1)))
    yield Row("values under each other's names", "a is b and b is a", *swapped)
    allowed = {"allow_unmatched": "*"}
    yield Row("all allowed to be unmatched", "nothing was compared", of(1.0, "a"), of(1.0, "b"), allowed)
    yield Row("two empty recordings", "nothing was compared", Recording(()), Recording(()))
    yield Row("an empty recording, all allowed", "nothing was compared", one, Recording(()), allowed)


def _float64() -> Iterator[Row]:
    wide, elsewhere = f"float64@{KEY}", "float64@step0/forward/other#0:output"
    plain = {KEY: np.ones(3, "f4")}

    def both(*more: str, **values: float) -> Recording:
        return Recording.from_arrays(plain | {key: np.full(3, values.get("value", 1.0)) for key in more})

    yield Row("float64 of nothing in the reference", "its plain entry is missing", both(elsewhere), both())
    yield Row("float64 of nothing in the candidate", "its plain entry is missing", both(), both(elsewhere))
    yield Row("float64 of other entries", "neither has a partner", both(wide), both(elsewhere))
    yield Row("float64 left out for one entry", "the candidate hides what it would be held to", *(
        Recording.from_arrays({k: np.ones(3) for k in keys})
        for keys in ((KEY, wide, "step0/loss/loss", "float64@step0/loss/loss"), (KEY, wide, "step0/loss/loss"))
    ))  # fmt: skip
    yield Row("float64 only, other values", "nothing else speaks for them", both(elsewhere), both(elsewhere, value=2.0))
    yield Row("float64 beside a classic name", "the float64 entries differ", *(
        Recording.from_arrays({"x": np.ones(3), wide: np.full(3, value)}) for value in (1.0, 2.0)
    ))  # fmt: skip


def _empty() -> Iterator[Row]:
    for shape in ((0,), (0, 3), (3, 0, 2)):
        yield _row(f"tensors of shape {shape} alone", "they have no element", np.ones(shape), np.ones(shape))
    yield _row("empty text", "no element", np.empty(0, "U1"), np.empty(0, "U1"))
    many = Recording.from_arrays({f"step{n}/forward/fc#0:output": np.ones((0, 2)) for n in range(5)})
    yield Row("five empty tensors", "however many, none has an element", many, many)


def _sizes() -> Iterator[Row]:
    yield _row("float16 beyond its range", "the candidate overflowed", np.array([70000.0]), np.array([INF], "f2"))
    long = np.ones(100_000, "f4")
    spoiled = long.copy()
    spoiled[-1] = 1.5
    yield _row("one of 100,000", "the mean hides it", long, spoiled, limits="max_abs:1e-3")
    for count, off in ((10**4, 0.003), (10**5, 0.05), (10**6, 0.5)):
        values = np.random.default_rng(count).standard_normal(count).astype("f4")
        spoiled = values.copy()
        spoiled[count // 2] += off
        yield _row(f"one of {count}", "the usual limit of the mean hides it", values, spoiled)
    yield _row(
        "a share of nothing", "a share of elements beyond 0", long, spoiled, limits=["share_beyond:0", "max_abs:0"]
    )
    small = np.random.default_rng(0).standard_normal(300).astype("f4")
    for size, by in ((1.5e-6, 0.7), (1e-5, 1.05), (1e-6, -1.0)):
        why = "the usual limit is far too wide for values of this size"
        yield _row(f"values of {size} times {by}", why, small * np.float32(size), small * np.float32(size * by))
    rates = 1e-7 * np.arange(1, 51)
    yield _row("rates 0.9 % off", "a learning rate has no rounding", of(rates, "lr"), of(1.009 * rates, "lr"))
    yield _row("signs", "norms and means of |x| are equal", np.array([1.0, -1]), np.array([-1.0, 1]))
    yield _row(
        "a limit for other keys", "the default limit holds here", np.ones(2), np.ones(2) * 1.1, limits="y=mean_abs:9"
    )
    yield _row(
        "a limit for other dtypes", "the default holds here", np.ones(2), np.ones(2) * 1.1, limits="int*/mean_abs:9"
    )


def sketched(values: np.ndarray, detail: str = "sketch", **changes: Any) -> Recording:
    """A recording of one tensor of which only a sketch or statistics are kept."""
    found = sketch_of(values)
    meta = {"summary": summarise(values)} | ({"sketch": found.facts()} if detail == "sketch" else {})
    entry = Entry(
        Key.parse(KEY), values.shape, values.dtype.name, lambda: values if detail == "full" else found.values,
        detail=detail, hash=content_hash(values), meta={} if detail == "full" else meta,  # type: ignore[arg-type]
    )  # fmt: skip
    return Recording((replace(entry, **changes),))


def colliding(size: int = 256, count: int = 400_000) -> tuple[np.ndarray, np.ndarray]:
    """Two tensors whose sketches are equal: two elements are swapped that go to the same bucket with the same sign."""
    values = np.random.default_rng(0).standard_normal(count).astype("f4")
    units = np.zeros((64 * size,), "f4")
    places: dict[tuple[int, float], int] = {}
    for place in range(units.size):
        units[place] = 1
        sketch = sketch_of(units).values.reshape(-1)
        units[place] = 0
        bucket = int(np.abs(sketch).argmax())
        mark = (bucket, float(sketch[bucket]))
        if mark in places and place // size != places[mark] // size:
            other = values.copy()
            other[[place, places[mark]]] = values[[places[mark], place]]
            return values, other
        places.setdefault(mark, place)
    raise AssertionError("no two elements share a bucket and a sign")


def _sketches() -> Iterator[Row]:
    loose = {"limits": "rel_l2:1e-3"}
    one, other = colliding()
    why = "they differ, and the sketches do not see it"
    yield Row("two elements swapped", why, sketched(one), sketched(other), loose)
    yield Row("two elements swapped, values against a sketch", why, sketched(one, "full"), sketched(other), loose)
    yield Row("two elements swapped, a sketch against values", why, sketched(one), sketched(other, "full"), loose)
    claimed = sketched(one, "full", hash=content_hash(other))
    yield Row("two elements swapped, values that claim the hash of a sketch", why, claimed, sketched(other), loose)
    yield Row("two elements swapped, a sketch and values that claim its hash", why, sketched(other), claimed, loose)
    for kind in ("f8",):
        yield Row(
            f"two elements swapped, float32 against {kind}", why, sketched(one), sketched(other.astype(kind)), loose
        )
    for kind in ("i4", "i8", "u2"):
        first, second = (np.round(values * 100).astype("f4").astype("i4") + 1000 for values in (one, other))
        yield Row(f"two whole numbers swapped, int32 against {kind}", why, *(
            sketched(values) for values in (first, second.astype(kind))
        ), loose)  # fmt: skip
    yield Row("a sketch with any limit but infinity", why, sketched(one), sketched(other), {"limits": "rel_l2:1e9"})
    far = one + np.float32(0.1)
    yield Row("far apart", "the estimate is far beyond the limit", sketched(one), sketched(far), loose)
    made = Sketching(seed=1)
    again = sketch_of(one, made=made)
    seeded = sketched(one, hash="", meta={"summary": again.summary, "sketch": again.facts()}, read=lambda: again.values)
    yield Row("sketches of other seeds", "they cannot be compared", sketched(one, hash=""), seeded, loose)
    turned = sketch_of(one.reshape(400, 1000), form=SketchOrder((1, 0)))
    facts = {"summary": turned.summary, "sketch": turned.facts()}
    ours = sketched(one.reshape(400, 1000), hash="")
    theirs = sketched(one.reshape(400, 1000), hash="", meta=facts, read=lambda: turned.values)
    yield Row("sketches in other orders", "they cannot be compared", ours, theirs, loose)
    broken = one.copy()
    broken[7] = NAN
    yield Row("a sketch with a NaN", "a NaN on one side", sketched(one), sketched(broken), loose)
    elsewhere = one.copy()
    elsewhere[8] = NAN
    yield Row("sketches with NaN at other places", "they stand elsewhere", sketched(broken), sketched(elsewhere), {
        "equal_nan": True, "limits": "rel_l2:1e3"
    })  # fmt: skip


def _claims() -> Iterator[Row]:
    one = np.linspace(0, 1, 1000, dtype="f4")
    other, loose = one + np.float32(5), {"limits": "rel_l2:1e-3"}
    hashed = content_hash(one)
    why = "the file claims a hash that its contents do not have"
    for ours, theirs in (("full", "full"), ("full", "sketch"), ("sketch", "full"), ("sketch", "sketch")):
        name = f"a claimed hash, {ours} against {theirs}"
        yield Row(name, why, sketched(one, ours), sketched(other, theirs, hash=hashed), loose)
        yield Row(f"{name}, both", why, sketched(one, ours, hash="x"), sketched(other, theirs, hash="x"), loose)
    for ours, theirs in (("full", "summary"), ("summary", "full"), ("summary", "summary"), ("sketch", "summary")):
        name = f"a claimed hash, {ours} against {theirs}"
        yield Row(name, why, sketched(one, ours), sketched(other, theirs, hash=hashed), loose)


def _summaries() -> Iterator[Row]:
    one = np.random.default_rng(1).standard_normal(1000).astype("f4")
    mixed = one[::-1].copy()
    for loose in ("rel_l2:1e-3", "mean_abs:1e6", "max_abs:1e6"):
        name, why = f"statistics of shuffled values, {loose}", "equal statistics prove nothing"
        yield Row(name, why, sketched(one, "summary"), sketched(mixed, "summary"), {"limits": loose})
    yield Row(
        "values against statistics", "equal statistics prove nothing", sketched(one, "full"), sketched(mixed, "summary")
    )
    yield Row(
        "a sketch against statistics", "equal statistics prove nothing", sketched(one), sketched(mixed, "summary")
    )


def _incomplete() -> Iterator[Row]:
    whole = of(np.ones(3))
    yield Row(
        "a reference that was cut short", "what is missing was not compared", replace(whole, complete=False), whole
    )
    yield Row(
        "a candidate that was cut short", "what is missing was not compared", whole, replace(whole, complete=False)
    )


def _calibrated() -> Iterator[Row]:
    def side(plain: np.ndarray, wide: np.ndarray) -> Recording:
        return Recording.from_arrays({KEY: plain, f"float64@{KEY}": wide})

    truth = np.random.default_rng(2).standard_normal(500)
    rounded = truth.astype("f4")
    good = side(rounded, truth)
    bad = truth.copy()
    bad[3] += 1e-2
    yield Row("wrong in float64", "the port is wrong, beyond rounding", good, side(bad.astype("f4"), bad))
    nan = rounded.copy()
    nan[0] = NAN
    yield Row("NaN as it runs", "the float64 pass does not know of it", good, side(nan, truth))
    many = np.random.default_rng(3).standard_normal(200_000)
    edge = many.astype("f4")
    edge[-1] += 1e-2
    yield Row(
        "one of 200,000 as it runs", "a kernel is wrong at its edge", side(many.astype("f4"), many), side(edge, many)
    )
    counts, more = np.arange(500) + 10**9, np.arange(500) + 10**9 + 1
    yield Row("integers under the noise", "they carry no rounding", side(counts, counts), side(more, more))
    yield Row(
        "an integer beside a float", "nor on one side", side(counts.astype("f8"), counts.astype("f8")), side(more, more)
    )
    short = side(rounded[:400], truth[:400])
    yield Row("another length", "shapes differ", good, short)


def _let_through() -> Iterator[Row]:
    one = np.linspace(-1, 1, 600, dtype="f4")
    arrays = {"step0/data/x": one, KEY: one, "step0/loss/loss": np.float32(1)}
    wrong = arrays | {KEY: one * 3, "step0/loss/loss": np.float32(2)}
    why = "whatever the results are, they are accepted"
    for accept in ("*", ("*forward*", "*loss*"), ("*fc*", "step0/loss/*"), ("step0/*",), ("*output", "*loss")):
        sides = Recording.from_arrays(arrays), Recording.from_arrays(wrong)
        yield Row(f"accepted: {accept}", why, *sides, {"accept": accept})
        calibrated = (
            Recording.from_arrays(side | {f"float64@{k}": np.float64(v) for k, v in side.items()})
            for side in (arrays, wrong)
        )
        yield Row(f"accepted in float64 too: {accept}", why, *calibrated, {"accept": accept})
    renamed = {key.replace("fc", "fd"): value for key, value in wrong.items()}
    del renamed["step0/loss/loss"]
    for allowed in ("*", ("*forward*", "*loss*")):
        yield Row(
            f"allowed to be unmatched: {allowed}",
            "only the data are left, which nobody computed",
            Recording.from_arrays(arrays),
            Recording.from_arrays(renamed),
            {"allow_unmatched": allowed},
        )
    yield Row(
        "accepted, and the rest unmatched",
        why,
        Recording.from_arrays(arrays),
        Recording.from_arrays({key: value for key, value in wrong.items() if "loss" not in key}),
        {"accept": "*fc*", "allow_unmatched": "*loss*"},
    )


def _wide_limits() -> Iterator[Row]:
    one = np.linspace(-1, 1, 600, dtype="f4")
    one[300:] *= -1
    others = {"zeros": np.zeros_like(one), "three times": np.where(np.arange(600) == 7, one, 3 * one).astype("f4")}
    for limits in (
        "max_abs:inf", "mean_abs:999", "rmse:1e3", "rel_l2:100", "rel_l2:1e9", "max_rel:1e9", "mean_rel:1e3",
        "cosine_distance:2", "*=max_abs:999", "float32/mean_abs:999", ["share_beyond:1", "max_abs:1e9"],
        ["min_abs:1e-6"], ["max_abs:999", "rel_l2:700"],
    ):  # fmt: skip
        for name, other in others.items():
            yield _row(f"{name}, {limits}", "nothing of this size exceeds the limit", one, other, limits=limits)
