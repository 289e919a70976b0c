"""Values as proof: what order and shape leave open is settled by the numbers themselves.

Three projections of one input run in any order and have one shape; a position embedding has no layer at all. When the
two sides were given the same weights, only one pairing makes their numbers agree.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from reprod_log.pairing.structure import lone_bare_units
from reprod_log.pairing.unit import Unit
from reprod_log.pairing.weight_map import UnitPair
from reprod_log.pairing.wording import attention_role
from reprod_log.recording import Array, Entry, Recording
from reprod_log.recording.sketch import sketch_of, stored_sketch

ANOTHER = 0.05
"""Relative difference from which on two tensors are not the same thing with rounding or a defect in it."""
SAME = 1e-3
"""Relative difference up to which they hold the same; rounding through a whole float32 model stays below."""
_MOST_SIBLINGS = 6


def settle_siblings(pairs: Sequence[UnitPair], reference: Recording, candidate: Recording) -> list[UnitPair]:
    """The pairs with those re-paired that run on one and the same input, by role or by the values they give."""
    ours, theirs = first_outputs(reference), first_outputs(candidate)
    settled = list(pairs)
    for group in _siblings(pairs, reference):
        sources, targets = [pairs[i].source for i in group], [pairs[i].target for i in group]
        chosen = _by_role(sources, targets) or _by_outputs(sources, targets, ours, theirs)
        if chosen is not None:
            for place, (target, how) in zip(group, chosen, strict=True):
                settled[place] = replace(pairs[place], target=target, how=how)
    return settled


def lone_tensors(
    sources: Iterable[Unit], targets: Iterable[Unit], reference: Recording, candidate: Recording
) -> list[UnitPair]:
    """Tensors outside of layers that are alone of their shape on either side and whose values agree."""
    ours, theirs = first_parameters(reference), first_parameters(candidate)
    found = []
    for pair in lone_bare_units(sources, targets):
        one, other = ours.get(pair.source.path), theirs.get(pair.target.path)
        if one is not None and other is not None and distance(one, other) < ANOTHER:
            found.append(replace(pair, how="values"))
    return found


def _siblings(pairs: Sequence[UnitPair], reference: Recording) -> list[list[int]]:
    """Places of pairs, not settled by name, whose reference layers share signature and input."""
    inputs = {
        entry.key.path: entry.hash
        for entry in reversed(reference.entries)
        if entry.key.phase == "forward" and entry.key.role.startswith("input") and entry.hash and not entry.key.run
    }
    groups: defaultdict[tuple[object, str], list[int]] = defaultdict(list)
    for place, pair in enumerate(pairs):
        given = inputs.get(pair.source.owner, "")
        if given and not pair.settled:
            groups[pair.source.signature, given].append(place)
    return [group for group in groups.values() if 1 < len(group) <= _MOST_SIBLINGS]


def _by_role(sources: list[Unit], targets: list[Unit]) -> list[tuple[Unit, str]] | None:
    roles = {attention_role(unit.path): unit for unit in targets}
    wanted = [attention_role(unit.path) for unit in sources]
    if None in wanted or len(set(wanted)) < len(wanted) or set(wanted) != set(roles):
        return None
    return [(roles[role], "role") for role in wanted]


def _by_outputs(
    sources: list[Unit], targets: list[Unit], ours: Mapping[str, Entry], theirs: Mapping[str, Entry]
) -> list[tuple[Unit, str]] | None:
    """The one arrangement under which every output agrees; None when there is none or more than one."""
    left = [ours.get(unit.owner) for unit in sources]
    right = [theirs.get(unit.owner) for unit in targets]
    if any(entry is None or entry.detail == "summary" for entry in (*left, *right)):
        return None
    table = [[distance(one, other) for other in right if other] for one in left if one]
    fitting = [
        order
        for order in permutations(range(len(targets)))
        if all(table[row][column] < ANOTHER for row, column in enumerate(order))
    ]
    return [(targets[column], "values") for column in fitting[0]] if len(fitting) == 1 else None


def gap(first: Entry, second: Entry) -> float:
    """The relative difference of two entries; NaN, which is neither small nor large, where none of their values are."""
    if first.shape != second.shape:
        return math.inf
    if first.hash and first.hash == second.hash:
        return 0.0
    return math.nan if "summary" in (first.detail, second.detail) else distance(first, second)


def distance(first: Entry, second: Entry) -> float:
    """The relative difference of two floating entries of one shape whose values, or sketches, are there."""
    if first.shape != second.shape or not first.dtype.startswith(("float", "bfloat", "complex")):
        return math.inf
    one, other = _values(first, second), _values(second, first)
    if one.shape != other.shape:
        return math.inf
    left, right = one.reshape(-1), other.reshape(-1)
    size = float(np.linalg.norm(left))
    return float(np.linalg.norm(left - right)) / size if size else math.inf


def _values(entry: Entry, other: Entry) -> Array:
    """The values in float64, or their sketch where one of the two has nothing else: it keeps distances well enough."""
    if entry.detail == "sketch":
        return entry.read()
    array = entry.array()
    if other.detail == "sketch":
        like = stored_sketch(other)
        return sketch_of(array, form=like.form, made=like.made).values
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def first_outputs(recording: Recording) -> dict[str, Entry]:
    """What every module first gave, by path."""
    found: dict[str, Entry] = {}
    for entry in recording.entries:
        if entry.key.phase == "forward" and entry.key.role.startswith("output") and not entry.key.run:
            found.setdefault(entry.key.path, entry)
    return found


def first_parameters(recording: Recording) -> dict[str, Entry]:
    """Every parameter after the first step, by path."""
    found: dict[str, Entry] = {}
    for entry in recording.entries:
        if entry.key.phase == "parameter" and entry.detail != "summary" and not entry.key.run:
            found.setdefault(entry.key.path, entry)
    return found


def relative(ours: Array, theirs: Array) -> float:
    """‖theirs - ours‖ / ‖ours‖; inf when ours is zero and theirs is not."""
    size = float(np.linalg.norm(ours))
    error = float(np.linalg.norm(theirs - ours))
    return error / size if size else (0.0 if error == 0 else float("inf"))


def factor(ours: Array, theirs: Array, *, within: float = 1e-4) -> float | None:
    """The one number that makes theirs out of ours; None when there is none."""
    size = float(np.vdot(ours, ours))
    if not size or not np.isfinite(ours).all() or not np.isfinite(theirs).all():
        return None
    ratio = float(np.vdot(ours, theirs)) / size
    left = float(np.linalg.norm(theirs - ratio * ours))
    return ratio if ratio and left <= within * abs(ratio) * size**0.5 else None
