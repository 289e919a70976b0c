"""Entries of paired layers and parameters, in a layout that can be compared; never by shape guessing alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from reprod_log.layers.arrangement import batch_first, channels_last, is_sequence, is_sequence_role, row_by_row
from reprod_log.layers.layouts import TensorView
from reprod_log.pairing.pairing import View
from reprod_log.pairing.sketches import sketched_view
from reprod_log.pairing.values import SAME
from reprod_log.pairing.weight_map import UnitPair, make_plan
from reprod_log.recording import Array, Entry, ModuleInfo

_MOST_AXES = 5


def tensor_views(units: Sequence[UnitPair], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, TensorView]:
    """For each tensor of the reference the view of candidate tensors that equals it; `shapes` are the reference's."""
    # A plan fills its target from its source; here the reference is to be filled from the candidate.
    swapped = [UnitPair(pair.target, pair.source, pair.how) for pair in units]
    return {move.target: move.view for move in make_plan(swapped, shapes).moves}


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
        if tuple(candidate.shape[axis] for axis in axes) == reference.shape:
            return View(f"{theirs.type} keeps channels {'last' if right else 'first'}", axes=axes)
    # Only the sequence itself: states and weights that come beside it have no time axis.
    if rank == 3 and is_sequence_role(ours, reference.key.role) and time_and_batch_exchanged(ours, theirs):
        axes = (1, 0, 2)
        if tuple(candidate.shape[axis] for axis in axes) == reference.shape:
            return View(f"{theirs.type} has {'batch' if batch_first(theirs) else 'time'} first", axes=axes)
    return None


def row_view(reference: Entry, candidate: Entry, ours: ModuleInfo | None, theirs: ModuleInfo | None) -> View | None:
    """The view of what a layer that works row by row takes or gives, when its rows come along other axes.

    One author keeps time first around it and the other batch first. Where several orders of axes have the right shape,
    the one whose values agree is taken.
    """
    if ours is None or theirs is None or ours.kind != theirs.kind or not row_by_row(ours):
        return None
    rank = len(reference.shape)
    if rank < 3 or rank > _MOST_AXES or sorted(reference.shape) != sorted(candidate.shape):
        return None
    orders = [(*axes, rank - 1) for axes in permutations(range(rank - 1))]
    fitting = [axes for axes in orders if tuple(candidate.shape[axis] for axis in axes) == reference.shape]
    if len(fitting) > 1 and "full" == reference.detail == candidate.detail:
        fitting = [axes for axes in fitting if _agree(reference, candidate, axes)]
    if len(fitting) != 1 or fitting[0] == tuple(range(rank)):
        return None
    return View(f"{theirs.type} works row by row, and the rows come along other axes", axes=fitting[0])


def _agree(reference: Entry, candidate: Entry, axes: tuple[int, ...]) -> bool:
    one, other = (entry.array().astype(np.float64) for entry in (reference, candidate))
    return bool(np.linalg.norm(one - other.transpose(axes)) <= SAME * np.linalg.norm(one))


def time_and_batch_exchanged(ours: ModuleInfo, theirs: ModuleInfo) -> bool:
    """Whether one of two recurrent or attention layers has time first and the other batch first."""
    return is_sequence(ours) and batch_first(ours) != batch_first(theirs)
