"""Layers that run in another order on the two sides, told apart by what they compute and by their weights.

The order of execution pairs the layers of two branches wrongly when one author computes the other branch first. What a
layer gives, or the weights that were carried into it, say which it is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from reprod_log.pairing.tensors import tensor_views
from reprod_log.pairing.unit import BARE, PIECE, Signature, Unit
from reprod_log.pairing.values import ANOTHER, SAME, first_outputs, first_parameters, gap
from reprod_log.pairing.weight_map import UnitPair
from reprod_log.recording import Entry, Recording

_MOST = 64
"""Layers of one shape that are tried against each other."""


def exchange_branches(pairs: Sequence[UnitPair], reference: Recording, candidate: Recording) -> list[UnitPair]:
    """The pairs, with partners exchanged among layers of one shape where that makes them agree."""
    settled = list(pairs)
    ours, theirs = first_outputs(reference), first_outputs(candidate)
    weights = _Weights(reference, candidate)

    def outputs_differ(one: Unit, other: Unit) -> float:
        here, there = ours.get(one.owner), theirs.get(other.owner)
        return math.nan if here is None or there is None else gap(here, there)

    for differ, limit in ((outputs_differ, SAME), (weights.differ, ANOTHER)):
        for group in _groups(settled):
            _exchange(settled, group, differ, limit)
    return settled


def _groups(pairs: Sequence[UnitPair]) -> list[list[int]]:
    groups: defaultdict[Signature, list[int]] = defaultdict(list)
    for place, pair in enumerate(pairs):
        if (
            not pair.settled
            and pair.source.kind != BARE
            and PIECE not in (pair.source.class_name, pair.target.class_name)
        ):
            groups[pair.source.signature].append(place)
    return [group for group in groups.values() if len(group) > 1]


def _exchange(pairs: list[UnitPair], group: list[int], differ: Callable[[Unit, Unit], float], limit: float) -> None:
    doubtful = [i for i in group if differ(pairs[i].source, pairs[i].target) > ANOTHER]
    if not 1 < len(doubtful) <= _MOST:
        return
    targets = [pairs[i].target for i in group]
    chosen: dict[int, Unit] = {}
    for i in doubtful:
        fitting = [one for one in targets if differ(pairs[i].source, one) < limit]
        if len(fitting) == 1:
            chosen[i] = fitting[0]
    # Those that found their partner change places among themselves only, so that nobody is left without one.
    taken = [pairs[i].target.path for i in chosen]
    if len({one.path for one in chosen.values()}) == len(chosen) and {one.path for one in chosen.values()} == set(
        taken
    ):
        for i, target in chosen.items():
            pairs[i] = replace(pairs[i], target=target, how="values")


class _Weights:
    """How far apart the weights of two layers are after the first step, each in the reference's layout."""

    def __init__(self, reference: Recording, candidate: Recording) -> None:
        self._ours, self._theirs = first_parameters(reference), first_parameters(candidate)

    def differ(self, one: Unit, other: Unit) -> float:
        tensor = one.tensors[0]
        mine = self._ours.get(tensor)
        if mine is None or mine.detail != "full":
            return math.nan
        view = tensor_views([UnitPair(one, other, "values")], dict.fromkeys(one.tensors, mine.shape)).get(tensor)
        parts = [] if view is None else [self._theirs.get(name) for name in view.candidate]
        known: list[Entry] = [part for part in parts if part is not None and part.detail == "full"]
        if view is None or len(known) < len(parts):
            return math.nan
        here = mine.array().astype(np.float64)
        there = view.apply([part.array() for part in known], shape=mine.shape).astype(np.float64)
        return float(np.linalg.norm(here - there) / (np.linalg.norm(here) or 1.0))
