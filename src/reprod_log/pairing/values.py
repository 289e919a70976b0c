"""Values as proof: what order and shape leave open is settled by the numbers themselves.

Three projections of one input run in any order and have one shape; a position embedding has no layer at all; one author
computes the other branch first. When the two sides have the same weights, only one pairing makes their numbers agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING

from reprod_log.messages import Message, Name, Number, message
from reprod_log.pairing.distance import SAME, rearranged_difference
from reprod_log.pairing.names import closeness
from reprod_log.pairing.order import by_role
from reprod_log.pairing.units import BARE, PIECE, Signature, Unit, UnitPair
from reprod_log.recording import Array

if TYPE_CHECKING:
    from reprod_log.frameworks.contract import LayerCall


# Runs of the target that the search may take; each block of a model needs at most as many as its layers have orders.
_MOST_RUNS = 200
# Six orders of three layers, 24 of four; five would be 120.
_LARGEST_GROUP = 4


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
            for i, pair in zip(group, by_role([pairs[i] for i in group]), strict=True):
                new[i] = pair
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
