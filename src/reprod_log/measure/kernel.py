"""The optional C kernel: finds it, calls it, and reports whether it is in use. Without it numpy does the same work."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.measure.blocks import paired_blocks, reused_buffers
from reprod_log.measure.build_kernel import LIBRARY, SWITCH, source_digest, switched_off
from reprod_log.measure.columns import EndToEnd, cut_octaves, measurements
from reprod_log.measure.dtypes import Arithmetic, Array, DtypePair
from reprod_log.measure.measurement import Measurement, SideSummary, Worst
from reprod_log.measure.totals import SideTotals, Totals
from reprod_log.messages import Code, Foreign, Message, Note, message
from reprod_log.recording.kernel import address_of, is_plain

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


# The State of kernel.c up to its lists; q: counts, d: numbers. From `ordinary` on: what an ordinary pair amounts to.
_FACTS = tuple(
    (name, kind)
    for kind, names in (
        ("q", "started pairs equal_infinities nan_both nonfinite_mismatched differing beyond worst_at lowest highest"),
        ("d", "max_abs min_abs sum_abs squares max_rel sum_rel reference_squares candidate_squares max_ulp ulp_sum"),
        ("q", "finite_a nan_a inf_a"),
        ("d", "min_a max_a sum_a squares_a deviations_a"),
        ("q", "finite_b nan_b inf_b"),
        ("d", "min_b max_b sum_b squares_b deviations_b"),
        ("q", "ordinary listed"),
        ("d", "mean_abs rmse mean_rel rel_l2 cosine_distance mean_ulp"),
        ("d", "mean_a mean_b std_a std_b rms_a rms_b abs_max_a abs_max_b"),
    )
    for name in names.split()
)
_NAMES = tuple(name for name, _ in _FACTS)
_ALL_FACTS = struct.Struct("=" + "".join(kind for _, kind in _FACTS))
_OCTAVE = struct.Struct("=2q")
_LIST = len(_FACTS)
_LISTED = 64
_BINS = _LIST + 2 * _LISTED
_State = ctypes.c_int64 * (_BINS + _OCTAVES)


@dataclass(frozen=True)
class Kernel:
    """The loaded library, or why there is none."""

    measure: Callable[..., None] | None
    status: Message
    measure_many: Callable[..., None] | None = None
    worst: Callable[..., int] | None = None


def status() -> Message:
    """Whether the kernel is in use, and if not, why and what to do."""
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
    if code is not None and is_plain(reference) and is_plain(candidate):
        left, right, size = address_of(reference), address_of(candidate), reference.itemsize
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
        measure(code, address_of(a), address_of(b), a.size, offset, bound, state)
    return Run(memoryview(state).cast("B"), reference.size)


def worst_places(reference: Array, candidate: Array, *, pair: DtypePair, most: int) -> list[int] | None:
    """Where the flattened arrays differ most, largest difference first; None if the kernel cannot tell."""
    worst, code = load().worst, _CODES.get(pair.reference) if pair.same else None
    if worst is None or code is None or not (is_plain(reference) and is_plain(candidate)):
        return None
    left, right, size, count = address_of(reference), address_of(candidate), reference.itemsize, reference.size
    places, sizes, kept = np.empty(most, np.int64), np.empty(most), 0
    lists = address_of(places), address_of(sizes)
    for offset in range(0, count, _CALL):
        n = min(_CALL, count - offset)
        kept = worst(code, left + offset * size, right + offset * size, n, offset, most, kept, *lists)
    found: list[int] = places[:kept].tolist()
    return found


def knows(pair: DtypePair) -> bool:
    """Whether there is a kernel that takes arrays of these dtypes where they lie."""
    return load().measure_many is not None and pair.same and pair.reference in _CODES


def measure_many(laid: EndToEnd) -> list[Measurement | None]:
    """The measurements of many small pairs that the kernel `knows`, in one call; None asks for a pass of its own."""
    call, n = load().measure_many, len(laid.pairs)
    if call is None:
        return [None] * n
    left, right = laid.left, laid.right
    codes = np.full(n, _CODES[laid.kind.reference], np.int32)
    offsets = laid.starts * left.itemsize
    starts = offsets + address_of(left), offsets + address_of(right)
    with reused_buffers() as memory:
        state = memory.empty(n * _BINS, np.dtype(np.int64)).reshape(n, _BINS)
        call(n, *map(address_of, (codes, *starts, laid.sizes, laid.limits, state)))
        # Turned once: a column whose numbers lie far apart is slow to take out.
        counts = state[:, :_LIST].T.copy()
        numbers = counts.view(np.float64)
        columns = {name: (numbers if kind == "d" else counts)[place] for place, (name, kind) in enumerate(_FACTS)}
        listed = columns["listed"]
        octaves = state[:, _LIST:].reshape(n, _LISTED, 2)[np.arange(_LISTED) < listed[:, None]]
    ends = np.cumsum(np.minimum(listed, _LISTED)).tolist()
    return measurements(
        laid, columns, octaves=cut_octaves(octaves[:, 0], octaves[:, 1], ends), ordinary=columns["ordinary"] != 0
    )


class Run:
    """What the kernel left of one pair."""

    def __init__(self, state: memoryview, count: int) -> None:
        self._state = state
        self._count = count
        self._facts: dict[str, Any] = dict(zip(_NAMES, _ALL_FACTS.unpack_from(state), strict=True))

    @property
    def worst_at(self) -> int | None:
        """The place of the element that differs most, if any can be compared."""
        facts = self._facts
        return facts["worst_at"] if facts["pairs"] + facts["equal_infinities"] else None

    def measurement(
        self, *, pair: DtypePair, worst: Worst | None, limit: float | None, notes: tuple[Note, ...]
    ) -> Measurement | None:
        """The finished measurement of an ordinary pair; None asks for the totals, which hold for every pair."""
        facts = self._facts
        if not facts["ordinary"]:
            return None
        has_ulp = pair.ulp_component is not None
        given = {
            "count": self._count,
            "reference_dtype": pair.reference,
            "candidate_dtype": pair.candidate,
            "max_ulp": facts["max_ulp"] if has_ulp else None,
            "mean_ulp": facts["mean_ulp"] if has_ulp else None,
            "reference": SideSummary._make(facts[f"{name}_a"] for name in SideSummary._fields),
            "candidate": SideSummary._make(facts[f"{name}_b"] for name in SideSummary._fields),
            "worst": worst,
            "limit": limit,
            "beyond_limit": None if limit is None else facts["beyond"],
            "octaves": tuple(_OCTAVE.iter_unpack(self._state[8 * _LIST : 8 * _LIST + 16 * facts["listed"]])),
            "notes": notes,
            "estimate": None,
            "rows": (),
        }
        return Measurement._make(given[name] if name in given else facts[name] for name in Measurement._fields)

    def totals(self) -> Totals:
        """The sums, for what has to be looked at more closely."""
        facts = self._facts
        lowest, highest = facts["lowest"], facts["highest"]
        used = self._state.cast("q")[_BINS + lowest : _BINS + highest + 1].tolist()
        same = ("pairs", "equal_infinities", "nan_both", "differing", "beyond", "max_abs", "min_abs", "sum_abs",
                "squares", "max_rel", "sum_rel", "reference_squares", "candidate_squares", "ulp_sum")  # fmt: skip
        return Totals(
            self._count,
            **{name: facts[name] for name in same},
            mismatched=facts["nonfinite_mismatched"],
            ulp_max=facts["max_ulp"],
            worst_at=self.worst_at,
            octaves={octave: n for octave, n in enumerate(used, lowest + _LOWEST_OCTAVE) if n},
            reference=self._side("_a"),
            candidate=self._side("_b"),
        )

    def _side(self, side: str) -> SideTotals:
        names = ("finite", "nan", "inf", "min", "max", "sum", "squares", "deviations")
        return SideTotals(**{name: self._facts[name + side] for name in names})


@lru_cache(maxsize=4)
def load(library: Path = LIBRARY) -> Kernel:
    """The kernel as it was built at install, looked for once per process."""
    if switched_off():
        return Kernel(None, message("kernel.switched_off", switch=Code(SWITCH)))
    if not library.exists():
        return Kernel(None, message("kernel.not_built"))
    try:
        loaded = ctypes.CDLL(str(library))
        for name in ("reprod_source", "reprod_instructions"):
            getattr(loaded, name).restype = ctypes.c_char_p
        built_from, instructions = loaded.reprod_source().decode(), loaded.reprod_instructions().decode()
        measure, measure_many, worst = loaded.reprod_measure, loaded.reprod_measure_many, loaded.reprod_worst
    except (OSError, AttributeError) as error:
        return Kernel(None, message("kernel.cannot_load", why=Foreign(error)))
    if built_from != source_digest():
        return Kernel(None, message("kernel.other_version"))
    measure.restype = None
    measure.argtypes = [
        ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_double,
        ctypes.c_void_p,
    ]  # fmt: skip
    measure_many.restype = None
    measure_many.argtypes = [ctypes.c_int64, *[ctypes.c_void_p] * 6]
    whole, small, place = ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p
    worst.restype = small
    worst.argtypes = [small, place, place, whole, whole, small, small, place, place]
    return Kernel(measure, message("kernel.in_use", instructions=instructions), measure_many, worst)
