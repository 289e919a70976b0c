"""The optional C kernel: finds it, calls it, and says whether it is in use. Without it numpy does the same work."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.measure.blocks import in_place, paired_blocks
from reprod_log.measure.build_kernel import LIBRARY, SWITCH, source_digest, switched_off
from reprod_log.measure.dtypes import Arithmetic, Array, DtypePair
from reprod_log.measure.totals import SideTotals, Totals

# A call that is too long could not be interrupted by the keyboard; this one takes a few hundredths of a second.
_CALL = 1 << 24
# Values that have to be gathered or cast first go through buffers that stay in the cache.
_GATHER = 1 << 15
# The order of the enum in kernel.c.
_CODES = {
    name: code
    for code, name in enumerate(
        ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "int32", "uint32",
         "int64", "uint64")
    )
} | {"bool": 5}  # fmt: skip
_OCTAVES = 2100
_LOWEST_OCTAVE = -1074


class _Side(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("finite", "nan", "inf")] + [
        (name, ctypes.c_double) for name in ("min", "max", "sum", "squares", "deviations")
    ]


class _State(ctypes.Structure):
    """The State of kernel.c, field by field."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("started", "pairs", "equal_infinities", "nan_both", "mismatched")),
        *((name, ctypes.c_int64) for name in ("differing", "beyond", "worst_at", "lowest", "highest")),
        *((name, ctypes.c_double) for name in ("max_abs", "min_abs", "sum_abs", "squares", "max_rel", "sum_rel")),
        *((name, ctypes.c_double) for name in ("reference_squares", "candidate_squares", "ulp_max", "ulp_sum")),
        ("reference", _Side),
        ("candidate", _Side),
        ("octaves", ctypes.c_int64 * _OCTAVES),
    ]


@dataclass(frozen=True)
class Kernel:
    """The loaded library, or why there is none."""

    measure: Callable[..., None] | None
    status: str


def status() -> str:
    """One line that says whether the kernel is in use, and if not, why and what to do."""
    return load().status


def usable(pair: DtypePair) -> bool:
    """Whether the kernel is there and knows this pair of dtypes."""
    if load().measure is None:
        return False
    # Of different dtypes no ULP is asked for, so they may be cast.
    return _code(pair) is not None or (pair.arithmetic is Arithmetic.FLOAT64 and pair.ulp_component is None)


def tally(
    reference: Array, candidate: Array, *, pair: DtypePair, limit: float | None, block: int | None = None
) -> Totals:
    """The totals of a pair for which the kernel is `usable`."""
    measure = load().measure
    assert measure is not None, "asked for without being usable"
    state = _State()
    bound = np.inf if limit is None else limit
    code = _code(pair)
    if code is not None and in_place(reference) and in_place(candidate):
        left, right, size = _address(reference), _address(candidate), reference.itemsize
        for offset in range(0, reference.size, block or _CALL):
            n = min(block or _CALL, reference.size - offset)
            measure(code, left + offset * size, right + offset * size, n, offset, bound, state)
        return _totals(state, reference.size)
    cast = None if code is not None else np.dtype(np.float64)
    code = _CODES["float64"] if code is None else code
    for offset, a, b in paired_blocks(reference, candidate, size=block or _GATHER, cast=cast):
        measure(code, _address(a), _address(b), a.size, offset, bound, state)
    return _totals(state, reference.size)


@lru_cache(maxsize=4)
def load(library: Path = LIBRARY) -> Kernel:
    """The kernel as it was built at install, looked for once per process."""
    if switched_off():
        return Kernel(None, f"not in use: {SWITCH} is set; numpy measures instead")
    if not library.exists():
        return Kernel(
            None, "not built (no C compiler at install, or switched off then); numpy measures instead, slower"
        )
    try:
        loaded = ctypes.CDLL(str(library))
        for name in ("reprod_source", "reprod_instructions"):
            getattr(loaded, name).restype = ctypes.c_char_p
        built_from, instructions = loaded.reprod_source().decode(), loaded.reprod_instructions().decode()
        measure = loaded.reprod_measure
    except (OSError, AttributeError) as error:
        return Kernel(None, f"cannot be loaded ({error}); numpy measures instead. Install again to build it anew")
    if built_from != source_digest():
        return Kernel(None, "built from another version of kernel.c; numpy measures instead. Install again")
    measure.restype = None
    measure.argtypes = [
        ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_double,
        ctypes.POINTER(_State),
    ]  # fmt: skip
    return Kernel(measure, f"in use ({instructions})")


def _code(pair: DtypePair) -> int | None:
    return _CODES.get(pair.reference) if pair.same else None


def _address(array: Array) -> int:
    # Half the time of array.ctypes.data, which matters for ten thousand small tensors.
    address: int = array.__array_interface__["data"][0]
    return address


def _totals(state: Any, count: int) -> Totals:
    octaves = {}
    if state.lowest <= state.highest:
        used = state.octaves[state.lowest : state.highest + 1]
        first = state.lowest + _LOWEST_OCTAVE
        octaves = {first + i: n for i, n in enumerate(used) if n}
    return Totals(
        count,
        pairs=state.pairs,
        equal_infinities=state.equal_infinities,
        nan_both=state.nan_both,
        mismatched=state.mismatched,
        differing=state.differing,
        beyond=state.beyond,
        max_abs=state.max_abs,
        min_abs=state.min_abs,
        sum_abs=state.sum_abs,
        squares=state.squares,
        max_rel=state.max_rel,
        sum_rel=state.sum_rel,
        reference_squares=state.reference_squares,
        candidate_squares=state.candidate_squares,
        ulp_max=state.ulp_max,
        ulp_sum=state.ulp_sum,
        worst_at=state.worst_at if state.pairs + state.equal_infinities else None,
        octaves=octaves,
        reference=_side(state.reference),
        candidate=_side(state.candidate),
    )


def _side(side: Any) -> SideTotals:
    return SideTotals(
        finite=side.finite,
        nan=side.nan,
        inf=side.inf,
        min=side.min,
        max=side.max,
        sum=side.sum,
        squares=side.squares,
        deviations=side.deviations,
    )
