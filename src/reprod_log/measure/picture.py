"""Picture: a pair of tensors cut down to what can be looked at: a grid of elements, and the error along each axis."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from reprod_log.measure.comparison import pair_arrays
from reprod_log.measure.dtypes import Array
from reprod_log.measure.elements import is_real
from reprod_log.measure.sketch import has_values
from reprod_log.messages import Message
from reprod_log.pairing import Pair
from reprod_log.recording import Key

_GRID = 4_096
"""Elements of one picture: 64 × 64, or 2 × 8 × 16 × 16."""
_LOOKED_AT = 1 << 20
"""Elements behind a profile; of larger tensors evenly spaced ones stand for all."""
_GRIDS_IN_ALL = 1 << 16
"""Elements of all pictures of one alignment: 0.8 MB in a report."""
_MOST_PICTURES = 32
_MOST_BYTES = 1 << 28
"""A pair of more is not read a second time for its picture."""
_MOST_BARS = 256


@dataclass(frozen=True)
class Profile:
    """Along one axis: the root mean square of the difference and of the reference at each place."""

    places: tuple[int, ...]
    difference: tuple[float, ...]
    reference: tuple[float, ...]


@dataclass(frozen=True)
class Picture:
    """Single elements as they are, not means of many: what is not finite, or wrong in one place, stays visible."""

    shape: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]
    """For each axis, the indices that are in the grid; the element that differs most is always in it."""
    reference: Array
    candidate: Array
    difference: Array
    """Made before the values were cut to float32."""
    profiles: tuple[Profile, ...]

    def to_dict(self) -> dict[str, Any]:
        """For a page's script: the grids as bytes of little-endian float32 in base64."""
        grids = (self.reference, self.candidate, self.difference)
        return {
            "shape": list(self.shape),
            "places": [list(places) for places in self.places],
            "grids": [base64.b64encode(grid.astype("<f4").tobytes()).decode() for grid in grids],
        }


def picture_of(pair: Pair, *, worst: tuple[int, ...] = (), most: int = _GRID) -> Picture | None:
    """The picture of a pair, with at most `most` elements; None where there are no numbers on an axis to look at.

    `worst` is the index of the element that differs most.
    """
    if not has_values(pair) or max(pair.reference.nbytes, pair.candidate.nbytes) > _MOST_BYTES:
        return None
    found = pair_arrays(pair)
    if isinstance(found, Message) or found[0].size < 2 or not all(is_real(one.dtype) for one in found):
        return None
    shape = found[0].shape
    worst = worst if len(worst) == len(shape) else (0,) * len(shape)
    with np.errstate(all="ignore"):
        looked_at = _chosen(shape, worst, _LOOKED_AT)
        reference, candidate = (one[np.ix_(*looked_at)].astype(np.float64) for one in found)
        # Equal infinities do not differ, although their difference is not a number.
        difference = np.where(reference == candidate, 0.0, candidate - reference)
        profiles = tuple(_profile(axis, places, difference, reference) for axis, places in enumerate(looked_at))
        kept = _chosen(difference.shape, tuple(map(_place, looked_at, worst)), most)
        ours, theirs, apart = (one[np.ix_(*kept)].astype(np.float32) for one in (reference, candidate, difference))
    places = tuple(tuple(wide[few].tolist()) for wide, few in zip(looked_at, kept, strict=True))
    return Picture(shape, places, ours, theirs, apart, profiles)


def pictures_of(pairs: Iterable[tuple[Pair, tuple[int, ...]]]) -> dict[Key, Picture]:
    """The pictures of the first pairs, each with the index of its worst element, as far as a report has room."""
    found: dict[Key, Picture] = {}
    room = _GRIDS_IN_ALL
    for pair, worst in pairs:
        if room < _GRID // 2:
            break
        picture = picture_of(pair, worst=worst)
        if picture is not None:
            found[pair.reference.key] = picture
            room -= max(picture.reference.size, _GRIDS_IN_ALL // _MOST_PICTURES)
    return found


def _chosen(shape: tuple[int, ...], worst: tuple[int, ...], most: int) -> list[Array]:
    """Evenly spaced indices of each axis, with the worst one among them, so that at most `most` elements remain.

    The longest axes are cut first: what is short is shown whole.
    """
    longest = max(shape)
    while prod(min(length, longest) for length in shape) > most:
        longest = max(1, longest - max(1, longest // 16))
    return [_spaced(length, min(length, longest), at) for length, at in zip(shape, worst, strict=True)]


def _spaced(length: int, count: int, worst: int) -> Array:
    places = np.linspace(0, length - 1, count).round().astype(np.intp)
    if count < length:
        # The nearest gives way: there stay as many.
        places[np.argmin(np.abs(places - worst))] = worst
    return places


def _place(places: Array, index: int) -> int:
    return int(np.searchsorted(places, index))


def _profile(axis: int, places: Array, difference: Array, reference: Array) -> Profile:
    others = tuple(other for other in range(difference.ndim) if other != axis)
    lines = [np.sqrt(np.mean(np.square(one), axis=others)) for one in (difference, reference)]
    if len(places) > _MOST_BARS:
        # Of neighbours the one that differs most stands for all.
        starts = np.linspace(0, len(places), _MOST_BARS, endpoint=False).astype(np.intp)
        places, lines = places[starts], [np.maximum.reduceat(line, starts) for line in lines]
    return Profile(tuple(places.tolist()), tuple(lines[0].tolist()), tuple(lines[1].tolist()))
