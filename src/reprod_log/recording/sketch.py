"""Sketch: a few numbers per tensor from which the difference of two runs can be estimated without their tensors.

A sketch is linear: S(a) - S(b) = S(a - b), and |S(d)| is close to |d| whatever d is. So two stored sketches give the
L2 norm of the difference, with a relative error of about 1/sqrt(2 size), as small as the difference may be; unlike
stored means or norms they see order and sign.

Values are taken in rows of `size`. What is random about a row is drawn from the seed and its number: where in the
buckets it starts (so that no stride of a tensor meets one bucket again and again), a stretch of a table of random
signs, and a sign of its own. Sums are float64 and made in the same order everywhere, so that equal tensors have equal
sketches with the C library and without. Values that are not finite count as 0 and are distinguished by a hash of
their places.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import xxhash

from reprod_log.errors import UnreadableFile, UsageError
from reprod_log.recording.entry import Array, Entry
from reprod_log.recording.kernel import Six, sketch_into
from reprod_log.recording.summary import Summary, of_finite, summarise

_PERIOD = 2048
"""Length of the table of signs. Two rows that meet the same stretch are one in so many, which adds little error."""
_ROWS = 64
"""Rows that are added up by themselves before they go to the buckets (BLOCK_ROWS in sketch.c)."""
_SMALLEST, _LARGEST = 16, 1 << 16


@dataclass(frozen=True)
class Sketching:
    """How sketches are made; only sketches made alike can be compared."""

    size: int = 256
    seed: int = 0
    version: int = 1
    """Raised when the same size and seed would give other numbers."""

    def __post_init__(self) -> None:
        if not _SMALLEST <= self.size <= _LARGEST:
            raise UsageError(f"a sketch has {_SMALLEST} to {_LARGEST} numbers, not {self.size}")

    @property
    def error(self) -> float:
        """The relative standard error of an estimated norm."""
        return 1 / math.sqrt(2 * self.size)


@dataclass(frozen=True)
class SketchOrder:
    """The order in which a tensor's elements are sketched: axes permuted, then cut into parts along the first.

    Frameworks store a weight transposed, or three matrices in one; both sides are sketched in one canonical form.
    """

    axes: tuple[int, ...] | None = None
    parts: int = 1

    def __post_init__(self) -> None:
        if self.axes is not None and self.axes == tuple(range(len(self.axes))):
            object.__setattr__(self, "axes", None)

    def cut(self, array: Array) -> Array:
        """The elements in this order, one row per part."""
        turned = array if self.axes is None else array.transpose(self.axes)
        return np.ascontiguousarray(turned).reshape(self.parts, -1)

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of this shape has these axes and can be cut so."""
        turned = shape if self.axes is None else tuple(shape[axis] for axis in self.axes if axis < len(shape))
        whole = self.axes is None or sorted(self.axes) == list(range(len(shape)))
        return whole and (self.parts == 1 or (bool(turned) and turned[0] % self.parts == 0))


@dataclass(frozen=True)
class Sketch:
    """The sketch of one tensor, its statistics, and how it was made."""

    values: Array
    """float64, one row of `size` numbers per part."""
    summary: Summary
    form: SketchOrder = SketchOrder()
    made: Sketching = Sketching()
    nonfinite: str = ""
    """Hash of where NaN and infinities stand, in the order of the sketch; '' when there are none."""
    exact: str = ""
    """Hash of the values of whole numbers in the order of the sketch, whatever their dtype; '' for other values."""

    def facts(self) -> dict[str, Any]:
        """What stands beside the values in a file (the statistics stand on their own)."""
        facts: dict[str, Any] = {"size": self.made.size, "seed": self.made.seed, "version": self.made.version}
        if self.form.axes is not None:
            facts["axes"] = list(self.form.axes)
        if self.form.parts != 1:
            facts["parts"] = self.form.parts
        if self.nonfinite:
            facts["nonfinite"] = self.nonfinite
        if self.exact:
            facts["exact"] = self.exact
        return facts


def read_facts(facts: object, *, where: object) -> tuple[SketchOrder, Sketching, str, str]:
    """What `Sketch.facts` wrote, checked."""
    try:
        if not isinstance(facts, Mapping):
            raise TypeError("not a JSON object")
        axes = facts.get("axes")
        form = SketchOrder(None if axes is None else tuple(int(axis) for axis in axes), int(facts.get("parts", 1)))
        made = Sketching(int(facts["size"]), int(facts["seed"]), int(facts["version"]))
        if not 1 <= form.parts <= 1024 or not 0 <= made.seed < 1 << 64:
            raise ValueError("impossible parts or seed")
        return form, made, str(facts.get("nonfinite", "")), str(facts.get("exact", ""))
    except (KeyError, TypeError, ValueError, OverflowError, UsageError) as error:
        raise UnreadableFile(f"{where}: the description of its sketch is damaged ({error!r})") from error


def sketch_of(array: Array, *, form: SketchOrder = SketchOrder(), made: Sketching = Sketching()) -> Sketch:  # noqa: B008
    """The sketch of an array of numbers, with its statistics."""
    if array.dtype.kind in "biu":
        exact = _exact(form.cut(array))
        return replace(_of_numbers(array, form, made), exact=exact)
    return _of_numbers(array, form, made)


def _of_numbers(array: Array, form: SketchOrder, made: Sketching) -> Sketch:
    parts = _real(form.cut(array))
    values, found = _sketched(parts, made)
    if found is not None and array.dtype.kind != "c":
        return Sketch(values, of_finite(found), form, made)
    summary = summarise(array)
    if not summary["nan"] and not summary["inf"]:
        return Sketch(values, summary, form, made)
    finite = np.isfinite(parts)
    clean = np.where(finite, parts, 0).astype(parts.dtype)
    return Sketch(_sketched(clean, made)[0], summary, form, made, _places(parts, finite))


def _exact(parts: Array) -> str:
    """A hash of whole numbers that does not depend on their dtype."""
    # Only uint64 has numbers that int64 has not.
    is_wide = parts.dtype == np.uint64 and parts.size and parts.max() > np.iinfo(np.int64).max
    wide = np.ascontiguousarray(parts, np.uint64 if is_wide else np.int64)
    return xxhash.xxh3_128(b"u" * bool(is_wide) + wide.tobytes()).hexdigest()


def _real(parts: Array) -> Array:
    """The values as float32 or float64, complex ones as pairs."""
    kind, size = parts.dtype.kind, parts.dtype.itemsize
    if kind == "c":
        return parts.view(np.float32 if size == 8 else np.float64)
    if kind == "f" and size in (4, 8) and parts.dtype.isnative:
        return parts
    return parts.astype(np.float32 if size <= 2 else np.float64)


def _sketched(parts: Array, made: Sketching) -> tuple[Array, Six | None]:
    """The sketch of each part, and the statistics of all where they come along."""
    values = np.empty((len(parts), made.size))
    done, six = sketch_into(parts, values, seed=_base(made.seed), signs=_signs(made.size, made.seed), period=_PERIOD)
    if not done:
        with np.errstate(invalid="ignore", over="ignore"):
            for part, row in zip(parts, values, strict=True):
                _sketch_with_numpy(part, row, made)
    return values, six


def _sketch_with_numpy(part: Array, row: Array, made: Sketching) -> None:
    size = made.size
    # Twice as many buckets as needed: a row that starts late runs on, and is folded back at the end.
    buckets = np.zeros(2 * size)
    signed = np.empty(_ROWS * size)
    for start in range(0, part.size, _ROWS * size):
        block = part[start : start + _ROWS * size]
        places, signs = _block(start // size, made)
        np.multiply(block, signs[: block.size], out=signed[: block.size])
        buckets += np.bincount(places[: block.size], signed[: block.size], 2 * size)
    np.add(buckets[:size], buckets[size:], out=row)


# The rows of every tensor are drawn alike, so those of the first million elements are kept (16 MB).
@lru_cache(maxsize=64)
def _block(first: int, made: Sketching) -> tuple[Array, Array]:
    """What is random about a block of rows: the bucket and the sign of each of its values."""
    with np.errstate(over="ignore"):
        mixed = _mixed(np.arange(first, first + _ROWS, dtype=np.uint64) + np.uint64(_base(made.seed)))
    low, high = mixed & np.uint64(0xFFFFFFFF), (mixed >> np.uint64(32)) & np.uint64(0x7FFFFFFF)
    turns = (low * np.uint64(made.size)) >> np.uint64(32)
    offsets = (high * np.uint64(_PERIOD)) >> np.uint64(31)
    stretches = np.lib.stride_tricks.sliding_window_view(_signs(made.size, made.seed), made.size)
    own = np.where(mixed >> np.uint64(63), -1.0, 1.0)
    places = turns.astype(np.intp)[:, None] + np.arange(made.size)
    return places.reshape(-1), (stretches[offsets.astype(np.intp)] * own[:, None]).reshape(-1)


@lru_cache(maxsize=8)
def _base(seed: int) -> int:
    """Where the numbers of a seed begin: far from those of the next one."""
    with np.errstate(over="ignore"):
        return int(_mixed(np.array([seed], np.uint64) ^ np.uint64(0x5EED0FAB1E))[0])


def _mixed(x: Array) -> Array:
    """splitmix64."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = x ^ (x >> np.uint64(31))
    return mixed


@lru_cache(maxsize=8)
def _signs(size: int, seed: int) -> Array:
    with np.errstate(over="ignore"):
        # Far from the numbers of the rows, so that a sign says nothing about a row.
        drawn = _mixed(np.arange(_PERIOD + size, dtype=np.uint64) + np.uint64(_base(seed) ^ 1 << 62))
    signs = np.where(drawn >> np.uint64(63), -1.0, 1.0)
    signs.setflags(write=False)
    return signs


def _places(parts: Array, finite: Array) -> str:
    """A hash of which values are NaN, +inf or -inf, and where."""
    codes = np.zeros(parts.shape, np.uint8)
    codes[np.isnan(parts)] = 1
    codes[~finite & (parts > 0)] = 2
    codes[~finite & (parts < 0)] = 3
    return xxhash.xxh3_128(codes.reshape(-1).data).hexdigest()


def stored_sketch(entry: Entry) -> Sketch:
    """The sketch that a recording holds of an entry."""
    form, made, nonfinite, exact = read_facts(entry.meta.get("sketch"), where=str(entry.key))
    return Sketch(entry.read(), dict(entry.meta["summary"]), form, made, nonfinite, exact)
