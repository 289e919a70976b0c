"""Entries of paired layers and parameters in a layout that can be compared, and which rearrangement relates two arrays.

Never by shape guessing alone. What was not recorded in full is brought into the other side's layout as far as a sketch
allows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from reprod_log.errors import RecordingError
from reprod_log.layers.arrangement import batch_first, channels_last, is_sequence, is_sequence_role, row_by_row
from reprod_log.layers.layouts import Piece, TensorView
from reprod_log.messages import Message, message
from reprod_log.pairing.distance import SAME, relative
from reprod_log.pairing.pairing import View
from reprod_log.recording import Array, Entry, ModuleInfo
from reprod_log.recording.sketch import Sketch, Sketching, SketchOrder, sketch_of, stored_sketch
from reprod_log.recording.summary import STATISTICS, Summary, joined, summarise

_MOST_ROW_AXES = 5
_MOST_SHIFTS = 64
_MOST_TURNED_AXES = 4


def viewed_entry(view: TensorView, parts: Sequence[Entry], reference: Entry) -> Entry:
    """The candidate's entries as one entry in the reference's layout; data is read and arranged when asked for."""
    if any(part.detail != "full" for part in parts):
        return sketched_view(view, parts, reference)

    def read() -> Array:
        return np.asarray(view.apply([part.array() for part in parts], shape=reference.shape))

    # The hash was that of another arrangement.
    return replace(parts[0], shape=reference.shape, read=read, hash="")


def output_view(reference: Entry, candidate: Entry, ours: ModuleInfo | None, theirs: ModuleInfo | None) -> View | None:
    """The view of a layer's output that its own settings call for: channels last, or time and batch exchanged."""
    if ours is None or theirs is None or len(reference.shape) != len(candidate.shape):
        return None
    rank = len(reference.shape)
    left, right = channels_last(ours), channels_last(theirs)
    if rank >= 3 and left != right:
        axes = (0, rank - 1, *range(1, rank - 1)) if right else (0, *range(2, rank), 1)
        if tuple(candidate.shape[axis] for axis in axes) == reference.shape and not _agree(reference, candidate):
            return View(message("view.channels_last" if right else "view.channels_first", type=theirs.type), axes=axes)
    # Only the sequence itself: states and weights that come beside it have no time axis.
    if rank == 3 and is_sequence_role(ours, reference.key.role) and time_and_batch_exchanged(ours, theirs):
        axes = (1, 0, 2)
        if tuple(candidate.shape[axis] for axis in axes) == reference.shape:
            id = "view.batch_first" if batch_first(theirs) else "view.time_first"
            return View(message(id, type=theirs.type), axes=axes)
    return None


def _agree(reference: Entry, candidate: Entry) -> bool:
    """Whether the values agree as they stand: of equal axes no shape tells which is which."""
    if reference.shape != candidate.shape or not "full" == reference.detail == candidate.detail:
        return False
    return relative(reference.array(), candidate.array()) <= SAME


def row_view(reference: Entry, candidate: Entry, ours: ModuleInfo | None, theirs: ModuleInfo | None) -> View | None:
    """The view of what a layer that works row by row takes or gives, when only one order of axes has the shape.

    One author keeps time first around it and the other batch first.
    """
    rank = len(reference.shape)
    if ours is None or theirs is None or ours.kind != theirs.kind or not row_by_row(ours) or rank > _MOST_ROW_AXES:
        return None
    orders = [(*axes, rank - 1) for axes in permutations(range(rank - 1))] if len(candidate.shape) == rank else []
    fitting = [axes for axes in orders if tuple(candidate.shape[axis] for axis in axes) == reference.shape]
    if len(fitting) != 1 or fitting[0] == tuple(range(rank)):
        return None
    return View(message("view.rows", type=theirs.type), axes=fitting[0])


def time_and_batch_exchanged(ours: ModuleInfo, theirs: ModuleInfo) -> bool:
    """Whether one of two recurrent or attention layers has time first and the other batch first."""
    return is_sequence(ours) and batch_first(ours) != batch_first(theirs)


def sketched_view(view: TensorView, parts: Sequence[Entry], reference: Entry) -> Entry:
    """The candidate's entries, at least one of them without values, as one entry in the reference's layout."""
    summary = _summary(view, parts)
    meta = {**parts[0].meta, "summary": summary}
    meta.pop("sketch", None)
    if any(part.detail == "summary" for part in parts) or summary is None:
        meta = {name: value for name, value in meta.items() if value is not None}
        return replace(parts[0], shape=reference.shape, hash="", detail="summary", meta=meta)
    first = stored_sketch(next(part for part in parts if part.detail == "sketch"))
    # Where NaN stand is hashed for whole tensors; of parts it cannot be known.
    places = "of parts" if summary["nan"] or summary["inf"] else ""
    form = SketchOrder(view.joined.axes, view.joined.parts)
    meta["sketch"] = Sketch(first.values, summary, form, first.made, places).facts()

    def read() -> Array:
        return np.stack([_row(piece, parts[piece.tensor], first.made) for piece in view.pieces])

    return replace(parts[0], shape=reference.shape, read=read, hash="", detail="sketch", meta=meta)


def _row(piece: Piece, entry: Entry, made: Sketching) -> Array:
    """The sketch of one canonical part."""
    form = SketchOrder(piece.transform.axes, piece.transform.parts)
    sketch = sketch_of(entry.array(), form=form, made=made) if entry.detail == "full" else stored_sketch(entry)
    if sketch.form != form or sketch.made != made:
        raise RecordingError(
            f"{str(entry.key)!r} was sketched in another order of elements, or with another size or seed, than its "
            "layer type calls for; record it with detail='full' to compare it"
        )
    row: Array = sketch.values[piece.part]
    return row


def _summary(view: TensorView, parts: Sequence[Entry]) -> Summary | None:
    """The statistics of what the view takes from the parts; None when they do not tell."""
    known = [summarise(part.array()) if part.detail == "full" else part.meta.get("summary") for part in parts]
    found = [one for one in known if one is not None]
    if len(found) < len(parts):
        return None
    taken = {(piece.tensor, piece.part) for piece in view.pieces}
    wanted = sum({piece.tensor: piece.transform.parts for piece in view.pieces}.values())
    if len(taken) == wanted and len({part.shape for part in parts}) == 1:
        return joined(found)
    if any(one["nan"] or one["inf"] for one in found):
        return None
    # One of several matrices in a tensor: nothing but the absence of NaN is known of it alone.
    return {**dict.fromkeys(STATISTICS, math.nan), "nan": 0, "inf": 0}


def arrangement(ours: Array, theirs: Array, *, near: float = 0.0) -> Message | None:
    """How the candidate's holds the same numbers in another order, up to a difference of `near`; None when unknown."""

    def same(one: Array, other: Array) -> bool:
        return bool(np.allclose(one, other, rtol=0, atol=near, equal_nan=True))

    if ours.size != theirs.size or not ours.size:
        return None
    if ours.shape == theirs.shape:
        if same(ours, theirs):
            return None
        for axis in range(ours.ndim):
            if same(np.flip(ours, axis), theirs):
                return message("word.arrangement.reversed", axis=axis)
        for axis in range(ours.ndim):
            moved = _moved(ours, theirs, axis, same)
            if moved is not None:
                return moved
    if 2 <= ours.ndim <= _MOST_TURNED_AXES:
        for order in permutations(range(ours.ndim)):
            turned = ours.transpose(order)
            if order != tuple(range(ours.ndim)) and turned.shape == theirs.shape and same(turned, theirs):
                return message("word.arrangement.transposed", axes=", ".join(map(str, order)))
            if turned.shape != theirs.shape and same(turned.reshape(theirs.shape), theirs):
                return message("word.arrangement.reshaped", axes=", ".join(map(str, order)))
    return _permuted(ours, theirs, same) if ours.shape == theirs.shape else None


def _moved(ours: Array, theirs: Array, axis: int, same: Callable[[Array, Array], bool]) -> Message | None:
    size = ours.shape[axis]
    for by in range(1, min(size, _MOST_SHIFTS)):
        if not same(np.roll(ours, by, axis), theirs):
            continue
        left, right = min(by, size - by), by <= size - by
        # What comes in at the one end went out at the other: filling, when it is all one value.
        came = np.take(theirs, range(left) if right else range(size - left, size), axis)
        if same(came, np.broadcast_to(came.flat[0], came.shape)):
            id = "word.arrangement.right" if right else "word.arrangement.left"
            return message(id, by=left, axis=axis)
        return message("word.arrangement.turned", by=by, axis=axis)
    return None


def _permuted(ours: Array, theirs: Array, same: Callable[[Array, Array], bool]) -> Message | None:
    for axis in range(ours.ndim):
        if ours.shape[axis] > 1:
            left, right = (np.moveaxis(one, axis, 0).reshape(ours.shape[axis], -1) for one in (ours, theirs))
            orders = [np.lexsort(one.T[::-1]) for one in (left, right)]
            if left.shape[1] > 1 and same(left[orders[0]], right[orders[1]]):
                return message("word.arrangement.permuted", axis=axis)
    return None
