"""Which layer of one recorded model is which of the other's: by name, rename map, structure, order, values.

Layers with parameters come first, because their shapes say most. What lies between them (activations, pools) is lined
up in execution order between these anchors; a container belongs to the container that holds the same layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from reprod_log.pairing.distance import ANOTHER, distance
from reprod_log.pairing.names import match_names, match_renames
from reprod_log.pairing.order import (
    best_alignment,
    lone_bare_units,
    match_loose,
    match_order,
    match_single_tensors,
    match_structure,
)
from reprod_log.pairing.pairing import How
from reprod_log.pairing.places import ValuePairs
from reprod_log.pairing.rename import fronts
from reprod_log.pairing.units import BARE, PIECE, PairedBy, Unit, UnitPair, recorded_units, take_apart, without_pairs
from reprod_log.recording import ModuleInfo, Recording


@dataclass(frozen=True)
class Layers:
    """Which module of the reference is which of the candidate, and which units were paired."""

    modules: Mapping[str, tuple[str, How]]
    units: tuple[UnitPair, ...]
    left_in_reference: tuple[str, ...] = field(default=())
    left_in_candidate: tuple[str, ...] = field(default=())


def match_layers(reference: Recording, candidate: Recording, *, rename: Mapping[str, str]) -> Layers:
    """The modules of both recordings lined up as far as they can be."""
    ours, theirs = recorded_units(reference), recorded_units(candidate)
    modules_here = {front for module in reference.modules for front in fronts(module.path)}
    units_here = {front for unit in ours for front in fronts(unit.path)}
    pairs = _unit_pairs(
        ours,
        theirs,
        # A rule for a module without tensors (an activation) is followed by its entries; there is no unit to pair.
        {old: new for old, new in rename.items() if old in modules_here and old in units_here},
        (_execution_order(reference), _execution_order(candidate)),
        (_ends(reference), _ends(candidate)),
        _same_modules(reference, candidate),
    )
    pairs += _lone_tensors(*without_pairs(ours, theirs, pairs), reference, candidate)
    modules: dict[str, tuple[str, How]] = {}
    for pair in pairs:
        if pair.source.kind != BARE and PIECE not in (pair.source.class_name, pair.target.class_name):
            modules.setdefault(pair.source.owner, (pair.target.owner, _HOW[pair.how]))
    modules |= _own_layers(pairs, modules, _leaves(ours), _leaves(theirs))
    modules |= _between_anchors(reference, candidate, modules)
    pieces = [pair for pair in pairs if PIECE in (pair.source.class_name, pair.target.class_name)]
    in_pieces = {owner for pair in pieces for owner in (pair.source.owner, pair.target.owner)}
    modules = {path: partner for path, partner in modules.items() if path not in in_pieces}
    modules |= _wholes(reference, candidate, pieces)
    modules |= _containers(reference, candidate, modules)
    done_here, done_there = {pair.source.path for pair in pairs}, {pair.target.path for pair in pairs}
    return Layers(
        modules,
        tuple(pairs),
        tuple(unit.path for unit in ours if unit.path not in done_here),
        tuple(unit.path for unit in theirs if unit.path not in done_there),
    )


def _same_modules(reference: Recording, candidate: Recording) -> Mapping[str, str]:
    """Modules that take and give the same, where names leave anything open."""
    ours, theirs = ({module.path: module.parameters for module in side.modules} for side in (reference, candidate))
    if all(path in theirs for path, held in ours.items() if held):
        return {}
    return ValuePairs.of(reference.entries, candidate.entries).modules


def _lone_tensors(
    ours: Iterable[Unit], theirs: Iterable[Unit], reference: Recording, candidate: Recording
) -> list[UnitPair]:
    """Tensors outside of layers that are alone of their shape on either side and whose values agree."""
    here, there = (
        {
            one.key.path: one
            for one in reversed(side.of_run(""))
            if one.key.phase == "parameter" and one.detail != "summary"
        }
        for side in (reference, candidate)
    )
    return [
        replace(pair, how="values")
        for pair in lone_bare_units(ours, theirs)
        if (one := here.get(pair.source.path)) is not None
        and (other := there.get(pair.target.path)) is not None
        and distance(one, other) < ANOTHER
    ]


def _unit_pairs(
    ours: tuple[Unit, ...],
    theirs: tuple[Unit, ...],
    rename: Mapping[str, str],
    orders: tuple[Mapping[str, int], Mapping[str, int]],
    ends: tuple[Mapping[str, int], Mapping[str, int]],
    same: Mapping[str, str],
) -> list[UnitPair]:
    pairs = match_renames(ours, theirs, rename)
    pairs += match_names(*without_pairs(ours, theirs, pairs))
    here, there = without_pairs(ours, theirs, pairs)
    by_path = {unit.path: unit for unit in there}
    for unit in here:
        partner = by_path.get(same.get(unit.path, ""))
        if partner is not None and unit.fits(partner):
            pairs.append(UnitPair(unit, partner, "values"))
    here, there = take_apart(*without_pairs(ours, theirs, pairs))
    decided = {pair.source.path: pair.target.path for pair in pairs}
    in_order = (
        _sorted((*(pair.source for pair in pairs), *here), orders[0]),
        _sorted((*(pair.target for pair in pairs), *there), orders[1]),
    )
    pairs += match_order(*in_order, decided, how="execution order")
    found, _ = match_structure(*without_pairs(here, there, pairs))
    pairs += found
    pairs += match_single_tensors(*without_pairs(here, there, pairs))
    return pairs + match_loose(*without_pairs(here, there, pairs), pairs, *ends)


def _sorted(units: Iterable[Unit], order: Mapping[str, int]) -> list[Unit]:
    """Units in the order of their first call; what never ran stays out."""
    return sorted((unit for unit in units if unit.owner in order), key=lambda unit: order[unit.owner])


def _execution_order(recording: Recording) -> dict[str, int]:
    order: dict[str, int] = {}
    for place, entry in enumerate(recording.entries):
        if entry.key.phase == "forward":
            order.setdefault(entry.key.path, place)
    return order


def _ends(recording: Recording) -> dict[str, int]:
    """The place of every module's first output, so that a block comes after what it holds."""
    ends: dict[str, int] = {}
    for place, entry in enumerate(recording.entries):
        if entry.key.phase == "forward" and entry.key.role.startswith("output"):
            ends.setdefault(entry.key.path, place)
    return ends


def _leaves(units: Iterable[Unit]) -> frozenset[str]:
    """Owners of tensors that hold no other owner: a norm written by hand, say, and not a block."""
    owners = {unit.owner for unit in units}
    parents = {path.rpartition(".")[0] for path in owners if path}
    while more := {path.rpartition(".")[0] for path in parents if path} - parents:
        parents |= more
    return frozenset(owners - parents)


def _own_layers(
    pairs: Iterable[UnitPair], modules: Mapping[str, tuple[str, How]], ours: frozenset[str], theirs: frozenset[str]
) -> dict[str, tuple[str, How]]:
    """Modules that hold tensors of their own making and nothing else, when all of these have partners in one module."""
    there: dict[str, set[str]] = {}
    back: dict[str, set[str]] = {}
    ways: dict[str, How] = {}
    for pair in pairs:
        if pair.source.kind == BARE:
            there.setdefault(pair.source.owner, set()).add(pair.target.owner)
            back.setdefault(pair.target.owner, set()).add(pair.source.owner)
            ways.setdefault(pair.source.owner, _HOW[pair.how])
    taken = {partner for partner, _ in modules.values()}
    found: dict[str, tuple[str, How]] = {}
    for owner, partners in there.items():
        partner = next(iter(partners))
        alone = len(partners) == 1 and len(back[partner]) == 1
        if alone and owner in ours and partner in theirs and owner not in modules and partner not in taken:
            found[owner] = (partner, ways[owner])
    return found


_HOW: Mapping[PairedBy, How] = {
    "name": "name",
    "rename": "rename",
    "values": "value",
    "registration order": "order",
    "execution order": "order",
    "role": "structure",
    "only fit": "structure",
    "close name": "structure",
    "numbering": "structure",
}
"""How entries count as paired whose units were paired so."""


def _between_anchors(
    reference: Recording, candidate: Recording, anchors: Mapping[str, tuple[str, How]]
) -> dict[str, tuple[str, How]]:
    """Modules without parameters that run between the same two anchors, lined up by kind and output shape."""
    ours, theirs = _leaf_calls(reference), _leaf_calls(candidate)
    place_there = {call.path: place for place, call in enumerate(theirs)}
    found: dict[str, tuple[str, How]] = {}
    taken = {partner for partner, _ in anchors.values()}
    start_here = start_there = 0
    for end_here in [*(i for i, call in enumerate(ours) if call.path in anchors), len(ours)]:
        end_there = place_there.get(anchors[ours[end_here].path][0], -1) if end_here < len(ours) else len(theirs)
        if end_there < start_there:
            # The other side runs this layer elsewhere, or not at all: nothing is known about what lies between.
            continue
        segment = [call for call in theirs[start_there:end_there] if call.path not in taken]
        for one, other in best_alignment(ours[start_here:end_here], segment, _Call.likeness):
            if one.path not in anchors and one.path not in found:
                how: How = "name" if one.path == other.path else "order"
                found[one.path] = (other.path, how)
                taken.add(other.path)
        start_here, start_there = end_here + 1, end_there + 1
    return found


@dataclass(frozen=True)
class _Call:
    path: str
    kind: str
    shape: tuple[int, ...]

    def likeness(self, other: _Call) -> float:
        """0: not the same thing; more: surer."""
        named_alike = self.path.rpartition(".")[2] == other.path.rpartition(".")[2]
        if sorted(self.shape) != sorted(other.shape):
            # A pool or an upsampling with another setting (ceil_mode, stride, size) is still that layer.
            alike = named_alike and self.kind == other.kind != "" and len(self.shape) == len(other.shape)
            return 1.0 if alike else 0.0
        if self.kind and other.kind:
            return 2.0 if self.kind == other.kind else 0.0
        return 1.5 if named_alike else 0.5


def _leaf_calls(recording: Recording) -> list[_Call]:
    """First calls of modules without children, in execution order."""
    by_path = {module.path: module for module in recording.modules}
    parents = {path.rpartition(".")[0] for path in by_path if path}
    known = {unit.owner for unit in recorded_units(recording)}
    calls: dict[str, _Call] = {}
    for entry in recording.entries:
        path = entry.key.path
        if entry.key.phase != "forward" or path in calls or entry.key.run or entry.key.role.startswith("input"):
            continue
        if path in known or path not in parents:
            calls[path] = _Call(path, _kind(by_path.get(path)), entry.shape)
    return list(calls.values())


def _kind(module: ModuleInfo | None) -> str:
    return "" if module is None else module.kind or module.type.lower()


def _wholes(reference: Recording, candidate: Recording, pieces: Iterable[UnitPair]) -> dict[str, tuple[str, How]]:
    """Layers that were paired in pieces (an attention layer), with the block that holds just these pieces there."""
    found: dict[str, tuple[str, How]] = {}
    pieces = list(pieces)
    for side, recording in enumerate((candidate, reference) if pieces else ()):
        held: dict[frozenset[str], str] = {}
        units = {unit.owner for unit in recorded_units(recording) if unit.kind != BARE}
        for path, content in _contents(recording, None).items():
            held.setdefault(frozenset(content & units), path)
        parts: dict[str, set[str]] = {}
        for pair in pieces:
            whole, part = (pair.source, pair.target) if side == 0 else (pair.target, pair.source)
            if whole.class_name == PIECE:
                parts.setdefault(whole.owner, set()).add(part.owner)
        for whole_path, owners in parts.items():
            block = held.get(frozenset(owners))
            if block is not None and len(owners) > 1:
                found |= {whole_path: (block, "structure")} if side == 0 else {block: (whole_path, "structure")}
    return found


def _containers(
    reference: Recording, candidate: Recording, modules: Mapping[str, tuple[str, How]]
) -> dict[str, tuple[str, How]]:
    """Containers that hold the same layers; of several wrapped around the same ones, outermost with outermost."""
    ours, theirs = _contents(reference, modules), _contents(candidate, None)
    there: dict[frozenset[str], list[str]] = {}
    taken = {partner for partner, _ in modules.values()}
    for path, held in theirs.items():
        if path not in taken:
            there.setdefault(held, []).append(path)
    here: dict[frozenset[str], list[str]] = {}
    partners = {partner for partner, _ in modules.values()}
    for path, held in ours.items():
        if path not in modules and held:
            here.setdefault(held, []).append(path)
    found: dict[str, tuple[str, How]] = {}
    wanted: dict[frozenset[str], list[str]] = {}
    for held, paths in there.items():
        # Several hold the same paired layers when they also hold containers of their own.
        wanted.setdefault(held & partners, []).extend(paths)
    for held, paths in here.items():
        for one, other in zip(sorted(paths, key=_depth), sorted(wanted.get(held, []), key=_depth), strict=False):
            found[one] = (other, "name" if one == other else "structure")
    return found


def _contents(recording: Recording, modules: Mapping[str, tuple[str, How]] | None) -> dict[str, frozenset[str]]:
    """For each container that ran the layers below it, under the candidate's names."""
    ran = _execution_order(recording)
    contents: dict[str, set[str]] = {module.path: set() for module in recording.modules if module.path in ran}
    leaves = set(modules) if modules is not None else set(contents)
    for path in leaves:
        name = modules[path][0] if modules is not None else path
        parent = path
        while parent:
            parent = parent.rpartition(".")[0]
            if parent in contents:
                contents[parent].add(name)
    return {path: frozenset(held) for path, held in contents.items() if held}


def _depth(path: str) -> int:
    return path.count(".") + bool(path)
