"""Pairs whose evidence does not belong together or shows nothing: mixed runs, dead results, coarse passes, names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from reprod_log import CalibratedPolicy
from reprod_log.recording import Recording
from trust.built_to_pass import INF, KEY, NAN, Row

LOSS, DATA = "step0/loss/loss", "step0/data/#0:input"
TRUTH = np.random.default_rng(0).standard_normal(400)
PLAIN = TRUTH.astype("f4")


def rows() -> tuple[Row, ...]:
    """Every pair."""
    themes = (_mixed_runs, _nonfinite_passes, _coarse_passes, _dead, _repeats, _names, _shuffled, _renamed)
    return tuple(row for theme in themes for row in theme())


def _side(plain: Any, wide: Any, **more: Any) -> Recording:
    return Recording.from_arrays({KEY: plain, f"float64@{KEY}": wide, **more})


def _program(seed: int) -> dict[str, np.ndarray]:
    """Three steps of a training with four layers."""
    made = np.random.default_rng(seed)
    found: dict[str, np.ndarray] = {}
    for step in range(3):
        found[f"step{step}/data/#0:input"] = made.standard_normal((9, 5)).astype("f4").astype("f8")
        for layer in "abcd":
            found[f"step{step}/forward/{layer}#0:output"] = made.standard_normal((9, 7))
        found[f"step{step}/loss/loss"] = np.array(1 + made.random())
        for layer in "abcd":
            found[f"step{step}/gradient/{layer}.weight:raw"] = made.standard_normal((9, 7))
            found[f"step{step}/update/{layer}.weight"] = made.standard_normal((9, 7)) / 10
    return found


def _both(plain: dict[str, np.ndarray], wide: dict[str, np.ndarray]) -> Recording:
    narrow = {key: array.astype("f4") for key, array in plain.items()}
    return Recording.from_arrays(narrow | {f"float64@{key}": array for key, array in wide.items()})


def _mixed_runs() -> Iterator[Row]:
    one, other = _program(0), _program(1)
    why = "the passes are of two runs, and what parts them is no rounding"
    yield Row("float64 passes of another seed, both sides", why, _both(one, other), _both(one, other))
    yield Row("the candidate is the run that the float64 pass is of", why, _both(one, other), _both(other, other))

    def mixed(part: str) -> dict[str, np.ndarray]:
        return {key: other[key] if part in key and "/data/" not in key else array for key, array in one.items()}

    for part in ("step0/", "step1/", "step2/", "/forward/", "/loss/", "/gradient/", "/update/"):
        of_two = mixed(part)
        yield Row(f"{part} of both float64 passes from another run", why, _both(one, of_two), _both(one, of_two))
        yield Row(f"{part} of both plain passes from another run", why, _both(of_two, one), _both(of_two, one))
        yield Row(f"{part} of the candidate's plain pass", "it is right in float64 alone", _both(one, one), (
            _both(of_two, one)
        ))  # fmt: skip
        yield Row(f"{part} of the reference's float64 pass is the candidate's mistake", why, _both(one, of_two), (
            _both(of_two, of_two)
        ))  # fmt: skip
    fed = {key: other[key] if "/data/" in key else array for key, array in one.items()}
    yield Row("float64 passes fed with another dataset", why, _both(one, fed), _both(one, fed))
    labels = [Recording.from_arrays({KEY: PLAIN, "step0/data/y": np.roll(np.arange(9), by)}) for by in (0, 1)]
    yield Row("labels of another dataset", "the sides had different data", *labels)


def _nonfinite_passes() -> Iterator[Row]:
    def with_one(values: np.ndarray, value: float) -> np.ndarray:
        return np.concatenate([[value], values[1:]]).astype(values.dtype)

    broken = with_one(TRUTH, NAN)
    yield Row("a NaN in float64 hides a wrong element", "the plain passes differ there", _side(PLAIN, broken), (
        _side(with_one(PLAIN, 50), broken)
    ), {"equal_nan": True})  # fmt: skip
    yield Row("a NaN in both float64 passes", "nothing is known of it", _side(PLAIN, broken), _side(PLAIN, broken))
    high, higher = with_one(TRUTH, 1e39), with_one(TRUTH, 2e39)
    over = with_one(PLAIN, INF)
    yield Row("float32 overflows, float64 does not agree", "2e39 is not 1e39", _side(over, high), _side(over, higher))
    apart = with_one(TRUTH * 1.3, 1e39)
    yield Row("one overflow beside other numbers", "an infinite noise is no limit", _side(over, high), (
        _side(over, apart)
    ))  # fmt: skip
    yield Row("infinity in one plain pass", "the other has a number", _side(over, TRUTH), _side(PLAIN, TRUTH))


def _coarse_passes() -> Iterator[Row]:
    why = "the coarse rounding of a plain pass is no tolerance for float64 passes"
    for kind, share in (("float16", 1e-3), ("bfloat16", 1e-2), ("float8_e4m3fn", 0.1), ("float16", 1e-4)):
        narrow = TRUTH.astype(np.dtype(getattr(ml_dtypes, kind, None) or kind))
        wrong = TRUTH * (1 + share)
        wide = _side(wrong.astype("f4"), wrong)
        yield Row(f"a reference in {kind} and a port {share:.0e} off", why, _side(narrow, TRUTH), wide)
    wrong = TRUTH * 1.001
    yield Row("both sides in float16", why, _side(TRUTH.astype("f2"), TRUTH), _side(wrong.astype("f2"), wrong))
    yield Row("complex numbers", "off beyond rounding", *(
        _side((values + 0j).astype("c8"), values + 0j) for values in (TRUTH, wrong)
    ))  # fmt: skip
    yield Row("identifiers in float32", "2^24 + 1 is not in float32", *(
        Recording.from_arrays({"ids": np.array([2**24 + place], kind)}) for place, kind in ((1, "i8"), (0, "f4"))
    ))  # fmt: skip
    flags = (np.array([0, 255], "u1"), np.array([False, True]))
    yield Row("flags as 0 and 255", "255 is not true", *(Recording.from_arrays({"m": one}) for one in flags))


def _dead() -> Iterator[Row]:
    why = "any program gives this"
    zeros = {DATA: PLAIN, KEY: np.zeros(50, "f4"), LOSS: np.float32(0)}
    dead: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "zeros": (zeros, {}),
        "zeros in float64 too": (zeros | {f"float64@{k}": np.asarray(v, "f8") for k, v in zeros.items()}, {}),
        "gradients and updates of zero": ({
            f"step{step}/{phase}/w": np.zeros(99, "f4") for step in range(3) for phase in ("gradient", "update")
        }, {}),
        "empty results beside data": ({DATA: PLAIN, KEY: np.ones((0, 3), "f4")}, {}),
        "NaN that may be equal": ({KEY: PLAIN * NAN, LOSS: np.float32(NAN)}, {"equal_nan": True}),
        "NaN in float64 that may be equal": ({KEY: PLAIN * NAN, f"float64@{KEY}": TRUTH * NAN}, {"equal_nan": True}),
        "infinities": ({KEY: np.abs(PLAIN) * INF}, {}),
        "zeros, infinities and nothing": (zeros | {"step0/update/w": np.full(9, INF)}, {}),
    }  # fmt: skip
    for name, (arrays, options) in dead.items():
        yield Row(f"nothing but {name}", why, *(Recording.from_arrays(arrays) for _ in range(2)), options)


def _repeats() -> Iterator[Row]:
    for run in ("repeat", "perturbed1"):
        reference = Recording.from_arrays({KEY: PLAIN, f"{run}@{KEY}": PLAIN * np.float32(1.1)})
        candidate = Recording.from_arrays({KEY: PLAIN * np.float32(1.05)})
        why = "a run of another program shows no rounding"
        yield Row(f"{run} of another program", why, reference, candidate)
        yield Row(f"{run} of another program, calibrated", why, reference, candidate, {"policy": CalibratedPolicy()})


def _names() -> Iterator[Row]:
    pairs = (
        ("loss", "loss "), (LOSS, "step00/loss/loss"), ("step1/loss/loss", "step01/loss/loss"), ("a", "A"),
        ("\u00e9", "e\u0301"), ("x", "x\u200b"), (KEY, KEY.replace("#0", "#1")), (KEY, f"Float64@{KEY}"),
        (KEY, f"float64@{KEY}"), (LOSS, f"{LOSS}:x"), ("step0/forward/a.b#0:output", "step0/forward/ab#0:output"),
        ("step0/gradient/w:raw", "step0/gradient/w:clipped"),
    )  # fmt: skip
    for one, other in pairs:
        sides = (Recording.from_arrays({key: PLAIN * by, "n": PLAIN}) for key, by in ((one, 1), (other, 2)))
        yield Row(f"{one!r} and {other!r}", "the names look alike, the values differ", *sides)


def _shuffled() -> Iterator[Row]:
    def steps(*order: int) -> Recording:
        found: dict[str, Any] = {}
        for step, content in enumerate(order):
            made = np.random.default_rng(content)
            found |= {f"step{step}/{key}": made.standard_normal(50) for key in ("forward/a#0:output", "gradient/w:raw")}
            found[f"step{step}/loss/loss"] = np.float32(2 - content / 10)
        return Recording.from_arrays(found)

    for name, order in (("swapped", (0, 2, 1)), ("shifted", (1, 2, 3)), ("repeated", (0, 0, 0)), ("fewer", (0, 1))):
        yield Row(
            f"steps {name}", "the same steps in another order are another training", steps(0, 1, 2), steps(*order)
        )


def _renamed() -> Iterator[Row]:
    ours = Recording.from_arrays({"a": PLAIN, "b": PLAIN * 2})
    cases: tuple[tuple[str, dict[str, Any], dict[str, str]], ...] = (
        ("two names to one", {"c": PLAIN}, {"a": "c", "b": "c"}),
        ("crossed", {"a": PLAIN * 2, "b": PLAIN * 3}, {"a": "b", "b": "a"}),
        ("to a name that is not there", {"a": PLAIN, "c": PLAIN * 3}, {"b": "z"}),
    )
    for name, arrays, rename in cases:
        yield Row(f"renamed: {name}", "b has no equal", ours, Recording.from_arrays(arrays), {"rename": rename})
