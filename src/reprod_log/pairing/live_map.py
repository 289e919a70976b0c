"""The weight map of two live programs: both run once in float64, then the search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reprod_log.capture.eager import runner_of
from reprod_log.errors import ReprodLogError
from reprod_log.frameworks.contract import Program
from reprod_log.frameworks.side import Batch, Scope, Side, as_mapping
from reprod_log.pairing.anchors import is_informative, same_numbers
from reprod_log.pairing.crossings import find_crossings, kinds_of
from reprod_log.pairing.graph import Graph, in_pieces, with_generic_states, with_learned_inputs
from reprod_log.pairing.links import Link, WeightMap
from reprod_log.pairing.search import Proposal, Search
from reprod_log.pairing.survey import Survey, generic_values, shapes_of, survey
from reprod_log.pairing.units import BARE, Unit, UnitPair, paired_links
from reprod_log.recording import Array

_PLAIN = Scope()


@dataclass(frozen=True)
class Surveyed:
    """All models of a side: their units and tensors under the names of the program."""

    surveys: Mapping[str, Survey]

    @classmethod
    def of(cls, side: Side) -> Surveyed:
        return cls({name: survey(model) for name, model in as_mapping(side.model).items()})

    def name(self, prefix: str, name: str) -> str:
        """The name of a tensor in recordings and in the map: the first that it has, with the model's in front."""
        return _full(prefix, self.surveys[prefix].state[name].first)

    def values(self, make: Callable[[Survey], Mapping[str, Array]]) -> dict[str, Array]:
        return {
            self.name(prefix, name): array for prefix, one in self.surveys.items() for name, array in make(one).items()
        }

    def graph(self, side: Side, batch: Batch, values: Mapping[str, Array], run: Scope) -> Graph:
        """The side's program with `values` (by name) for its weights."""
        scope, spool = replace(run, dtype="float64", state=values), run.spool
        found = Graph.of(runner_of(side.framework).program(side, batch, scope))
        if spool is not None:
            spool.settle()
        return found

    def names(self) -> frozenset[str]:
        return frozenset(self.name(prefix, name) for prefix, one in self.surveys.items() for name in one.names)

    def units(self) -> list[tuple[str, Unit]]:
        return [(prefix, unit) for prefix, one in self.surveys.items() for unit in one.units]

    def tables(self) -> frozenset[str]:
        """Tensors that are not trained and belong to no known layer: each side has its own."""
        return frozenset(
            self.name(prefix, unit.path)
            for prefix, unit in self.units()
            if unit.kind == BARE and unit.path not in self.surveys[prefix].trained
        )

    def kept(self) -> frozenset[str]:
        """Tensors that are not trained: statistics, tables."""
        return frozenset(
            self.name(prefix, name) for prefix, one in self.surveys.items() for name in set(one.names) - one.trained
        )

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            _full(prefix, name): one.shape
            for prefix, survey_ in self.surveys.items()
            for name, one in survey_.state.items()
            if one.shape is not None
        }


def _full(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def search_weight_map(
    ours: Side, theirs: Side, batch: Batch, run: Scope = _PLAIN, *, their_batch: Batch | None = None
) -> WeightMap:
    """The map that values speak for; an empty one where a side's program cannot be recorded kernel by kernel."""
    found = _recorded(ours, theirs, lambda: find_weight_map(ours, theirs, batch, run, their_batch=their_batch))
    return WeightMap(()) if found is None else found


def _recorded(ours: Side, theirs: Side, find: Callable[[], WeightMap | None]) -> WeightMap | None:
    if not all("operators" in side.framework.can for side in (ours, theirs)):
        return None
    try:
        return find()
    except ReprodLogError:
        raise
    except Exception:  # a kernel without float64 may raise anything; names and order are left
        return None


def find_weight_map(
    ours: Side, theirs: Side, batch: Batch, run: Scope = _PLAIN, *, their_batch: Batch | None = None
) -> WeightMap:
    """The map under which both programs compute the same in float64, as far as one is found."""
    here, there = Surveyed.of(ours), Surveyed.of(theirs)
    reference = here.graph(ours, batch, here.values(generic_values), run)
    program = there.graph(theirs, their_batch or batch, {}, run)
    tables = _tables(program, there)
    empty = _empty_tables(program, tables, reference, here)
    found = _searched(reference, program, tables - empty, here, there) if empty else WeightMap(())
    if not (found.agrees or found.is_known):
        found = _searched(reference, program, tables, here, there)
    if not found.agrees:
        return found
    # Of names only where the map is proven: of a wrong port a partial map may be crossed to gain anchors.
    crossings = find_crossings(found.by_target, kinds_of(program))
    return replace(_with_copies(_with_statistics(found, here, there), here, there), crossings=crossings)


def _searched(reference: Graph, program: Graph, own: frozenset[str], here: Surveyed, there: Surveyed) -> WeightMap:
    """The map that a search finds, `own` being the candidate's tables that stay as they are."""
    candidate, pieces = in_pieces(program, own)
    proposals, kept = layer_proposals(here, there), (here.kept(), there.kept())
    roles = result_roles(reference.program, candidate.program)

    def search(ours: Graph, theirs: Graph, stated: Mapping[str, Link], bridged: bool = True) -> WeightMap:
        return Search(
            ours, theirs, own=own, kept=kept, proposals=proposals, stated=stated, roles=roles, bridged=bridged
        ).run()

    def searched(ours: Graph, theirs: Graph, stated: Mapping[str, Link]) -> WeightMap:
        begun = with_generic_states(ours, theirs)
        found = WeightMap(()) if begun is None else search(*begun, stated, bridged=False)
        # Found with other numbers to begin with, it must hold with those that the programs have.
        found = search(ours, theirs, found.by_target) if found.agrees else found
        return found if found.agrees else search(ours, theirs, stated)

    given, taken, learned = with_learned_inputs(reference, candidate)
    found = searched(given, taken, learned) if learned else WeightMap(())
    if not found.agrees:
        # What was taken for a learned input may be a weight like any other.
        plain = searched(reference, candidate, {})
        found = plain if plain.agrees or not found.bridged else found
    return pieces.whole(found)


def proven_map(ours: Side, theirs: Side, batch: Batch, links: Sequence[Link], run: Scope = _PLAIN) -> WeightMap | None:
    """These links as a map, if they leave no weight and both programs give the same results in float64 with it."""
    return _recorded(ours, theirs, lambda: _proven(ours, theirs, batch, WeightMap(tuple(links)), run))


def _proven(ours: Side, theirs: Side, batch: Batch, found: WeightMap, run: Scope) -> WeightMap | None:
    here, there = Surveyed.of(ours), Surveyed.of(theirs)
    values = here.values(generic_values)
    if here.names() - found.by_source.keys() - here.tables() or there.names() - found.by_target.keys() - there.tables():
        return None
    reference = here.graph(ours, batch, values, run).program
    graph = there.graph(theirs, batch, found.apply(values.__getitem__), run)
    candidate = graph.program
    pairs = [
        (reference.arrays[reference.results[role]], candidate.arrays[candidate.results[other]])
        for other, role in result_roles(reference, candidate).items()
    ]
    if not pairs or not all(one.shape == other.shape and same_numbers(one, other) for one, other in pairs):
        return None
    return replace(found, agrees=True, complete=True, crossings=find_crossings(found.by_target, kinds_of(graph)))


def of_model(found: WeightMap, prefix: str) -> WeightMap:
    """What the map says of one of several models, in that model's own names."""
    if not prefix:
        return found
    front = f"{prefix}."

    def own(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name.removeprefix(front) for name in names if name.startswith(front))

    links = tuple(
        replace(link, target=link.target.removeprefix(front), sources=own(link.sources))
        for link in found.links
        if all(name.startswith(front) for name in (link.target, *link.sources))
    )
    return WeightMap(links, unproven=own(found.unproven))


def of_program(links: Iterable[Link], name: str, ours: Side, theirs: Side) -> Iterator[Link]:
    """Links between models of one name on both sides, in the names of the programs."""
    here, there = Surveyed.of(ours), Surveyed.of(theirs)
    for link in links:
        sources = tuple(here.name(name, one) for one in link.sources)
        yield replace(link, target=there.name(name, link.target), sources=sources)


def _with_statistics(found: WeightMap, here: Surveyed, there: Surveyed) -> WeightMap:
    """The map with what a run does not use (statistics of a norm that trains), by the layers that were paired."""
    proposals = layer_proposals(here, there)
    known = found.by_target
    more: dict[str, Link] = {}
    for target in found.left_in_candidate:
        for proposal in proposals.get(target, ()):
            pairs = [(link, known.get(link.target)) for link in proposal.links]
            decided = [(link, one) for link, one in pairs if one is not None]
            if decided and all(link.sources == one.sources for link, one in decided):
                more |= {link.target: link for link, one in pairs if one is None}
                break
    links = (*found.links, *(replace(link, proof="structure") for link in more.values()))
    used = {name for link in links for name in link.sources}
    return replace(
        found,
        links=links,
        left_in_candidate=tuple(name for name in found.left_in_candidate if name not in more),
        left_in_reference=tuple(name for name in found.left_in_reference if name not in used),
    )


def _with_copies(found: WeightMap, here: Surveyed, there: Surveyed) -> WeightMap:
    """The map with models that are never called (averages of weights), which go as those that they are copies of."""
    more: list[Link] = []
    for prefix, model in there.surveys.items():
        idle = {there.name(prefix, name): name for name in model.names}
        if not prefix or prefix not in here.surveys or not idle.keys().isdisjoint(found.by_target):
            continue
        for other in there.surveys.keys() & here.surveys.keys() - {prefix}:
            copied = [_of_copy(found.by_target.get(_full(other, name)), other, prefix) for name in idle.values()]
            links = [link for link in copied if link is not None]
            if len(links) == len(copied) and all(name in here.shapes() for link in links for name in link.sources):
                more += links
                break
    return replace(found, links=(*found.links, *more))


def _of_copy(link: Link | None, model: str, copy: str) -> Link | None:
    """The link of a weight of one model as that of the same weight of its copy."""
    if link is None or not all(name.startswith(f"{model}.") for name in link.sources):
        return None
    target, *sources = (copy + name.removeprefix(model) for name in (link.target, *link.sources))
    return replace(link, target=target, sources=tuple(sources), proof="structure")


def read_weights(side: Side) -> dict[str, Array]:
    """Every weight of a side as it stands, by the names of the map."""
    return Surveyed.of(side).values(lambda one: {name: one.read(name) for name in one.names})


def with_file_names(found: WeightMap, ours: Side, theirs: Side) -> WeightMap:
    """The map with what is needed to read and write checkpoints: the names that only files use, and the models'."""
    models = tuple(ours.model) if isinstance(ours.model, Mapping) else ()
    return replace(found, reference_files=_file_names(ours), candidate_files=_file_names(theirs), models=models)


def _file_names(side: Side) -> dict[str, str]:
    found = {
        _full(prefix, name): _full(prefix, first)
        for prefix, one in Surveyed.of(side).surveys.items()
        for name, first in one.live.file_names().items()
    }
    return {name: first for name, first in found.items() if name != first}


def write_weights(side: Side, arrays: Mapping[str, Array]) -> Side:
    """The side with these weights, by the names of the map: overwritten where its models are objects, not values."""
    made: dict[str, Any] = {}
    for prefix, one in Surveyed.of(side).surveys.items():
        names = {one.state[name].first for name in one.names}
        own = {name: arrays[_full(prefix, name)] for name in names if _full(prefix, name) in arrays}
        made[prefix] = one.live.write({name: array.astype(one.read(name).dtype) for name, array in own.items()})
    return replace(side, model=made if isinstance(side.model, Mapping) else made[""])


def _tables(candidate: Graph, there: Surveyed) -> frozenset[str]:
    return there.tables() | (frozenset(candidate.names) - there.names())


def _empty_tables(candidate: Graph, tables: frozenset[str], reference: Graph, here: Surveyed) -> frozenset[str]:
    """Tables of one number throughout (zeros, ones) where the reference has one of that size that says something.

    They wait for a checkpoint (statistics of a norm written by hand, random frequencies); a table that says something
    itself stays, since it may be what is wrong.
    """
    kept = (reference.program.arrays[reference.number[name]] for name in here.kept() if name in reference.number)
    sizes = {array.size for array in kept if array.dtype.kind == "f" and is_informative(array)}
    arrays = {name: candidate.program.arrays[candidate.number[name]] for name in candidate.names if name in tables}
    return frozenset(
        name
        for name, array in arrays.items()
        if array.dtype.kind == "f" and array.size in sizes and bool((array == array.reshape(-1)[0]).all())
    )


def result_roles(reference: Program, candidate: Program) -> dict[str, str]:
    """The reference's result for each of the candidate's: by name, else by place."""
    ours, theirs = list(reference.results), list(candidate.results)
    if set(theirs) <= set(ours):
        return {role: role for role in theirs}
    found = {"loss": "loss"} if "loss" in ours and "loss" in theirs else {}
    here, there = ([role for role in side if role != "loss"] for side in (ours, theirs))
    if len(here) == len(there):
        return found | dict(zip(there, here, strict=True))
    # One side returns more than the other (a cache, hidden states): the same shapes in the same order.
    shapes = [reference.arrays[reference.results[role]].shape for role in here]
    wanted = [candidate.arrays[candidate.results[role]].shape for role in there]
    if len(here) > len(there):
        return found | {there[few]: here[many] for few, many in _in_order(wanted, shapes)}
    return found | {there[many]: here[few] for few, many in _in_order(shapes, wanted)}


def _in_order(few: list[tuple[int, ...]], many: list[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
    """For each of the few the first of the many that is left, comes later and has its shape, but for axes of one."""
    start = 0
    for number, shape in enumerate(few):
        for place in range(start, len(many)):
            if [size for size in many[place] if size != 1] == [size for size in shape if size != 1]:
                yield number, place
                start = place + 1
                break


def layer_proposals(here: Surveyed, there: Surveyed) -> dict[str, tuple[Proposal, ...]]:
    """For every weight of a known layer of the candidate: how layers of that kind in the reference would fill it."""
    by_kind: dict[Any, list[tuple[str, Unit]]] = {}
    ours, theirs = here.units(), there.units()
    for prefix, unit in ours:
        by_kind.setdefault(unit.signature, []).append((prefix, unit))
    found: dict[str, list[Proposal]] = {}
    shapes, sizes = ({prefix: shapes_of(one) for prefix, one in side.surveys.items()} for side in (there, here))
    for prefix, unit in theirs:
        if unit.kind == BARE:
            continue
        for other_prefix, other in by_kind.get(unit.signature, ())[:64]:
            pair = UnitPair(other, unit, "values")
            links = tuple(
                replace(
                    link,
                    target=there.name(prefix, link.target),
                    sources=tuple(here.name(other_prefix, name) for name in link.sources),
                )
                for link in paired_links([pair], shapes[prefix], sizes[other_prefix])
            )
            for link in links:
                found.setdefault(link.target, []).append(Proposal(links))
    return {name: tuple(some) for name, some in found.items()}
