"""Entries whose values were not recorded, brought into the other side's layout as far as a sketch allows it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from reprod_log.errors import RecordingError
from reprod_log.layers.layouts import Piece, TensorView
from reprod_log.recording import Array, Entry
from reprod_log.recording.sketch import Sketch, Sketching, SketchOrder, sketch_of, stored_sketch
from reprod_log.recording.summary import STATISTICS, Summary, joined, summarise


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
