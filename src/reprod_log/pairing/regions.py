"""Regions between what both programs have: where they agree from anchor to anchor, what happens is formulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

from reprod_log.frameworks.module_tree import join
from reprod_log.pairing.places import (
    Call,
    Hints,
    Place,
    ValuePairs,
    first_steps,
    is_telling,
    kinds_of_modules,
    place_of,
    roots_of,
    same_as_they_run,
)
from reprod_log.pairing.rename import fronts, is_front
from reprod_log.recording import OF_MODULES, OF_TENSORS, Entry, Key, Recording

_Part = TypeVar("_Part")


@dataclass(frozen=True)
class Regions:
    """Which calls of one side lie in a region that agrees from anchor to anchor: what happens there is formulation."""

    whole: bool
    """Whether the whole program agrees."""
    calls: frozenset[Call]
    own: frozenset[Place]
    """What only this side has."""
    unlike: frozenset[str]
    """Modules that are called more or less often than their partners."""
    wrong: frozenset[Call]
    """Calls that nothing heals."""
    alike: frozenset[str]
    """Modules that take and give the same on both sides, and can be compared alone."""
    names: Mapping[str, str]
    """This side's module for each of the reference's: regions are named after the latter on both sides."""

    @classmethod
    def of(
        cls, reference: Recording, candidate: Recording, found: ValuePairs, hints: Hints, *, agrees: bool
    ) -> tuple[Regions, Regions]:
        ours, theirs, _ = first_steps(reference.entries, candidate.entries)
        # Calls of a layer that is called more often on one side have no partners; what becomes of them is compared.
        counts, counts_there = (Counter(_calls(side)) for side in (ours, theirs))
        unlike = {
            (own, other)
            for own, other in {(own[0], other[0]) for own, other in hints.places.items()}
            if counts[own] != counts_there[other] and "" in counts and "" in counts_there
        }
        # A layer that is given the same as its like and gives something else of that size is wrong, whatever becomes of
        # it; another size may be cut off behind it.
        kinds, kinds_there = kinds_of_modules(reference), kinds_of_modules(candidate)
        sizes, sizes_there = _sizes(ours), _sizes(theirs)
        given = [
            (own[:2], other[:2])
            for own, (other, _) in found.places.items()
            if own[2].startswith("input")
            and kinds.get(own[0], "") == kinds_there.get(other[0], None) != ""
            and sizes.get(own[:2]) == sizes_there.get(other[:2])
        ]
        # Without a gradient nothing shows whether a result depends on a layer at all: what its namesake gives counts.
        mute, mute_there = _without_gradient(reference), _without_gradient(candidate)
        given += [
            (own[:2], other[:2])
            for own, other in hints.places.items()
            if own[0] in mute and other[0] in mute_there and sizes.get(own[:2]) == sizes_there.get(other[:2])
        ]
        unlike = {(own, other) for own, other in unlike if own not in mute and other not in mute_there}
        anchored = [(own, other) for own, (other, _) in found.places.items()]
        here, there = _of_side(anchored, 0), _of_side(anchored, 1)
        # What belongs to one side's code alone is alone in every pass: what is the same as both sides run is on both.
        same = same_as_they_run(reference, candidate, hints)
        known = [(one, two) for one, two in same if one not in here and two not in there]
        alike = [*found.viewed.items(), *((root, root) for root in roots_of(reference) & roots_of(candidate))]
        names = {own[0]: other[0] for own, other in hints.places.items()} | dict(found.viewed)

        def side(place: int, entries: Sequence[Entry]) -> Regions:
            anchors, wrong = _of_side(anchored, place), _of_side(given, place)
            outputs = filter(_is_output, entries)
            telling = {place_of(one.key)[:2] for one in outputs if place_of(one.key) in anchors and is_telling(one)}
            return cls(
                agrees,
                _healed(entries, anchors, wrong),
                frozenset(place_of(one.key) for one in entries) - anchors - _of_side(known, place),
                _of_side(unlike, place),
                wrong - telling,
                _of_side(alike, place),
                names if place else {},
            )

        return side(0, ours), side(1, theirs)

    def has(self, key: Key) -> bool:
        """Whether an entry is formulation; a tensor that both sides have needs its gradient on both."""
        if key.run.startswith("isolated"):
            module = key.path
            if key.phase in OF_TENSORS:
                if key.region is None:
                    return False
                module = self.names.get(key.region, key.region)
            return module not in self.alike and self._heals((module, 0))
        if key.phase not in OF_MODULES or (key.path, key.call, key.role.partition("~")[0]) not in self.own:
            return False
        return key.path in self.unlike or self._heals((key.path, key.call))

    def _heals(self, call: Call) -> bool:
        return call not in self.wrong and (self.whole or call in self.calls)


def _of_side(pairs: Iterable[tuple[_Part, _Part]], place: int) -> frozenset[_Part]:
    return frozenset(pair[place] for pair in pairs)


def _without_gradient(recording: Recording) -> frozenset[str]:
    """Modules with weights of which none has a gradient in a run of the whole program."""
    moved = {
        entry.key.path
        for entry in recording.entries
        if entry.key.phase == "gradient"
        and (not entry.key.run.startswith("isolated") or entry.key.layer_alone == "")
        and not entry.is_zero()
    }
    return frozenset(
        module.path
        for module in recording.modules
        if module.path and module.parameters and not any(join(module.path, name) in moved for name in module.parameters)
    )


def _is_output(entry: Entry) -> bool:
    return entry.key.role.startswith("output")


def _sizes(entries: Iterable[Entry]) -> dict[Call, list[int]]:
    """The sizes of what each call gave."""
    found: dict[Call, list[int]] = {}
    for entry in filter(_is_output, entries):
        found.setdefault((entry.key.path, entry.key.call), []).append(prod(entry.shape))
    return found


def _calls(entries: Iterable[Entry]) -> Iterator[str]:
    """The module of each call."""
    made = dict.fromkeys((one.key.path, one.key.call) for one in entries if _is_output(one))
    return (path for path, _ in made)


def _lies_in(path: str, around: str) -> bool:
    return path != around and is_front(around, path)


def _healed(entries: Sequence[Entry], anchored: Collection[Place], wrong: Collection[Call]) -> frozenset[Call]:
    """The calls with an output that both sides have, or all of whose takers, or a module around it, have one."""
    outputs: dict[Call, list[Entry]] = {}
    takers: dict[Call, set[Call]] = {}
    for entry in entries:
        key = entry.key
        if key.role.startswith("output"):
            outputs.setdefault((key.path, key.call), []).append(entry)
        elif "from" in entry.meta:
            maker = Key.parse(entry.meta["from"])
            takers.setdefault((maker.path, maker.call), set()).add((key.path, key.call))
    healed: set[Call] = set()
    whole: set[str] = set()
    # Whoever takes a tensor, or runs around the module that makes it, ends later.
    for call, given in reversed(outputs.items()):
        there = [place_of(one.key) in anchored and is_telling(one) for one in given]
        if all(there):
            whole.add(call[0])
        users = takers.get(call, set()) - {call}
        # A module that hands it on to one inside of it does nothing with it itself.
        users = {one for one in users if not any(_lies_in(other[0], one[0]) for other in users)}
        around = [front for front in fronts(call[0]) if front != call[0]]
        if any(there) or (
            call not in wrong
            and (all(user in healed for user in users) if users else any(one in whole for one in around))
        ):
            healed.add(call)
    return frozenset(healed)
