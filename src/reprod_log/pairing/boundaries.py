"""Blocks that two authors cut in different places: one adds the residual inside, the other outside.

Two blocks that hold the same layers need not take and give the same tensors. When what a block gives is not what its
partner gives, and yet the layers that come next are given the same on both sides, then nothing is wrong: the blocks
begin or end elsewhere, and the layers inside and after them say all there is to say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from reprod_log.pairing.values import ANOTHER, SAME, gap
from reprod_log.recording import Entry, Recording

_FRAMEWORKS = ("torch", "paddle")


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
        {one.path: one.type for one in side.modules if one.origin.partition(".")[0] not in _FRAMEWORKS}
        for side in (reference, candidate)
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
        {one.path: one.type.lower() for one in side.modules if one.origin.partition(".")[0] in _FRAMEWORKS}
        for side in (reference, candidate)
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
    left, right = (np.sort(entry.array().astype(np.float64), axis=None) for entry in (one, other))
    return left.size == right.size > 0 and bool(np.linalg.norm(left - right) <= SAME * np.linalg.norm(left))
