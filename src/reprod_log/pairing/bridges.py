"""Bridges: where the candidate computes other tensors it is given the reference's, and the search goes on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from reprod_log.layers.transform import Shape
from reprod_log.pairing.anchors import is_informative, seen, views
from reprod_log.pairing.links import Link, same_form

if TYPE_CHECKING:
    from reprod_log.pairing.search import Search

_EFFORT = 37_500_000
"""What may be replayed behind the first one, in elements: a quarter of what the search of a small model may take."""
_BRIDGES, _WAYS, _EVENTS = 3, 4, 4
"""How many mistakes are bridged, how many ways are tried for each, and how many events one may stretch over."""


@dataclass
class _Bridge:
    """A place where the candidate is given tensors of the reference, because it computes others there."""

    start: int
    trail: int
    ways: Iterator[int]
    """Each builds the bridge in another way, and is the place behind it."""
    behind: int | None = None
    structure: frozenset[str] = frozenset()
    """What was decided by structure before it."""


class Bridges:
    """The bridges of a search; true when there is one."""

    def __init__(self, search: Search) -> None:
        self.search, self.ours, self.theirs = search, search.ours, search.theirs
        self.built: list[_Bridge] = []

    def __bool__(self) -> bool:
        return bool(self.built)

    def build(self) -> bool:
        """Whether the search goes on behind a mistake, with tensors of the reference in place of the wrong ones.

        What is found behind it then is proven by values again, and the mistake is known to lie in front of it.
        """
        bridge = self.built[-1] if self.built else None
        if bridge is None or (bridge.behind is not None and self.search.start > bridge.behind):
            if len(self.built) == _BRIDGES:
                return False
            start = self._furthest()
            bridge = _Bridge(
                start, len(self.search.trail), self._ways(start), structure=frozenset(self.search.by_structure)
            )
            self.built.append(bridge)
        self.search.rewind(bridge.trail)
        self.search.by_structure = set(bridge.structure)
        for behind in bridge.ways:
            bridge.behind = behind
            self.search.restart(behind)
            if len(self.built) == 1:
                self.search.most_effort = self.search.effort + _EFFORT
            return True
        self.built.pop()
        self.search.start, self.search.start_trail = bridge.start, bridge.trail
        return False

    def uncertain(self) -> set[str]:
        """Weights of loops with a use that leads to no tensor of the reference before another weight comes.

        The first use may meet a state of zeros, with which any weight fits. What was given by a bridge proves nothing.
        """
        given = {what[0] for kind, what in self.search.trail if kind == "given"}
        uses: dict[str, list[int]] = {}
        for place in filter(self.theirs.uses_data, range(len(self.theirs.program.kernels))):
            for name in self.theirs.bits(self.theirs.weights_into(place)):
                uses.setdefault(name, []).append(place)
        return {
            name
            for name, places in uses.items()
            if name in self.search.links
            and len(places) > 1
            and not all(self._leads_to_anchor(place, given) for place in places)
        }

    def _leads_to_anchor(self, place: int, given: Collection[int]) -> bool:
        queue, seen = list(self.theirs.program.kernels[place].outputs), set[int]()
        while queue:
            number = queue.pop()
            if number in self.search.anchors and number not in given:
                return True
            if number not in seen and number not in given:
                seen.add(number)
                users = self.theirs.users.get(number, ())
                plain = (user for user in users if not self.theirs.weights_into(user))
                queue.extend(one for user in plain for one in self.theirs.program.kernels[user].outputs)
        return False

    def _ways(self, start: int) -> Iterator[int]:
        """The mistake lies before the event, if what that uses is no anchor, or in what the event's weights do."""
        trail, structure = len(self.search.trail), set(self.search.by_structure)
        for rank in range(_WAYS):
            if self._give(start, rank):
                yield start
            self.search.rewind(trail)
        if start >= len(self.theirs.program.kernels):
            return
        for option in self.search.options.by_structure(start)[:_WAYS]:
            place, taken = start, option
            for _ in range(_EVENTS):
                for link in taken:
                    self.search.assign(link, 1 << self.theirs.names.index(link.target))
                    self.search.by_structure.add(link.target)
                place = self.search.to_event(place)
                before = len(self.search.trail)
                if self._give(place, 0):
                    yield place
                    break
                self.search.rewind(before)
                # What this event makes has no counterpart by itself: the mistake ends further on.
                following = self.search.options.by_structure(place) if place < len(self.theirs.program.kernels) else []
                if not following:
                    break
                taken = following[0]
            self.search.rewind(trail)
            self.search.by_structure = set(structure)

    def _furthest(self) -> int:
        """Take again what led furthest in this segment, as long as it leads to anchors; the place behind it."""
        links, place = self.search.best[1], self.search.start
        kept = (len(self.search.trail), place)
        reached = len(self.search.reached)
        taken: list[tuple[Link, frozenset[int]]] = []
        while place < len(self.theirs.program.kernels):
            names = list(self.theirs.bits(self.search.unassigned(place)))
            if any(name not in links for name in names):
                break
            roots = frozenset(self.search.roots(place))
            taken += [(links[name], roots) for name in names]
            for name in names:
                self.search.assign(links[name], 1 << self.theirs.names.index(name))
            place = self.search.to_event(place)
            if len(self.search.reached) > reached:
                kept, reached = (len(self.search.trail), place), len(self.search.reached)
        self.search.rewind(kept[0])
        # Two weights on one tensor give each other's tensors as well: what tells them apart lay behind the mistake.
        for (one, roots), (other, others) in combinations(taken, 2):
            twins = roots & others and same_form((one,), (replace(other, target=one.target),))
            kept_both = {one.target, other.target} <= self.search.links.keys()
            if twins and kept_both and self._names_cross(one, other):
                self.search.by_structure |= {one.target, other.target}
        return kept[1]

    def _names_cross(self, one: Link, other: Link) -> bool:
        likeness = self.search.likeness
        straight = likeness(one) + likeness(other)
        crossed = likeness(replace(one, target=other.target)) + likeness(replace(other, target=one.target))
        return crossed >= straight

    def _give(self, place: int, rank: int) -> bool:
        """Whether every tensor that is used from here on and is no anchor was replaced by one of the reference's."""
        arrays = {n: a for n, a in enumerate(self.theirs.program.arrays) if n in self.theirs.maker}
        arrays |= {n: self.theirs.program.array(tensor) for n, tensor in self.search.tensors.items()}
        lost = [
            number
            for number, array in arrays.items()
            if self.theirs.data[number]
            and (number in self.search.tensors or not self.theirs.behind[number])
            and self.theirs.maker.get(number, place) < place <= self.theirs.last_use.get(number, -1)
            and (number not in self.search.anchors or self._is_wrong_result(number))
            and is_informative(array)
        ]
        taken: set[int] = set()
        for number in sorted(lost):
            found = [one for one in self._counterparts(number) if one not in taken]
            if len(found) <= rank:
                return False
            self._put(number, found[rank])
            taken.add(found[rank])
        return bool(lost)

    def _is_wrong_result(self, number: int) -> bool:
        results = self.theirs.program.results.items()
        return any(one == number and not self.search.result_fits(role, number) for role, one in results)

    def _counterparts(self, number: int) -> list[int]:
        """Tensors of the reference that may stand where the candidate has this one, the likeliest first."""
        shape = self.theirs.program.arrays[number].shape
        for role, result in self.theirs.program.results.items():
            if result == number and role in self.search.roles:
                partner = self.ours.program.results[self.search.roles[role]]
                return [partner] if self.ours.program.arrays[partner].size == prod(shape) else []
        links = self.search.links
        linked = (links[name] for name in self.theirs.bits(self.theirs.behind[number]) if name in links)
        names = {name for link in linked for name in link.sources}
        bits = sum(1 << bit for bit, name in enumerate(self.ours.names) if name in names)
        ranked = []
        for one, array in enumerate(self.ours.program.arrays):
            if array.size != prod(shape) or array.dtype.kind != "f" or not self.ours.data[one]:
                continue
            if one in self.ours.last_use and one not in self.search.reached and is_informative(array):
                users = self.ours.users.get(one, ())
                weights = (name for at in users for name in self.ours.bits(self.ours.weights_into(at)))
                free = not all(map(self.search.is_used, weights))
                apart = (self.ours.behind[one] ^ bits).bit_count()
                ranked.append((apart, _form_apart(array.shape, shape), not free, -one, one))
        return [one for *_, one in sorted(ranked)]

    def _put(self, number: int, partner: int) -> None:
        """Let the candidate go on with a tensor of the reference."""
        array, shape = self.ours.program.arrays[partner], self.theirs.program.arrays[number].shape
        turned = seen(array, next(views(array.shape, shape)), shape)
        self.search.trail.append(("given", (number, self.search.tensors.get(number))))
        self.search.tensors[number] = self.theirs.program.tensor(np.array(turned))
        self.search.anchor(number, self.theirs.program.array(self.search.tensors[number]))


def _form_apart(one: Shape, other: Shape) -> int:
    """0: the same axes; 1: the same in another order; 2: others."""
    first, second = ([n for n in shape if n > 1] for shape in (one, other))
    return 0 if first == second else 1 if sorted(first) == sorted(second) else 2
