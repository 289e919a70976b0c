"""The optional C kernel: finds it, calls it, and says whether it is in use. Without it numpy does the same work."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from reprod_log.measure.blocks import paired_blocks
from reprod_log.measure.build_kernel import LIBRARY, SWITCH, source_digest, switched_off
from reprod_log.measure.dtypes import Arithmetic, Array, DtypePair
from reprod_log.measure.measurement import Measurement, SideSummary, Worst
from reprod_log.measure.totals import SideTotals, Totals, made

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


# The State of kernel.c up to its lists: 10 counts, 10 numbers, for each side 3 counts and 5 numbers; then what an
# ordinary pair amounts to: 2 counts, 6 numbers, and 4 for both sides.
_TOTALS = struct.Struct("=10q10d3q5d3q5d")
_ORDINARY = struct.Struct("=2q6d8d")
_OCTAVE = struct.Struct("=2q")
_LIST = (_TOTALS.size + _ORDINARY.size) // 8
_LISTED = 64
_BINS = _LIST + 2 * _LISTED
_State = ctypes.c_int64 * (_BINS + _OCTAVES)


@dataclass(frozen=True)
class Kernel:
    """The loaded library, or why there is none."""

    measure: Callable[..., None] | None
    status: str
    measure_many: Callable[..., None] | None = None


def status() -> str:
    """One line that says whether the kernel is in use, and if not, why and what to do."""
    return load().status


def run(
    reference: Array, candidate: Array, *, pair: DtypePair, limit: float | None, block: int | None = None
) -> Run | None:
    """The pass over a pair, or None if there is no kernel or it does not know these dtypes."""
    measure = load().measure
    if measure is None:
        return None
    state = _State()
    bound = math.inf if limit is None else limit
    code = _CODES.get(pair.reference) if pair.same else None
    if code is not None and _contiguous(reference) and _contiguous(candidate):
        left, right, size = _address(reference), _address(candidate), reference.itemsize
        count, step = reference.size, block or _CALL
        for offset in range(0, count, step):
            n = min(step, count - offset)
            measure(code, left + offset * size, right + offset * size, n, offset, bound, state)
        return Run(memoryview(state).cast("B"), count)
    cast = None
    if code is None:
        # Different dtypes that float64 holds are cast to it; no ULP distance is asked of them.
        if pair.arithmetic is not Arithmetic.FLOAT64 or pair.ulp_component is not None:
            return None
        cast, code = np.dtype(np.float64), _CODES["float64"]
    for offset, a, b in paired_blocks(reference, candidate, size=block or _GATHER, cast=cast):
        measure(code, _address(a), _address(b), a.size, offset, bound, state)
    return Run(memoryview(state).cast("B"), reference.size)


def knows(pair: DtypePair, reference: Array, candidate: Array) -> bool:
    """Whether the kernel can read both arrays where they lie."""
    return pair.same and pair.reference in _CODES and _contiguous(reference) and _contiguous(candidate)


def run_many(pairs: Sequence[tuple[Array, Array, DtypePair, float | None]]) -> list[Run] | None:
    """The passes over many small pairs that the kernel `knows`, in one call; only good for `measurement`.

    None: there is no kernel.
    """
    measure_many = load().measure_many
    if measure_many is None:
        return None
    n = len(pairs)
    # Copied end to end: asking numpy for the address of each array takes longer than the copy.
    left = _end_to_end([left for left, _, _, _ in pairs])
    right = _end_to_end([right for _, right, _, _ in pairs])
    counts = np.array([one.size for one, _, _, _ in pairs], np.int64)
    nbytes = counts * np.array([one.itemsize for one, _, _, _ in pairs], np.int64)
    offsets = np.cumsum(nbytes) - nbytes
    codes = np.array([_CODES[pair.reference] for _, _, pair, _ in pairs], np.int32)
    limits = np.array([math.inf if limit is None else limit for _, _, _, limit in pairs], np.float64)
    state = np.empty(_BINS * n, np.int64)
    starts = offsets + _address(left), offsets + _address(right)
    measure_many(n, *map(_address, (codes, *starts, counts, limits, state)))
    view = state.view(np.uint8).data
    return [Run(view, count, 8 * _BINS * place) for place, count in enumerate(counts.tolist())]


def _end_to_end(arrays: list[Array]) -> Array:
    """The bytes of all arrays, one after the other."""
    if len({array.dtype for array in arrays}) == 1:
        return np.concatenate(arrays, axis=None)
    return np.concatenate([array.reshape(-1).view(np.uint8) for array in arrays])


class Run:
    """What the kernel left of one pair."""

    __slots__ = ("_count", "_start", "_state", "_values", "worst_at")

    def __init__(self, state: memoryview, count: int, start: int = 0) -> None:
        self._state = state
        self._count = count
        self._start = start
        self._values = _TOTALS.unpack_from(state, start)
        self.worst_at: int | None = self._values[7] if self._values[1] + self._values[2] else None

    def measurement(
        self, *, pair: DtypePair, worst: Worst | None, limit: float | None, notes: tuple[str, ...]
    ) -> Measurement | None:
        """The finished measurement of an ordinary pair; None asks for the totals, which hold for every pair."""
        (
            ordinary, listed, mean_abs, rmse, mean_rel, rel_l2, cosine_distance, mean_ulp,
            mean_a, mean_b, std_a, std_b, rms_a, rms_b, abs_max_a, abs_max_b,
        ) = _ORDINARY.unpack_from(self._state, self._start + _TOTALS.size)  # fmt: skip
        if not ordinary:
            return None
        (
            _, _, _, nan_both, mismatched, differing, beyond, _, _, _,
            max_abs, min_abs, _, _, max_rel, _, _, _, max_ulp, _,
            _, nan_a, inf_a, min_a, max_a, _, _, _,
            _, nan_b, inf_b, min_b, max_b, _, _, _,
        ) = self._values  # fmt: skip
        has_ulp = pair.ulp_component is not None
        return made(
            Measurement,
            count=self._count,
            reference_dtype=pair.reference,
            candidate_dtype=pair.candidate,
            differing=differing,
            max_abs=max_abs,
            mean_abs=mean_abs,
            min_abs=min_abs,
            rmse=rmse,
            max_rel=max_rel,
            mean_rel=mean_rel,
            rel_l2=rel_l2,
            cosine_distance=cosine_distance,
            max_ulp=max_ulp if has_ulp else None,
            mean_ulp=mean_ulp if has_ulp else None,
            reference=made(SideSummary, min=min_a, max=max_a, mean=mean_a, std=std_a, rms=rms_a, abs_max=abs_max_a,
                           nan=nan_a, inf=inf_a),
            candidate=made(SideSummary, min=min_b, max=max_b, mean=mean_b, std=std_b, rms=rms_b, abs_max=abs_max_b,
                           nan=nan_b, inf=inf_b),
            worst=worst,
            nan_both=nan_both,
            nonfinite_mismatched=mismatched,
            limit=limit,
            beyond_limit=None if limit is None else beyond,
            octaves=tuple(_OCTAVE.iter_unpack(self._octaves(listed))),
            notes=notes,
            estimate=None,
        )  # fmt: skip

    def _octaves(self, listed: int) -> memoryview:
        start = self._start + 8 * _LIST
        return self._state[start : start + 16 * listed]

    def totals(self) -> Totals:
        """The sums, for what has to be looked at more closely."""
        (
            _, pairs, equal_infinities, nan_both, mismatched, differing, beyond, _, lowest, highest,
            max_abs, min_abs, sum_abs, squares, max_rel, sum_rel, reference_squares, candidate_squares,
            ulp_max, ulp_sum, *sides,
        ) = self._values  # fmt: skip
        used = self._state.cast("q")[_BINS + lowest : _BINS + highest + 1].tolist()
        return Totals(
            self._count,
            pairs=pairs,
            equal_infinities=equal_infinities,
            nan_both=nan_both,
            mismatched=mismatched,
            differing=differing,
            beyond=beyond,
            max_abs=max_abs,
            min_abs=min_abs,
            sum_abs=sum_abs,
            squares=squares,
            max_rel=max_rel,
            sum_rel=sum_rel,
            reference_squares=reference_squares,
            candidate_squares=candidate_squares,
            ulp_max=ulp_max,
            ulp_sum=ulp_sum,
            worst_at=self.worst_at,
            octaves={octave: n for octave, n in enumerate(used, lowest + _LOWEST_OCTAVE) if n},
            reference=SideTotals(*sides[:8]),
            candidate=SideTotals(*sides[8:]),
        )


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
        measure, measure_many = loaded.reprod_measure, loaded.reprod_measure_many
    except (OSError, AttributeError) as error:
        return Kernel(None, f"cannot be loaded ({error}); numpy measures instead. Install again to build it anew")
    if built_from != source_digest():
        return Kernel(None, "built from another version of kernel.c; numpy measures instead. Install again")
    measure.restype = None
    measure.argtypes = [
        ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_double,
        ctypes.c_void_p,
    ]  # fmt: skip
    measure_many.restype = None
    measure_many.argtypes = [ctypes.c_int64, *[ctypes.c_void_p] * 6]
    return Kernel(measure, f"in use ({instructions})", measure_many)


class _ArrayInterface(ctypes.Structure):
    """numpy's array interface for C, up to the address of the elements."""

    _fields_ = [
        ("two", ctypes.c_int),
        ("nd", ctypes.c_int),
        ("typekind", ctypes.c_char),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
    ]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _contiguous(array: Array) -> bool:
    """Whether the elements lie one after the other, in native bytes; at which address does not matter."""
    return array.flags.c_contiguous and array.dtype.isnative


def _address(array: Array) -> int:
    """Where the elements lie; twice as fast as array.ctypes.data, which ten thousand small tensors feel."""
    address: int = _ArrayInterface.from_address(_capsule_pointer(array.__array_struct__, None)).data
    return address
