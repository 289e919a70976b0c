"""Which layer, tensor and module of one recorded program is which of the other's.

Evidence decides in one order: what is stated, equal names, equal values, and last one alignment in the order of
execution between what is decided so, by kind, shapes and wording. A module around them is the one that holds the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from reprod_log.pairing.distance import ANOTHER, distance
from reprod_log.pairing.names import affine_role, closeness, match_names, match_renames
from reprod_log.pairing.order import best_alignment, by_signature, roles_together
from reprod_log.pairing.pairing import How
from reprod_log.pairing.places import ValuePairs
from reprod_log.pairing.recorded_map import same_weights
from reprod_log.pairing.rename import fronts
from reprod_log.pairing.units import (
    BARE,
    PairedBy,
    Signature,
    Unit,
    UnitPair,
    recorded_units,
    single,
    take_apart,
    without_pairs,
)
from reprod_log.recording import Entry, ModuleInfo, Recording

_LAYER = 100.0
"""A layer with weights outweighs all modules and tensors around it."""
_WORDING = 0.05
"""Wording decides only between otherwise equal alignments."""
_LARGEST_TABLE = 250_000
"""Longer sequences are paired one by one from both ends first, as far as they fit."""
_HOW: Mapping[PairedBy, How] = {"name": "name", "rename": "rename", "values": "value", "execution order": "order"}
"""How entries count as paired whose units were paired so."""


@dataclass(frozen=True)
class Layers:
    """Which module of the reference is which of the candidate, and which units were paired."""

    modules: Mapping[str, tuple[str, How]]
    units: tuple[UnitPair, ...]
    left_in_reference: tuple[str, ...] = field(default=())
    left_in_candidate: tuple[str, ...] = field(default=())


def match_layers(reference: Recording, candidate: Recording, *, rename: Mapping[str, str]) -> Layers:
    """The modules and units of both recordings as far as they have partners."""
    ours, theirs = recorded_units(reference), recorded_units(candidate)
    known = {front for unit in ours for front in fronts(unit.path)}
    known &= {front for module in reference.modules for front in fronts(module.path)}
    # A rule for a module without tensors (an activation) is followed by its entries; there is no unit to pair.
    units = match_renames(ours, theirs, {old: new for old, new in rename.items() if old in known})
    units += match_names(*without_pairs(ours, theirs, units))
    here, there = without_pairs(ours, theirs, units)
    if here or there:
        values = ValuePairs.of(reference.entries, candidate.entries).modules
        by_path = {unit.path: unit for unit in there}
        partners = [(unit, by_path.get(values.get(unit.path, ""))) for unit in here]
        units += [UnitPair(one, two, "values") for one, two in partners if two is not None and one.fits(two)]
        units += same_weights(reference, candidate, *without_pairs(ours, theirs, units))
        # A layer of vectors alone (a norm, a slope) may be written by hand on the other side.
        here, there = without_pairs(ours, theirs, units)
        units += same_weights(reference, candidate, _tensors(here), _tensors(there))
    done_here = {path for pair in units for path in (pair.source.path, pair.source.owner)}
    done_there = {path for pair in units for path in (pair.target.path, pair.target.owner)}
    here, there = take_apart(
        [unit for unit in ours if unit.path not in done_here], [unit for unit in theirs if unit.path not in done_there]
    )
    if not (ours and theirs):
        # A graph has its weights inside: a layer of the other side is a call like any other.
        here, there = (), ()
    aligned = _aligned(
        _items(reference, (*here, *(pair.source for pair in units))),
        _items(candidate, (*there, *(pair.target for pair in units))),
        {pair.source.path: pair.target.path for pair in units},
    )
    pairs = [UnitPair(one.unit, two.unit, "execution order") for one, two in aligned if one.unit and two.unit]
    units += roles_together(pairs)
    modules: dict[str, tuple[str, How]] = {}
    for pair in units:
        if pair.is_whole:
            modules.setdefault(pair.source.owner, (pair.target.owner, _HOW[pair.how]))
    for one, two in aligned:
        if one.unit is None:
            modules.setdefault(one.path, (two.path, "name" if one.path == two.path else "order"))
    modules |= _holders(reference, candidate, modules, units)
    done_here |= {pair.source.path for pair in units}
    done_there |= {pair.target.path for pair in units}
    return Layers(
        modules,
        tuple(units),
        tuple(unit.path for unit in ours if unit.path not in done_here),
        tuple(unit.path for unit in theirs if unit.path not in done_there),
    )


def _tensors(units: Iterable[Unit]) -> list[Unit]:
    """The tensors outside of layers, and those of layers that have nothing but vectors."""
    return [
        unit if unit.kind == BARE else single(unit, part)
        for unit in units
        if all(len(part.shape) == 1 for part in unit.parts)
        for part in unit.parts
        if not part.optional
    ]


@dataclass(frozen=True)
class _Item:
    """A layer, a tensor outside of one, or a module without tensors, at its place in the order of execution."""

    path: str
    place: float
    unit: Unit | None
    kind: str
    given: Entry | None
    """What a module without tensors gives, or the tensor of a unit that is one and never ran."""

    def likeness(self, other: _Item) -> float:
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

    def _call_likeness(self, other: _Item, own: tuple[int, ...], theirs: tuple[int, ...]) -> float:
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


def _items(recording: Recording, units: Sequence[Unit]) -> list[_Item]:
    """What may have a partner, in the order in which it ends; what never ran comes last, in that of registration."""
    by_path = {module.path: module for module in recording.modules}
    parents = {path.rpartition(".")[0] for path in by_path if path}
    owners = {unit.owner for unit in units}
    starts: dict[str, int] = {}
    ends: dict[str, int] = {}
    tensors: dict[str, Entry] = {}
    calls: list[_Item] = []
    for place, entry in enumerate(recording.entries):
        path = entry.key.path
        if entry.key.phase == "parameter" and not entry.key.run and entry.detail != "summary":
            tensors.setdefault(path, entry)
        if entry.key.phase != "forward" or entry.key.run or path in ends:
            continue
        starts.setdefault(path, place)
        if not entry.key.role.startswith("input"):
            ends[path] = place
            if path not in owners and path not in parents:
                calls.append(_Item(path, place, None, _kind(by_path.get(path)), entry))
    placed = [
        _Item(unit.path, ends.get(unit.owner, starts.get(unit.owner, inf)), unit, unit.kind, tensors.get(unit.path))
        for unit in sorted(units, key=lambda unit: affine_role(unit.path) == "shift")
    ]
    return sorted((*placed, *calls), key=lambda item: item.place)


def _kind(module: ModuleInfo | None) -> str:
    return "" if module is None else module.kind or module.type.lower()


def _aligned(ours: list[_Item], theirs: list[_Item], decided: Mapping[str, str]) -> list[tuple[_Item, _Item]]:
    """New pairs, in order and none crossing another, between those that are decided and that run in one order."""
    place_there = {item.path: place for place, item in enumerate(theirs)}
    taken = set(decided.values())
    anchors = [
        (place, place_there[decided[item.path]])
        for place, item in enumerate(ours)
        if item.path in decided and decided[item.path] in place_there
    ]
    pairs: list[tuple[_Item, _Item]] = []
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


def _alone(items: Iterable[_Item]) -> dict[Signature, _Item]:
    """Layers that nothing else could be: those of their kind and shapes that are the only ones left."""
    groups = by_signature(item.unit for item in items if item.unit is not None and item.kind != BARE)
    return {item.unit.signature: item for item in items if item.unit and len(groups.get(item.unit.signature, ())) == 1}


def _best(ours: list[_Item], theirs: list[_Item]) -> list[tuple[_Item, _Item]]:
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
    return best_alignment(ours, theirs, _Item.likeness)


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


def _holders(
    reference: Recording,
    candidate: Recording,
    modules: Mapping[str, tuple[str, How]],
    units: Iterable[UnitPair],
) -> dict[str, tuple[str, How]]:
    """Modules that hold the same layers, parts of layers or tensors; of several around the same, outermost with
    outermost."""
    held = [(path, partner) for path, (partner, _) in modules.items()]
    held += [(pair.source.owner, pair.target.owner) for pair in units if not pair.is_whole]
    ours, theirs = _contents(reference, [one for one, _ in held]), _contents(candidate, [two for _, two in held])
    taken = {partner for partner, _ in modules.values()}
    there: dict[frozenset[int], list[str]] = {}
    for path, content in theirs.items():
        if path not in taken:
            there.setdefault(content, []).append(path)
    here: dict[frozenset[int], list[str]] = {}
    for path, content in ours.items():
        if path not in modules:
            here.setdefault(content, []).append(path)
    return {
        one: (two, "name" if one == two else "structure")
        for content, paths in here.items()
        for one, two in zip(sorted(paths, key=_depth), sorted(there.get(content, []), key=_depth), strict=False)
    }


def _contents(recording: Recording, held: Iterable[str]) -> dict[str, frozenset[int]]:
    """For each module that ran the numbers of what lies in it."""
    ran = {entry.key.path for entry in recording.entries if entry.key.phase == "forward"}
    contents: dict[str, set[int]] = {module.path: set() for module in recording.modules if module.path in ran}
    for number, path in enumerate(held):
        for front in contents.keys() & fronts(path):
            contents[front].add(number)
    return {path: frozenset(numbers) for path, numbers in contents.items() if numbers}


def _depth(path: str) -> int:
    return path.count(".") + bool(path)
