"""Regions that two authors cut or call in different ways: other ends of a block, another order or number of calls."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from reprod_log.layers.lookup import is_framework_s
from reprod_log.pairing.distance import ANOTHER, SAME, gap, relative
from reprod_log.recording import Array, Entry, Recording

_MOST_PAIRS_OF_ROWS = 4_000_000
_DIRECTIONS = 8


@dataclass(frozen=True)
class _FirstCalls:
    """What every module was given and gave at its first call, in the order of the run."""

    inputs: Mapping[str, list[Entry]]
    outputs: Mapping[str, list[Entry]]
    places: Mapping[str, int]
    """Where in the run a module's first output stands."""


def cut_elsewhere(
    reference: Recording,
    candidate: Recording,
    blocks: Mapping[str, str],
    known: Mapping[str, str],
    layers: Collection[str] = (),
) -> frozenset[str]:
    """The reference's paths of blocks (path to partner) that are not the same piece of the model as their partners.

    `known` are the layers that have partners for sure and are called alike on both sides; `layers` those of the blocks
    that are known layers themselves, called on something else.
    """
    ours, theirs = _first_calls(reference), _first_calls(candidate)
    pairs = {path: partner for path, partner in known.items() if path in ours.places and partner in theirs.places}
    order = sorted(pairs, key=lambda path: ours.places[path])
    own = _layers_of_one_class(reference, candidate, blocks)
    unlike, shown = set(), set()
    for path, partner in blocks.items():
        here, there = ours.outputs.get(path), theirs.outputs.get(partner)
        if not path or not here or not there or not gap(here[0], there[0]) > ANOTHER:
            continue
        after = list(_after(path, ours, order))
        if not after and not _have_results(ours, theirs):
            # Nothing that is compared lies behind it: what it gives is all there is to say about its end.
            continue
        unlike.add(path)
        # Outputs of other sizes cannot be compared; one that is wrong is wrong for what lies behind as well.
        other_size = path not in layers and sorted(here[0].shape) != sorted(there[0].shape)
        # Yet a layer of the frameworks that was given the same as its like makes another size only if it is wrong.
        other_size = other_size and not ((path, partner) in own and _same(path, partner, ours, theirs))
        if other_size or (
            all(_same(one, pairs[one], ours, theirs) for one in after) if after else _same_result(ours, theirs)
        ):
            shown.add(path)
    return frozenset(shown | _of_the_same_classes(reference, candidate, blocks, shown) & unlike)


def _of_the_same_classes(
    reference: Recording, candidate: Recording, blocks: Mapping[str, str], found: Collection[str]
) -> set[str]:
    """Blocks of two classes of the users' own, of which another pair was shown to be cut elsewhere."""
    here, there = (
        {one.path: one.type for one in side.modules if not is_framework_s(one)} for side in (reference, candidate)
    )
    shown = {(here.get(path), there.get(blocks[path])) for path in found}
    return {
        path
        for path, partner in blocks.items()
        if path and path in here and partner in there and (here[path], there[partner]) in shown
    }


def _layers_of_one_class(
    reference: Recording, candidate: Recording, blocks: Mapping[str, str]
) -> frozenset[tuple[str, str]]:
    """Pairs of blocks that are one layer of the frameworks, which call it alike (MaxPool2d, MaxPool2D)."""
    here, there = (
        {one.path: one.type.lower() for one in side.modules if is_framework_s(one)} for side in (reference, candidate)
    )
    return frozenset(
        (path, partner) for path, partner in blocks.items() if path in here and here[path] == there.get(partner)
    )


def _first_calls(recording: Recording) -> _FirstCalls:
    step = min(recording.steps, default=None)
    inputs: dict[str, list[Entry]] = {}
    outputs: dict[str, list[Entry]] = {}
    places: dict[str, int] = {}
    for place, entry in enumerate(recording.entries):
        key = entry.key
        if key.phase != "forward" or key.run or key.step != step or key.call not in (0, None):
            continue
        (inputs if key.role.startswith("input") else outputs).setdefault(key.path, []).append(entry)
        if not key.role.startswith("input"):
            places.setdefault(key.path, place)
    return _FirstCalls(inputs, outputs, places)


def _after(path: str, calls: _FirstCalls, order: Collection[str]) -> Iterator[str]:
    """The layers that take what the block gave, as far as that was seen; else the next layer that runs."""
    given = {str(entry.key) for entry in calls.outputs[path]}
    takers = [one for one in order if any(entry.meta.get("from") in given for entry in calls.inputs.get(one, ()))]
    if takers:
        yield from takers
        return
    yield from [one for one in order if calls.places[one] > calls.places[path]][:1]


def _same(path: str, partner: str, ours: _FirstCalls, theirs: _FirstCalls) -> bool:
    """Whether a layer and its partner were given the same, or gave the same where inputs were not recorded."""
    for here, there in ((ours.inputs, theirs.inputs), (ours.outputs, theirs.outputs)):
        one, other = here.get(path), there.get(partner)
        if one and other:
            return _agree(one[0], other[0])
    return False


def _have_results(ours: _FirstCalls, theirs: _FirstCalls) -> bool:
    """Whether it was recorded what the models themselves gave."""
    return bool(ours.outputs.get("") and theirs.outputs.get(""))


def _same_result(ours: _FirstCalls, theirs: _FirstCalls) -> bool:
    """Whether the models themselves gave the same: what a block at the end is for."""
    return _have_results(ours, theirs) and _agree(ours.outputs[""][0], theirs.outputs[""][0])


def _agree(one: Entry, other: Entry) -> bool:
    if one.shape == other.shape:
        return bool(one.shape.count(0) == 0 and gap(one, other) < SAME)
    if one.detail != "full" or other.detail != "full":
        return False
    # The layer may keep its channels or its batch in another place.
    left, right = (np.sort(entry.array(), axis=None) for entry in (one, other))
    return left.size > 0 and relative(left, right) <= SAME


@dataclass(frozen=True)
class CallOrder:
    """How the calls of paired modules go together; paths are the reference's."""

    exchanged: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """The candidate's call for each of the reference's, where the order is another one."""
    rearranged: frozenset[str] = frozenset()
    """Layers whose calls hold the same rows, or a part of them, in another number of calls or other shapes."""
    unlike: frozenset[str] = frozenset()
    """Layers called another number of times, or on other shapes, for which that could not be shown."""


def order_calls(reference: Recording, candidate: Recording, modules: Mapping[str, str]) -> CallOrder:
    """The order of calls, judged by what the modules (path to partner) gave in the first step."""
    ours, theirs = _outputs(reference), _outputs(candidate)
    exchanged: dict[str, Mapping[int, int]] = {}
    rearranged: set[str] = set()
    unlike: set[str] = set()
    for path, partner in modules.items():
        here, there = ours.get(path, []), theirs.get(partner, [])
        if not here or not there:
            continue
        if _sizes(here) != _sizes(there):
            (rearranged if _same_rows(here, there) else unlike).add(path)
        elif len(here) > 1 and (order := _order(here, there)) is not None:
            exchanged[path] = order
    return CallOrder(exchanged, frozenset(rearranged), frozenset(unlike))


def _sizes(entries: list[Entry]) -> list[list[int]]:
    """The shapes, whatever the order of axes: layers may keep channels or time in another place."""
    return sorted(sorted(entry.shape) for entry in entries)


def _outputs(recording: Recording) -> dict[str, list[Entry]]:
    """The first output of every call in the first step, by module."""
    step = min(recording.steps, default=None)
    found: dict[str, list[Entry]] = {}
    for entry in recording.entries:
        key = entry.key
        if key.phase == "forward" and not key.run and key.step == step and key.role in ("output", "output.0"):
            found.setdefault(key.path, []).append(entry)
    return found


def _order(ours: list[Entry], theirs: list[Entry]) -> Mapping[int, int] | None:
    """The other order in which all calls agree; None when they agree as they come, or in no order."""
    if any(entry.detail == "summary" for entry in (*ours, *theirs)):
        return None
    if all(gap(one, other) <= ANOTHER for one, other in zip(ours, theirs, strict=True)):
        return None
    left = list(theirs)
    order: dict[int, int] = {}
    for one in ours:
        partner = next((other for other in left if gap(one, other) < SAME), None)
        if partner is None or one.key.call is None or partner.key.call is None:
            return None
        left.remove(partner)
        order[one.key.call] = partner.key.call
    return order


def _same_rows(ours: list[Entry], theirs: list[Entry]) -> bool:
    """Whether the rows (along the last axis) of one side are all found among those of the other."""
    entries = (*ours, *theirs)
    if any(entry.detail != "full" or not entry.shape for entry in entries):
        return False
    if len({entry.shape[-1] for entry in entries}) > 1 or not all(entry.dtype.startswith("float") for entry in entries):
        return False
    few, many = sorted((_directions(ours), _directions(theirs)), key=len)
    if len(few) and len(few) == len(many):
        return relative(np.sort(many, axis=0), np.sort(few, axis=0)) <= SAME
    if not len(few) or len(few) * len(many) > _MOST_PAIRS_OF_ROWS:
        return False
    nearest = np.array([np.min(np.linalg.norm(many - row, axis=1)) for row in few])
    return bool(np.all(nearest <= SAME * np.sqrt(np.mean(np.square(many)))))


def _directions(entries: list[Entry]) -> Array:
    """Every row by its components along a few random directions, which tell rows apart as well as the rows do."""
    width = entries[0].shape[-1]
    towards = np.random.default_rng(0).standard_normal((width, min(width, _DIRECTIONS)))
    return np.concatenate([entry.array().astype(np.float64).reshape(-1, width) @ towards for entry in entries])
