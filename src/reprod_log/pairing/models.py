"""Which layer, tensor and module of one recorded program is which of the other's.

Evidence decides in one order: what is stated, equal names, equal values, and last one alignment in the order of
execution between what is decided so, by kind, shapes and wording. A module around them is the one that holds the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from reprod_log.pairing.names import affine_role, match_names, match_renames
from reprod_log.pairing.order import Item, in_order, roles_together
from reprod_log.pairing.pairing import How
from reprod_log.pairing.places import ValuePairs
from reprod_log.pairing.recorded_map import same_weights
from reprod_log.pairing.rename import fronts
from reprod_log.pairing.units import (
    PairedBy,
    Unit,
    UnitPair,
    recorded_units,
    take_apart,
    vectors_apart,
    without_pairs,
)
from reprod_log.recording import Entry, ModuleInfo, Recording

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
        units += same_weights(reference, candidate, vectors_apart(here), vectors_apart(there))
    done_here = {path for pair in units for path in (pair.source.path, pair.source.owner)}
    done_there = {path for pair in units for path in (pair.target.path, pair.target.owner)}
    here, there = take_apart(
        [unit for unit in ours if unit.path not in done_here], [unit for unit in theirs if unit.path not in done_there]
    )
    if not (ours and theirs):
        # A graph has its weights inside: a layer of the other side is a call like any other.
        here, there = (), ()
    aligned = in_order(
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


def _items(recording: Recording, units: Sequence[Unit]) -> list[Item]:
    """What may have a partner, in the order in which it ends; what never ran comes last, in that of registration."""
    by_path = {module.path: module for module in recording.modules}
    parents = {path.rpartition(".")[0] for path in by_path if path}
    owners = {unit.owner for unit in units}
    starts: dict[str, int] = {}
    ends: dict[str, int] = {}
    tensors: dict[str, Entry] = {}
    calls: list[Item] = []
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
                calls.append(Item(path, place, None, _kind(by_path.get(path)), entry))
    placed = [
        Item(unit.path, ends.get(unit.owner, starts.get(unit.owner, inf)), unit, unit.kind, tensors.get(unit.path))
        for unit in sorted(units, key=lambda unit: affine_role(unit.path) == "shift")
    ]
    return sorted((*placed, *calls), key=lambda item: item.place)


def _kind(module: ModuleInfo | None) -> str:
    return "" if module is None else module.kind or module.type.lower()


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
