"""Order and structure: units laid side by side in the order of execution or registration, or by what only fits.

Between those whose partners are known already, order decides; with no run to show it, names and numbers that tell units
apart. Shape alone never does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import TypeVar

from reprod_log.pairing.distance import ANOTHER, distance
from reprod_log.pairing.names import affine_role, attention_role, closeness, numbers, plain
from reprod_log.pairing.units import BARE, Signature, Unit, UnitPair, single
from reprod_log.recording import Entry

_LAYER = 100.0
"""A layer with weights outweighs all modules and tensors around it."""
_WORDING = 0.05
"""Wording decides only between otherwise equal alignments."""
_LARGEST_TABLE = 250_000
"""Longer sequences are paired one by one from both ends first, as far as they fit."""

Ours = TypeVar("Ours")
Theirs = TypeVar("Theirs")


@dataclass(frozen=True)
class Item:
    """A layer, a tensor outside of one, or a module without tensors, at its place in the order of execution."""

    path: str
    place: float
    unit: Unit | None
    kind: str
    given: Entry | None
    """What a module without tensors gives, or the tensor of a unit that is one and never ran."""

    def likeness(self, other: Item) -> float:
        """0: not the same thing; more: surer."""
        if self.unit is not None and other.unit is not None:
            if not (self.ran and other.ran) and self.kind == BARE and not _same_values(self.given, other.given):
                # Nothing but its shape would speak for it.
                return 0.0
            return _unit_likeness(self.unit, other.unit)
        if self.given is None or other.given is None or self.unit is not None or other.unit is not None:
            return 0.0
        return self._call_likeness(other, self.given.shape, other.given.shape)

    @property
    def ran(self) -> bool:
        return self.place < inf

    def _call_likeness(self, other: Item, own: tuple[int, ...], theirs: tuple[int, ...]) -> float:
        named_alike = self.path.rpartition(".")[2] == other.path.rpartition(".")[2]
        if sorted(own) != sorted(theirs):
            # A pool or an upsampling with another setting (ceil_mode, stride, size) is still that layer.
            alike = named_alike and self.kind == other.kind != "" and len(own) == len(theirs)
            return 1.0 if alike else 0.0
        if self.kind and other.kind:
            return 2.0 if self.kind == other.kind else 0.0
        return 1.5 if named_alike else 0.5


def _same_values(one: Entry | None, other: Entry | None) -> bool:
    return one is not None and other is not None and distance(one, other) < ANOTHER


def _unit_likeness(one: Unit, other: Unit) -> float:
    if one.kind != other.kind:
        return 0.0
    if not one.fits(other):
        return 0.3 * _LAYER if one.kind != BARE and one.fits_partly(other) else 0.0
    if one.kind == BARE and len({affine_role(one.path), affine_role(other.path)} - {None}) == 2:
        return 0.0
    return (2.0 if one.kind == BARE else _LAYER) + _WORDING * closeness(one.path, other.path)


def in_order(ours: list[Item], theirs: list[Item], decided: Mapping[str, str]) -> list[tuple[Item, Item]]:
    """New pairs, in order and none crossing another, between those that are decided and that run in one order."""
    place_there = {item.path: place for place, item in enumerate(theirs)}
    taken = set(decided.values())
    anchors = [
        (place, place_there[decided[item.path]])
        for place, item in enumerate(ours)
        if item.path in decided and decided[item.path] in place_there
    ]
    pairs: list[tuple[Item, Item]] = []
    start_here = start_there = 0
    for end_here, end_there in (*_rising(anchors), (len(ours), len(theirs))):
        here = [item for item in ours[start_here:end_here] if item.ran and item.path not in decided]
        there = [item for item in theirs[start_there:end_there] if item.ran and item.path not in taken]
        pairs += _best(here, there)
        start_here, start_there = end_here + 1, end_there + 1
    taken |= {item.path for pair in pairs for item in pair}
    here = [item for item in ours if item.path not in decided and item.path not in taken]
    there = [item for item in theirs if item.path not in taken]
    alone, alone_there = _alone(here), _alone(there)
    only = [(one, alone_there[signature]) for signature, one in alone.items() if signature in alone_there]
    pairs += only
    # What never ran has no place; it may be what the other side runs.
    done = {item.path for pair in only for item in pair}
    here, there = ([item for item in side if item.path not in done] for side in (here, there))
    if not all(item.ran for item in (*here, *there)):
        pairs += [(one, two) for one, two in _best(here, there) if not (one.ran and two.ran)]
    return pairs


def _alone(items: Iterable[Item]) -> dict[Signature, Item]:
    """Layers that nothing else could be: those of their kind and shapes that are the only ones left."""
    groups = by_signature(item.unit for item in items if item.unit is not None and item.kind != BARE)
    return {item.unit.signature: item for item in items if item.unit and len(groups.get(item.unit.signature, ())) == 1}


def _best(ours: list[Item], theirs: list[Item]) -> list[tuple[Item, Item]]:
    straight = list(zip(ours, theirs, strict=False))
    if len(ours) == len(theirs) and all(one.likeness(two) >= 2.0 for one, two in straight):
        # One by one all fit: no other alignment has as many pairs, and a table of thousands would take minutes.
        return straight
    if len(ours) * len(theirs) > _LARGEST_TABLE:
        same = next((place for place, (one, two) in enumerate(straight) if one.likeness(two) < 2.0), len(straight))
        backwards = list(zip(reversed(ours[same:]), reversed(theirs[same:]), strict=False))
        last = next((place for place, (one, two) in enumerate(backwards) if one.likeness(two) < 2.0), len(backwards))
        if same or last:
            rest = _best(ours[same : len(ours) - last], theirs[same : len(theirs) - last])
            return [*straight[:same], *rest, *reversed(backwards[:last])]
    return best_alignment(ours, theirs, Item.likeness)


def _rising(anchors: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest part of pairs of places (in the order of the first) whose second places rise."""
    tails: list[int] = []
    chains: list[int] = []
    before: list[int | None] = []
    for number, (_, place) in enumerate(anchors):
        length = bisect_left(tails, place)
        before.append(chains[length - 1] if length else None)
        tails[length : length + 1] = [place]
        chains[length : length + 1] = [number]
    found = []
    last = chains[-1] if chains else None
    while last is not None:
        found.append(anchors[last])
        last = before[last]
    return found[::-1]


def best_alignment(
    ours: Sequence[Ours], theirs: Sequence[Theirs], score: Callable[[Ours, Theirs], float]
) -> list[tuple[Ours, Theirs]]:
    """The pairs, in order and none crossing another, with the largest sum of scores; a score of 0 is no pair."""
    table = [[0.0] * (len(theirs) + 1)]
    for one in ours:
        above, row = table[-1], [0.0]
        for place, other in enumerate(theirs):
            together = score(one, other)
            row.append(max(above[place + 1], row[place], above[place] + together if together else 0.0))
        table.append(row)
    pairs = []
    i, j = len(ours), len(theirs)
    while i and j:
        if table[i][j] == table[i - 1][j]:
            i -= 1
        elif table[i][j] == table[i][j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((ours[i], theirs[j]))
    return pairs[::-1]


def roles_together(pairs: Sequence[UnitPair]) -> list[UnitPair]:
    """The pairs, those that make queries, keys and values one after the other put together by role.

    In which order these are called (or registered) is each author's own.
    """
    groups: list[list[UnitPair]] = []
    for pair in pairs:
        if groups and all(_tells_apart(pair, one) for one in groups[-1]):
            groups[-1].append(pair)
        else:
            groups.append([pair])
    return [pair for group in groups for pair in by_role(group)]


def _tells_apart(one: UnitPair, other: UnitPair) -> bool:
    """Whether the units of two pairs have one signature and, on both sides, roles that are not the same."""
    sides = (one.source, other.source), (one.target, other.target)
    roles = [{attention_role(unit.path) for unit in side} for side in sides]
    return one.source.signature == other.source.signature and all(len(two - {None}) == 2 for two in roles)


def by_role(pairs: Sequence[UnitPair]) -> list[UnitPair]:
    """The pairs with the same roles together, if names tell all of them apart on both sides; else as they are."""
    sources = {attention_role(pair.source.path): pair.source for pair in pairs}
    roles = [attention_role(pair.target.path) for pair in pairs]
    if None in sources or len(sources) < len(pairs) or set(roles) != set(sources):
        return list(pairs)
    return [replace(pair, source=sources[role]) for pair, role in zip(pairs, roles, strict=True)]


@dataclass(frozen=True)
class Ambiguity:
    """Units that fit each other equally well, with nothing to tell them apart."""

    sources: tuple[Unit, ...]
    targets: tuple[Unit, ...]


def match_structure(sources: Iterable[Unit], targets: Iterable[Unit]) -> tuple[list[UnitPair], list[Ambiguity]]:
    """Pairs of units that only fit each other, or whose numbers and roles agree; and the groups left undecided."""
    here, there = by_signature(sources), by_signature(targets)
    pairs: list[UnitPair] = []
    open_groups: list[Ambiguity] = []
    for signature, group in here.items():
        partners = there.get(signature, [])
        if not partners:
            continue
        if signature[0] == BARE:
            pairs += _close_names(group, partners)
        elif len(group) == len(partners) == 1:
            pairs.append(UnitPair(group[0], partners[0], "only fit"))
        else:
            found = _by_numbers(group, partners)
            pairs += found
            if not found:
                open_groups.append(Ambiguity(tuple(group), tuple(partners)))
    return pairs, open_groups


def match_single_tensors(sources: Iterable[Unit], targets: Iterable[Unit]) -> list[UnitPair]:
    """Pairs of one bare tensor with one tensor of a layer: same words in the same order, same shape, one dimension.

    So a decoder's bias meets a parameter `decoder_bias` where the decoder's weight is tied to the embedding on one
    side and not a layer of its own on the other. More dimensions would leave the layout open.
    """
    here = [(unit, single(unit, part)) for unit in sources for part in unit.parts if len(part.shape) == 1]
    there = [(unit, single(unit, part)) for unit in targets for part in unit.parts if len(part.shape) == 1]
    return [
        UnitPair(one, other, "close name")
        for unit, one in here
        for partner, other in there
        if BARE in (unit.kind, partner.kind) and one.fits(other) and plain(one.path) == plain(other.path)
    ]


def by_signature(units: Iterable[Unit]) -> dict[Signature, list[Unit]]:
    """The units that fit each other, in their order."""
    groups: defaultdict[Signature, list[Unit]] = defaultdict(list)
    for unit in units:
        groups[unit.signature].append(unit)
    return groups


def _close_names(group: list[Unit], partners: list[Unit]) -> list[UnitPair]:
    """Bare tensors of one shape whose names share words, where no other pairing is as good."""
    pairs = []
    for unit in group:
        scores = {other.path: _name_score(unit, other) for other in partners}
        best = max(scores.values())
        winners = [other for other in partners if scores[other.path] == best]
        if best < 0.3 or len(winners) > 1:
            continue
        rivals = [one for one in group if _name_score(one, winners[0]) >= best]
        if len(rivals) == 1:
            pairs.append(UnitPair(unit, winners[0], "close name"))
    return pairs


def _name_score(one: Unit, other: Unit) -> float:
    if numbers(one.path) != numbers(other.path):
        return 0.0
    if plain(one.path) == plain(other.path):
        return 2.0
    last = [path.rpartition(".")[2] for path in (one.path, other.path)]
    return 1.5 if last[0] == last[1] else closeness(one.path, other.path)


def _by_numbers(group: list[Unit], partners: list[Unit]) -> list[UnitPair]:
    """Pairs in the order of the numbers in their paths, if that is also the order of registration on both sides."""
    if len(group) != len(partners):
        return []
    roles = {attention_role(unit.path) for unit in group}
    if roles != {attention_role(unit.path) for unit in partners}:
        return []
    pairs: list[UnitPair] = []
    for role in roles:
        ones = [unit for unit in group if attention_role(unit.path) == role]
        others = [unit for unit in partners if attention_role(unit.path) == role]
        if len(ones) != len(others) or not (_numbers_rise(ones) and _numbers_rise(others)):
            return []
        pairs += [UnitPair(one, other, "numbering") for one, other in zip(ones, others, strict=True)]
    return pairs


def _numbers_rise(units: list[Unit]) -> bool:
    """Whether the units' numbers rise strictly in the order of registration (a single unit needs none)."""
    keys = [numbers(unit.path) for unit in units]
    lengths = {len(key) for key in keys}
    return len(lengths) == 1 and all(one < other for one, other in pairwise(keys))
