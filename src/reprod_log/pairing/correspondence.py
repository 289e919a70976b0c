"""Which tensor of one live model goes into which of another: what is stated, values, names, structure, order.

A map under which both models compute the same decides everything but what is stated. Where there is none (a wrong
port, or nothing to run on), equal names come before it, and what neither decides goes by structure or by order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from reprod_log.errors import UsageError
from reprod_log.frameworks.contract import LayerCall
from reprod_log.layers.lookup import layer_kind
from reprod_log.messages import Message, Name, Number, message
from reprod_log.pairing.distance import SAME, rearranged_difference
from reprod_log.pairing.links import Link, WeightMap
from reprod_log.pairing.names import affine_role, attention_role, match_names, match_renames
from reprod_log.pairing.order import Ambiguity, Item, in_order, match_single_tensors, match_structure, roles_together
from reprod_log.pairing.rename import is_front, renamed_path
from reprod_log.pairing.survey import Inputs, Order, Survey, run_model, shapes_of
from reprod_log.pairing.units import (
    BARE,
    PIECE,
    PairedBy,
    Signature,
    Unit,
    UnitPair,
    paired_links,
    take_apart,
    vectors_apart,
    without_pairs,
)
from reprod_log.recording import Array

_LESS_SURE: tuple[PairedBy, ...] = ("execution order", "rename")
"""What speaks for a unit if it does for one of its tensors, though values speak for the others."""
Calls = Mapping[str, LayerCall]
"""The first call of every unit's layer by path, in the order in which the calls ended."""


@dataclass(frozen=True)
class Given:
    """What two models are paired by: rules of the user, an order to trust, inputs for either side, and the map that
    values speak for."""

    rename: Mapping[str, str]
    order: Order | None = None
    inputs: tuple[Inputs, Inputs] | None = None
    found: WeightMap = field(default_factory=lambda: WeightMap(()))


@dataclass(frozen=True)
class Correspondence:
    """From where each tensor of the target comes, which layers are partners as a whole, and what is undecided."""

    links: tuple[Link, ...]
    pairs: tuple[UnitPair, ...]
    undecided: tuple[Ambiguity, ...] = ()
    runs: Runs | None = None


@dataclass(frozen=True)
class Runs:
    """One run of either model with the same weights, and how far they agree."""

    source: Calls
    target: Calls
    compared: int
    proven: bool = False
    """Whether both compute the same in float64."""
    first: UnitPair | None = None
    """The layer that differs first."""
    difference: float = 0.0

    @property
    def agree(self) -> bool:
        """Whether no layer that was compared differs."""
        return self.proven or self.first is None

    @property
    def message(self) -> Message:
        """How far they agree, for a reader."""
        if self.proven:
            return message("transfer.models.same")
        if self.first is not None:
            off = Number(self.difference, ".1e")
            return message("transfer.models.differ", path=Name(self.first.target.path), difference=off)
        if not self.compared:
            return message("transfer.models.nothing")
        return message("transfer.models.agree", count=self.compared)

    def owners_agree(self, source: str, target: str) -> bool:
        """Whether the modules at two paths returned the same, as far as both returned anything."""
        one, other = self.source.get(source), self.target.get(target)
        if one is None or other is None:
            return False
        common = min(len(one.outputs), len(other.outputs))
        return rearranged_difference(one.outputs[:common], other.outputs[:common]) <= SAME


def obeys(found: WeightMap, rename: Mapping[str, str]) -> bool:
    """Whether the map goes where the user's own map says."""
    for link in found.links:
        for name in link.sources:
            wanted, rule = renamed_path(name, rename)
            if rule is not None and not (is_front(rename[rule], link.target) or wanted == link.target):
                return False
    return True


def correspond(source: Survey, target: Survey, given: Given, values: Mapping[str, Array]) -> Correspondence:
    """The correspondence of two live models; `values` are the source's tensors as a run is to use them."""
    if given.order not in (None, "registration", "execution"):
        raise UsageError(f"order is 'registration', 'execution' or None, not {given.order!r}.")
    if given.order == "execution" and given.inputs is None:
        raise UsageError("order='execution' needs inputs= to run both models on.")
    stated = match_renames(source.units, target.units, given.rename)
    if given.found.agrees and obeys(given.found, given.rename):
        links = tuple(_stated(link, given.rename) for link in _stored(given.found, source, target))
        pairs = tuple(_whole_units(links, source, target))
        return _run(source, target, given, values, Correspondence(links, pairs))
    pairs = (*stated, *match_names(*without_pairs(source.units, target.units, stated)))
    if given.inputs is None:
        return _by_structure(source, target, pairs, given.order)
    return _by_order(source, target, pairs, given, values)


def _stored(found: WeightMap, source: Survey, target: Survey) -> Iterator[Link]:
    """The links in the names of units; what is no part of a model's state (a table that a run makes) has none."""
    ours, theirs = (
        {side.first_name(name): name for unit in reversed(side.units) for name in unit.tensors}
        for side in (source, target)
    )
    unproven = set(found.unproven)
    for link in found.links:
        sources = tuple(ours[name] for name in link.sources if name in ours)
        if link.target in theirs and len(sources) == len(link.sources):
            proof = "execution order" if link.target in unproven else link.proof
            yield replace(link, target=theirs[link.target], sources=sources, proof=proof)


def _stated(link: Link, rename: Mapping[str, str]) -> Link:
    by_rule = any(renamed_path(name, rename)[1] is not None for name in link.sources)
    return replace(link, proof="rename") if by_rule else link


def _whole_units(links: Iterable[Link], source: Survey, target: Survey) -> Iterator[UnitPair]:
    """The units all of whose tensors come from one unit of their kind."""
    by_target = {target.first_name(link.target): link for link in links}
    for unit in target.units:
        own = [by_target.get(target.first_name(part.tensor)) for part in unit.parts if not part.optional]
        linked = [link for link in own if link is not None]
        holders = {source.holders[source.first_name(name)].path for link in linked for name in link.sources}
        if len(linked) < len(own) or len(holders) != 1:
            continue
        other = source.holders[source.first_name(linked[0].sources[0])]
        if other.fits(unit):
            proofs = {link.proof for link in linked}
            yield UnitPair(other, unit, next((how for how in _LESS_SURE if how in proofs), "values"))


def _links(source: Survey, target: Survey, pairs: Iterable[UnitPair]) -> list[Link]:
    return paired_links(pairs, shapes_of(target), shapes_of(source))


def _by_structure(source: Survey, target: Survey, pairs: tuple[UnitPair, ...], order: Order | None) -> Correspondence:
    """With nothing to run on: what only fits each other, or in the order of registration where that is trusted."""
    sources, targets = take_apart(*without_pairs(source.units, target.units, pairs))
    if order == "registration":
        here, there = (
            [Item(unit.path, place, unit, unit.kind, None) for place, unit in enumerate(units) if unit.kind != BARE]
            for units in (sources, targets)
        )
        pairs += tuple(_paired(in_order(here, there, {}), "registration order"))
        sources, targets = without_pairs(sources, targets, pairs)
    found_pairs, undecided = match_structure(sources, targets)
    found_pairs += match_single_tensors(*without_pairs(sources, targets, found_pairs))
    pairs += tuple(found_pairs)
    return Correspondence(tuple(_links(source, target, pairs)), pairs, tuple(undecided))


def _by_order(
    source: Survey, target: Survey, pairs: tuple[UnitPair, ...], given: Given, values: Mapping[str, Array]
) -> Correspondence:
    """A wrong port: as far as values speak for the map, it holds where names say nothing; then order."""
    assert given.inputs is not None
    stored = list(_stored(given.found, source, target))
    links = _links(source, target, pairs)
    links += _free((link for link in stored if link.proof == "values"), links)
    paired = {pair.target.path for pair in pairs}
    pairs += tuple(pair for pair in _whole_units(links, source, target) if pair.target.path not in paired)
    here = run_model(source, given.inputs[0], values, side="source")
    there = run_model(target, given.inputs[1], {}, side="target")
    # Behind a mistake the search goes by shapes, names and the order of use; roles in names come before these.
    ordered = roles_together(list(_whole_units(_free(stored, links), source, target)))
    known = [*links, *_links(source, target, ordered)]
    sources, targets = take_apart(
        _open(source, {name for link in known for name in link.sources}), _open(target, {link.target for link in known})
    )
    for apart in (tuple[Unit, ...], vectors_apart):
        done = (*pairs, *ordered)
        ours, theirs = (apart(units) for units in without_pairs(sources, targets, done))
        ordered += _paired(
            in_order(
                _items((*ours, *(pair.source for pair in done)), here),
                _items((*theirs, *(pair.target for pair in done)), there),
                {pair.source.path: pair.target.path for pair in done},
            ),
            "execution order",
        )
    undecided = _undecided(ordered, here, given)
    doubtful = {unit.path for group in undecided for unit in group.targets}
    ordered = [pair for pair in ordered if pair.target.path not in doubtful]
    links += _links(source, target, ordered)
    open_names = {name for group in undecided for unit in group.targets for name in unit.tensors}
    links += [link for link in _free(stored, links) if link.target not in open_names]
    found = Correspondence(tuple(links), (*pairs, *ordered), tuple(undecided))
    return _run(source, target, given, values, found, here)


def _paired(aligned: Iterable[tuple[Item, Item]], how: PairedBy) -> list[UnitPair]:
    return roles_together([UnitPair(one.unit, two.unit, how) for one, two in aligned if one.unit and two.unit])


def _free(stored: Iterable[Link], links: Sequence[Link]) -> list[Link]:
    """The links for tensors that have none yet, of tensors that go nowhere yet."""
    filled = {link.target for link in links}
    used = {name for link in links for name in link.sources}
    return [link for link in stored if link.target not in filled and used.isdisjoint(link.sources)]


def _open(survey: Survey, used: set[str]) -> list[Unit]:
    """The units none of whose tensors has a partner."""
    return [unit for unit in survey.units if used.isdisjoint(unit.tensors)]


def _items(units: Sequence[Unit], calls: Calls) -> list[Item]:
    ends = {path: place for place, path in enumerate(calls)}
    placed = [
        Item(unit.path, ends.get(unit.owner, inf), unit, unit.kind, None)
        for unit in sorted(units, key=lambda unit: affine_role(unit.path) == "shift")
    ]
    return sorted(placed, key=lambda item: item.place)


def _undecided(pairs: Sequence[UnitPair], calls: Calls, given: Given) -> list[Ambiguity]:
    """Layers of one kind that are given the same, where neither names nor values tell which is which."""
    if given.order == "execution":
        return []
    groups: defaultdict[tuple[Signature, bytes], list[UnitPair]] = defaultdict(list)
    for pair in pairs:
        call = calls.get(pair.source.owner)
        told = any(
            role(pair.source.path) is not None and role(pair.source.path) == role(pair.target.path)
            for role in (attention_role, affine_role)
        )
        if pair.how == "execution order" and call is not None and not told:
            given_to = b"" if pair.source.kind == BARE else call.input_digest
            groups[pair.source.signature, given_to].append(pair)
    return [
        Ambiguity(tuple(pair.source for pair in group), tuple(pair.target for pair in group))
        for group in groups.values()
        if len(group) > 1
    ]


def _run(
    source: Survey,
    target: Survey,
    given: Given,
    values: Mapping[str, Array],
    found: Correspondence,
    here: Calls | None = None,
) -> Correspondence:
    """The correspondence with what a run of both models with the same weights shows."""
    if given.inputs is None:
        return found
    if here is None:
        here = run_model(source, given.inputs[0], values, side="source")
    filled = WeightMap(found.links).apply(values.__getitem__)
    there = run_model(target, given.inputs[1], filled, side="target")
    runs = Runs(here, there, 0, proven=given.found.agrees and obeys(given.found, given.rename))
    compared = 0
    ends = {path: place for place, path in enumerate(there)}
    for pair in sorted(found.pairs, key=lambda pair: ends.get(pair.target.owner, inf)):
        one, other = _outputs(source, pair.source, here), _outputs(target, pair.target, there)
        if one is None or other is None:
            continue
        compared += 1
        off = rearranged_difference(one, other)
        if not off <= SAME:
            runs = replace(runs, first=pair, difference=off)
            break
    return replace(found, runs=replace(runs, compared=compared))


def _outputs(survey: Survey, unit: Unit, calls: Calls) -> tuple[Array, ...] | None:
    """What a unit's layer gave, in the canonical arrangement of its kind."""
    call = calls.get(unit.owner)
    if call is None or unit.kind == BARE or unit.class_name == PIECE:
        return None
    row = layer_kind(unit.kind)
    probe = None if row is None else row.probe
    return call.outputs if probe is None or not call.outputs else probe.restore(survey.facts(unit), call.outputs)
