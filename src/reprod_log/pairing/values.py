"""Values as proof: what order and shape leave open is settled by the numbers themselves.

Three projections of one input run in any order and have one shape; a position embedding has no layer at all; one author
computes the other branch first. When the two sides have the same weights, only one pairing makes their numbers agree.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING

from reprod_log.messages import Message, Name, Number, message
from reprod_log.pairing.distance import ANOTHER, SAME, distance, gap, rearranged_difference, relative
from reprod_log.pairing.names import attention_role, closeness
from reprod_log.pairing.order import lone_bare_units
from reprod_log.pairing.units import BARE, PIECE, PairedBy, Signature, Unit, UnitPair
from reprod_log.pairing.weight_map import tensor_views
from reprod_log.recording import Array, Entry, Recording

if TYPE_CHECKING:
    from reprod_log.frameworks.contract import LayerCall


_MOST_SIBLINGS = 6
_MOST_EXCHANGED = 64
"""Layers of one shape that are tried against each other."""
# Runs of the target that the search may take; each block of a model needs at most as many as its layers have orders.
_MOST_RUNS = 200
# Six orders of three layers, 24 of four; five would be 120.
_LARGEST_GROUP = 4


# ---- recorded models -------------------------------------------------------------------------------------------------
def first_outputs(recording: Recording) -> dict[str, Entry]:
    """What every module first gave, by path."""
    found: dict[str, Entry] = {}
    for entry in recording.entries:
        if entry.key.phase == "forward" and entry.key.role.startswith("output") and not entry.key.run:
            found.setdefault(entry.key.path, entry)
    return found


def first_parameters(recording: Recording) -> dict[str, Entry]:
    """Every parameter after the first step, by path."""
    found: dict[str, Entry] = {}
    for entry in recording.entries:
        if entry.key.phase == "parameter" and entry.detail != "summary" and not entry.key.run:
            found.setdefault(entry.key.path, entry)
    return found


def settle_siblings(pairs: Sequence[UnitPair], reference: Recording, candidate: Recording) -> list[UnitPair]:
    """The pairs with those re-paired that run on one and the same input, by role or by the values they give."""
    ours, theirs = first_outputs(reference), first_outputs(candidate)
    settled = list(pairs)
    for group in _siblings(pairs, reference):
        sources, targets = [pairs[i].source for i in group], [pairs[i].target for i in group]
        chosen = _by_role(sources, targets) or _by_outputs(sources, targets, ours, theirs)
        if chosen is not None:
            for place, (target, how) in zip(group, chosen, strict=True):
                settled[place] = replace(pairs[place], target=target, how=how)
    return settled


def _siblings(pairs: Sequence[UnitPair], reference: Recording) -> list[list[int]]:
    """Places of pairs, not settled by name, whose reference layers share signature and input."""
    inputs = {
        entry.key.path: entry.hash
        for entry in reversed(reference.entries)
        if entry.key.phase == "forward" and entry.key.role.startswith("input") and entry.hash and not entry.key.run
    }
    groups: defaultdict[tuple[object, str], list[int]] = defaultdict(list)
    for place, pair in enumerate(pairs):
        given = inputs.get(pair.source.owner, "")
        if given and not pair.settled:
            groups[pair.source.signature, given].append(place)
    return [group for group in groups.values() if 1 < len(group) <= _MOST_SIBLINGS]


def _by_role(sources: list[Unit], targets: list[Unit]) -> list[tuple[Unit, PairedBy]] | None:
    roles = {attention_role(unit.path): unit for unit in targets}
    wanted = [attention_role(unit.path) for unit in sources]
    if None in wanted or len(set(wanted)) < len(wanted) or set(wanted) != set(roles):
        return None
    return [(roles[role], "role") for role in wanted]


def _by_outputs(
    sources: list[Unit], targets: list[Unit], ours: Mapping[str, Entry], theirs: Mapping[str, Entry]
) -> list[tuple[Unit, PairedBy]] | None:
    """The one arrangement under which every output agrees; None when there is none or more than one."""
    left = [ours.get(unit.owner) for unit in sources]
    right = [theirs.get(unit.owner) for unit in targets]
    if any(entry is None or entry.detail == "summary" for entry in (*left, *right)):
        return None
    table = [[distance(one, other) for other in right if other] for one in left if one]
    fitting = [
        order
        for order in permutations(range(len(targets)))
        if all(table[row][column] < ANOTHER for row, column in enumerate(order))
    ]
    return [(targets[column], "values") for column in fitting[0]] if len(fitting) == 1 else None


def lone_tensors(
    sources: Iterable[Unit], targets: Iterable[Unit], reference: Recording, candidate: Recording
) -> list[UnitPair]:
    """Tensors outside of layers that are alone of their shape on either side and whose values agree."""
    ours, theirs = first_parameters(reference), first_parameters(candidate)
    found = []
    for pair in lone_bare_units(sources, targets):
        one, other = ours.get(pair.source.path), theirs.get(pair.target.path)
        if one is not None and other is not None and distance(one, other) < ANOTHER:
            found.append(replace(pair, how="values"))
    return found


def exchange_branches(pairs: Sequence[UnitPair], reference: Recording, candidate: Recording) -> list[UnitPair]:
    """The pairs, with partners exchanged among layers of one shape where that makes them agree."""
    settled = list(pairs)
    ours, theirs = first_outputs(reference), first_outputs(candidate)
    weights = _Weights(reference, candidate)

    def outputs_differ(one: Unit, other: Unit) -> float:
        here, there = ours.get(one.owner), theirs.get(other.owner)
        return math.nan if here is None or there is None else gap(here, there)

    for differ, limit in ((outputs_differ, SAME), (weights.differ, ANOTHER)):
        for group in _groups(settled):
            _exchange(settled, group, differ, limit)
    return settled


def _groups(pairs: Sequence[UnitPair]) -> list[list[int]]:
    groups: defaultdict[Signature, list[int]] = defaultdict(list)
    for place, pair in enumerate(pairs):
        if (
            not pair.settled
            and pair.source.kind != BARE
            and PIECE not in (pair.source.class_name, pair.target.class_name)
        ):
            groups[pair.source.signature].append(place)
    return [group for group in groups.values() if len(group) > 1]


def _exchange(pairs: list[UnitPair], group: list[int], differ: Callable[[Unit, Unit], float], limit: float) -> None:
    doubtful = [i for i in group if differ(pairs[i].source, pairs[i].target) > ANOTHER]
    if not 1 < len(doubtful) <= _MOST_EXCHANGED:
        return
    targets = [pairs[i].target for i in group]
    chosen: dict[int, Unit] = {}
    for i in doubtful:
        fitting = [one for one in targets if differ(pairs[i].source, one) < limit]
        if len(fitting) == 1:
            chosen[i] = fitting[0]
    # Those that found their partner change places among themselves only, so that nobody is left without one.
    taken = [pairs[i].target.path for i in chosen]
    if len({one.path for one in chosen.values()}) == len(chosen) and {one.path for one in chosen.values()} == set(
        taken
    ):
        for i, target in chosen.items():
            pairs[i] = replace(pairs[i], target=target, how="values")


class _Weights:
    """How far apart the weights of two layers are after the first step, each in the reference's layout."""

    def __init__(self, reference: Recording, candidate: Recording) -> None:
        self._ours, self._theirs = first_parameters(reference), first_parameters(candidate)

    def differ(self, one: Unit, other: Unit) -> float:
        tensor = one.tensors[0]
        mine = self._ours.get(tensor)
        if mine is None or mine.detail != "full":
            return math.nan
        view = tensor_views([UnitPair(one, other, "values")], dict.fromkeys(one.tensors, mine.shape)).get(tensor)
        parts = [] if view is None else [self._theirs.get(name) for name in view.candidate]
        known: list[Entry] = [part for part in parts if part is not None and part.detail == "full"]
        if view is None or len(known) < len(parts):
            return math.nan
        return relative(mine.array(), view.apply([part.array() for part in known], shape=mine.shape))


# ---- live models -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Calls:
    """The first call of every unit's layer, in the order in which the calls ended."""

    by_path: Mapping[str, LayerCall]

    @property
    def ends(self) -> dict[str, int]:
        """The place of every layer's first call in the order of ends, by path."""
        return {path: index for index, path in enumerate(self.by_path)}

    def in_order(self, units: tuple[Unit, ...]) -> list[Unit]:
        """The units that were called, in the order of their calls; pieces of one layer keep their own order."""
        position = self.ends
        called = [unit for unit in units if unit.owner in position and unit.kind != BARE]
        return sorted(called, key=lambda unit: position[unit.owner])


def owners_agree(pair: UnitPair, source: Calls, target: Calls) -> bool:
    """Whether the modules that hold two bare tensors returned the same, as far as both returned anything."""
    one, other = source.by_path.get(pair.source.owner), target.by_path.get(pair.target.owner)
    if one is None or other is None:
        return False
    common = min(len(one.outputs), len(other.outputs))
    return rearranged_difference(one.outputs[:common], other.outputs[:common]) <= SAME


@dataclass(frozen=True)
class Context:
    """How far two models agree when run as a whole: the number of layers compared, and the first that differs."""

    compared: int
    first: UnitPair | None = None
    difference: float = 0.0
    # Whether the layer that differs first got the same input: then it is the layer itself and not what comes before.
    same_input: bool = False

    @property
    def message(self) -> Message:
        """The same for a reader."""
        if self.compared == 0:
            return message("transfer.models.nothing")
        if self.first is None:
            return message("transfer.models.agree", count=self.compared)
        path, off = Name(self.first.target.path), Number(self.difference, ".1e")
        return message("transfer.models.differ", path=path, difference=off)


Pairs = tuple[UnitPair, ...]
RunTarget = Callable[[Pairs], Calls]
# The outputs of a unit's layer in the canonical arrangement.
Outputs = Callable[[Unit, Calls, str], tuple[Array, ...] | None]


class Settlement:
    """The search for partners under which both models compute the same."""

    def __init__(self, source: Calls, run_target: RunTarget, outputs: Outputs, *, first_run: Calls) -> None:
        self.source = source
        self.run_target = run_target
        self.outputs = outputs
        self.order = {path: index for index, path in enumerate(first_run.by_path)}
        self.runs = 0

    def settle(self, pairs: Pairs) -> tuple[Pairs, Context, Calls]:
        """The pairs after every exchange that made the models agree further, and how far they agree."""
        pairs = self._by_roles(pairs)
        trace = self._run(pairs)
        context = self._compare(pairs, trace)
        while context.first is not None and not context.same_input and self.runs < _MOST_RUNS:
            better = self._improve(pairs, trace, context)
            if better is None:
                break
            pairs, context, trace = better
        return pairs, context, trace

    def gets_further(self, tried: tuple[Pairs, Context, Calls], before: Context) -> bool:
        """Whether the models agree up to a later layer than they did."""
        _, context, _ = tried
        if before.first is None:
            return False
        return context.first is None or self._position(context.first) > self._position(before.first)

    def proved(self, pairs: Pairs, group: tuple[int, ...], context: Context) -> bool:
        """Whether the models still agree at a layer after the group, which another order would have changed."""
        if context.first is None:
            return context.compared > 0
        last, end = max(self._position(pairs[i]) for i in group), self._position(context.first)
        return any(last < self._position(pair) < end for pair in pairs)

    def with_doubts(self, pairs: Pairs, context: Context) -> Pairs:
        """The pairs, with a note on those that nothing but their order in execution speaks for."""
        if context.first is None:
            return pairs
        end = self._position(context.first)
        note = message("note.transfer.order_alone", path=Name(context.first.target.path))
        return tuple(
            replace(pair, note=note) if pair.how == "execution order" and self._position(pair) >= end else pair
            for pair in pairs
        )

    def siblings(self, pairs: Pairs) -> list[tuple[int, ...]]:
        """Groups of pairs (by position) that execution order cannot tell apart: one signature, one input, no name."""
        groups: defaultdict[tuple[Signature, bytes], list[int]] = defaultdict(list)
        for index, pair in enumerate(pairs):
            unit = pair.source
            given = self._given(unit)
            if not pair.settled and unit.kind != BARE and given is not None:
                groups[unit.signature, given].append(index)
        return [tuple(group) for group in groups.values() if len(group) > 1]

    def _given(self, unit: Unit) -> bytes | None:
        """What a unit got, in short; None if it was not called or is the last piece of an attention layer."""
        call = self.source.by_path.get(unit.owner)
        if call is None or (unit.class_name == PIECE and unit.path.endswith(".out")):
            return None
        return call.input_digest

    def _by_roles(self, pairs: Pairs) -> Pairs:
        """Siblings whose names tell queries, keys and values apart, put together by role."""
        new = list(pairs)
        for group in self.siblings(pairs):
            by_role = {attention_role(pairs[i].source.path): pairs[i].source for i in group}
            roles = [attention_role(pairs[i].target.path) for i in group]
            if None not in by_role and len(by_role) == len(group) and set(roles) == set(by_role):
                for i, role in zip(group, roles, strict=True):
                    new[i] = replace(pairs[i], source=by_role[role])
        return tuple(new)

    def _run(self, pairs: Pairs) -> Calls:
        self.runs += 1
        return self.run_target(pairs)

    def _compare(self, pairs: Pairs, trace: Calls) -> Context:
        compared = 0
        for pair in sorted(pairs, key=self._position):
            one = self.outputs(pair.source, self.source, "source")
            other = self.outputs(pair.target, trace, "target")
            if one is None or other is None:
                continue
            compared += 1
            off = rearranged_difference(one, other)
            if not off <= SAME:
                given = self.source.by_path[pair.source.owner].inputs, trace.by_path[pair.target.owner].inputs
                same_input = rearranged_difference(*given) <= SAME
                return Context(compared, pair, off, same_input)
        return Context(compared)

    def _improve(self, pairs: Pairs, trace: Calls, context: Context) -> tuple[Pairs, Context, Calls] | None:
        for tried in self._proposals(pairs, trace, context):
            if self.runs >= _MOST_RUNS:
                return None
            new_trace = self._run(tried)
            new = self._compare(tried, new_trace)
            if new.first is None or self._position(new.first) > self._position_of(context):
                return tried, new, new_trace
        return None

    def _proposals(self, pairs: Pairs, trace: Calls, context: Context) -> Sequence[Pairs]:
        here = next(index for index, pair in enumerate(pairs) if pair is context.first)
        proposals = [self._exchanged(pairs, here, other) for other in self._same_input_elsewhere(pairs, trace, here)]
        # Not later than the layer that differs; pieces of one layer share its place.
        before = [
            group
            for group in self.siblings(pairs)
            if here not in group
            and len(group) <= _LARGEST_GROUP
            and min(self._position(pairs[i]) for i in group) <= self._position(pairs[here])
        ]
        nearest = sorted(before, key=lambda group: -max(self._position(pairs[i]) for i in group))
        for group in nearest[:3]:
            proposals += [self._reordered(pairs, group, order) for order in _orders(pairs, group)]
        return proposals

    def _same_input_elsewhere(self, pairs: Pairs, trace: Calls, here: int) -> list[int]:
        """Pairs whose source layer got what the target layer gets that should be its partner."""
        wrong = pairs[here]
        given = trace.by_path[wrong.target.owner].inputs
        return [
            index
            for index, pair in enumerate(pairs)
            if index != here
            and not (pair.settled or wrong.settled)
            and pair.source.fits(wrong.source)
            and pair.source.owner in self.source.by_path
            and rearranged_difference(self.source.by_path[pair.source.owner].inputs, given) <= SAME
        ]

    @staticmethod
    def _exchanged(pairs: Pairs, one: int, other: int) -> Pairs:
        new = list(pairs)
        new[one] = replace(pairs[one], source=pairs[other].source, how="values")
        new[other] = replace(pairs[other], source=pairs[one].source, how="values")
        return tuple(new)

    @staticmethod
    def _reordered(pairs: Pairs, group: tuple[int, ...], order: tuple[int, ...]) -> Pairs:
        new = list(pairs)
        for to, from_ in zip(group, order, strict=True):
            if to != from_:
                new[to] = replace(pairs[to], source=pairs[from_].source, how="values")
        return tuple(new)

    def _position(self, pair: UnitPair) -> int:
        return self.order.get(pair.target.owner, len(self.order))

    def _position_of(self, context: Context) -> int:
        return -1 if context.first is None else self._position(context.first)


def _orders(pairs: Pairs, group: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All other orders of a group, the ones with the closest names first."""

    def wording(order: tuple[int, ...]) -> float:
        return sum(closeness(pairs[f].source.path, pairs[t].target.path) for t, f in zip(group, order, strict=True))

    return sorted((order for order in permutations(group) if order != group), key=wording, reverse=True)
