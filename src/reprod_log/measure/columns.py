"""Many small pairs as columns: one list for each statistic. Python is slow at one small thing after the other, and ten
thousand tensors of a kilobyte are nothing else; a column is made by one call for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import repeat
from typing import TypeVar

import numpy as np

from reprod_log.measure.dtypes import Array, DtypePair, dtype_pair, notes_of
from reprod_log.measure.measurement import Measurement, SideSummary, Worst

Made = TypeVar("Made", bound=tuple[object, ...])
Octaves = Sequence[tuple[tuple[int, int], ...]]


@dataclass(frozen=True)
class EndToEnd:
    """Pairs of one native dtype, none of them empty, laid one after the other."""

    pairs: Sequence[tuple[Array, Array, float | None]]
    """Reference, candidate and the limit whose excess is counted."""

    @cached_property
    def _apart(self) -> tuple[tuple[Array, ...], tuple[Array, ...], tuple[float | None, ...]]:
        """The references, the candidates and the limits."""
        lefts, rights, limits = zip(*self.pairs, strict=True)
        return lefts, rights, limits

    @cached_property
    def kind(self) -> DtypePair:
        """What all pairs are."""
        left, right, _ = self.pairs[0]
        return dtype_pair(left.dtype, right.dtype)

    @cached_property
    def left(self) -> Array:
        """The references' elements."""
        return _joined(self._apart[0])

    @cached_property
    def right(self) -> Array:
        """The candidates' elements."""
        return _joined(self._apart[1])

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of each pair."""
        return [left.shape for left in self._apart[0]]

    @cached_property
    def sizes(self) -> Array:
        """How many elements each pair has."""
        return np.array([left.size for left in self._apart[0]], np.int64)

    @cached_property
    def starts(self) -> Array:
        """Where each pair begins."""
        found: Array = np.cumsum(self.sizes) - self.sizes
        return found

    @cached_property
    def identical(self) -> Array:
        """Which pairs have the same bytes on both sides."""
        bits = np.dtype(f"u{self.left.itemsize}")
        found: Array = ~np.logical_or.reduceat(self.left.view(bits) != self.right.view(bits), self.starts)
        return found

    @cached_property
    def limits(self) -> Array:
        """The limit of each pair; infinite where none was given."""
        if not self.is_limited:
            return np.full(len(self.pairs), np.inf)
        return np.array([np.inf if limit is None else limit for limit in self.given_limits])

    @property
    def given_limits(self) -> tuple[float | None, ...]:
        """The limit of each pair as it was given."""
        return self._apart[2]

    @cached_property
    def is_limited(self) -> bool:
        """Whether any pair has a limit."""
        return {*self.given_limits} != {None}


def _joined(arrays: Sequence[Array]) -> Array:
    """The elements of all arrays, one after the other."""
    dtype = arrays[0].dtype
    if dtype.isbuiltin == 2:
        # Those of ml_dtypes do not show their bytes.
        return np.concatenate(arrays, axis=None)
    # Six times as fast as numpy's own way, which looks at each array for longer than it copies a small one.
    return np.frombuffer(b"".join(arrays), dtype)  # type: ignore[arg-type]


def measurements(
    laid: EndToEnd, columns: Mapping[str, Array], *, octaves: Octaves, ordinary: Array
) -> list[Measurement | None]:
    """The measurement of every pair; None where it is not an ordinary one and has to be looked at alone.

    `columns` has the numbers of Measurement by their names, those of the sides by the names of SideSummary with `_a`
    and `_b`, `beyond` for how many elements are beyond the limit, and `worst_at` for the place of the worst.
    """
    n, kind, limits = len(laid.pairs), laid.kind, laid.given_limits
    values: dict[str, Iterable[object]] = {
        "count": laid.sizes.tolist(),
        "reference_dtype": repeat(kind.reference, n),
        "candidate_dtype": repeat(kind.candidate, n),
        "reference": _sides(columns, "_a"),
        "candidate": _sides(columns, "_b"),
        # Pairs that are not ordinary may have no such place.
        "worst": _worst(laid, np.clip(columns["worst_at"], 0, laid.sizes - 1)),
        "limit": limits,
        "beyond_limit": [
            None if limit is None else beyond for limit, beyond in zip(limits, columns["beyond"].tolist(), strict=True)
        ]
        if laid.is_limited
        else repeat(None, n),
        "octaves": octaves,
        "notes": repeat(notes_of(kind, 1), n),
        "estimate": repeat(None, n),
        "rows": repeat((), n),
    }
    if kind.ulp_component is None:
        values["max_ulp"] = values["mean_ulp"] = [None] * n
    in_order = (values[name] if name in values else columns[name].tolist() for name in Measurement._fields)
    found = _made(Measurement, *in_order)
    if ordinary.all():
        return list(found)
    return [one if is_ordinary else None for one, is_ordinary in zip(found, ordinary.tolist(), strict=True)]


def _made(kind: type[Made], *columns: Iterable[object]) -> Iterable[Made]:
    """Named tuples from a column for each field. `_make` would be asked in Python for each of them."""
    assert len(columns) == len(kind._fields)  # type: ignore[attr-defined]
    return map(partial(tuple.__new__, kind), zip(*columns, strict=True))


def _sides(columns: Mapping[str, Array], side: str) -> Iterable[SideSummary]:
    return _made(SideSummary, *(columns[name + side].tolist() for name in SideSummary._fields))


def _worst(laid: EndToEnd, places: Array) -> Iterable[Worst]:
    """The worst element of every pair, from its place among the flattened elements."""
    at = laid.starts + places
    return _made(Worst, _indices(laid, places), _plain(laid.left[at]), _plain(laid.right[at]))


def _plain(values: Array) -> list[float]:
    # 2: not numpy's own; those of ml_dtypes would stay what they are.
    plain: list[float] = (values.astype(np.float64) if values.dtype.isbuiltin == 2 else values).tolist()
    return plain


def _indices(laid: EndToEnd, places: Array) -> list[tuple[int, ...]]:
    """The places as indices of arrays with those shapes."""
    if len({*laid.shapes}) == 1 and laid.shapes[0]:
        return list(zip(*(axis.tolist() for axis in np.unravel_index(places, laid.shapes[0])), strict=True))
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for number, shape in enumerate(laid.shapes):
        by_shape.setdefault(shape, []).append(number)
    found: list[tuple[int, ...]] = [()] * len(laid.pairs)
    for shape, numbers in by_shape.items():
        if shape:
            index = np.unravel_index(places[numbers], shape)
            for number, one in zip(numbers, zip(*(axis.tolist() for axis in index), strict=True), strict=True):
                found[number] = one
    return found


def cut_octaves(octaves: Array, counts: Array, ends: Sequence[int]) -> Octaves:
    """The histograms of all pairs, which stand one after the other, each up to its end."""
    listed = list(zip(octaves.tolist(), counts.tolist(), strict=True))
    return [tuple(listed[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
