"""Pairs proved by values: with the planned weights, both models must compute the same at every paired layer.

Execution order cannot tell apart layers that take the same input side by side (queries, keys, values) or that lie in
parallel branches. Their partners are exchanged until the two models agree, and if nothing helps, that is said.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from reprod_log.errors import counted
from reprod_log.layers.transform import Array
from reprod_log.pairing.agreement import MODEL_LIMIT, rearranged_difference
from reprod_log.pairing.unit import BARE, PIECE, Signature, Unit
from reprod_log.pairing.weight_map import UnitPair
from reprod_log.pairing.wording import attention_role, closeness
from reprod_log.transfer.execution import Trace

Pairs = tuple[UnitPair, ...]
RunTarget = Callable[[Pairs], Trace]
# The outputs of a unit's layer in the canonical arrangement.
Outputs = Callable[[Unit, Trace, str], tuple[Array, ...] | None]

# Runs of the target that the search may take; each block of a model needs at most as many as its layers have orders.
_MOST_RUNS = 200
# Six orders of three layers, 24 of four; five would be 120.
_LARGEST_GROUP = 4


@dataclass(frozen=True)
class Context:
    """How far two models agree when run as a whole: the number of layers compared, and the first that differs."""

    compared: int
    first: UnitPair | None = None
    difference: float = 0.0
    # Whether the layer that differs first got the same input: then it is the layer itself and not what comes before.
    same_input: bool = False

    def __str__(self) -> str:
        if self.compared == 0:
            return "nothing to compare in the run of the whole models"
        if self.first is None:
            return f"the whole models agree at {counted(self.compared, 'the # layer', 'all # layers')} compared"
        return f"the whole models differ from '{self.first.target.path}' on (relative {self.difference:.1e})"


class Settlement:
    """The search for partners under which both models compute the same."""

    def __init__(self, source: Trace, run_target: RunTarget, outputs: Outputs, *, first_run: Trace) -> None:
        self.source = source
        self.run_target = run_target
        self.outputs = outputs
        self.order = {path: index for index, path in enumerate(first_run.calls)}
        self.runs = 0

    def settle(self, pairs: Pairs) -> tuple[Pairs, Context, Trace]:
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

    def gets_further(self, tried: tuple[Pairs, Context, Trace], before: Context) -> bool:
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
        note = f"by order alone: the models differ from '{context.first.target.path}' on"
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
        call = self.source.calls.get(unit.owner)
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

    def _run(self, pairs: Pairs) -> Trace:
        self.runs += 1
        return self.run_target(pairs)

    def _compare(self, pairs: Pairs, trace: Trace) -> Context:
        compared = 0
        for pair in sorted(pairs, key=self._position):
            one = self.outputs(pair.source, self.source, "source")
            other = self.outputs(pair.target, trace, "target")
            if one is None or other is None:
                continue
            compared += 1
            off = rearranged_difference(one, other)
            if not off <= MODEL_LIMIT:
                given = self.source.calls[pair.source.owner].inputs, trace.calls[pair.target.owner].inputs
                same_input = rearranged_difference(*given) <= MODEL_LIMIT
                return Context(compared, pair, off, same_input)
        return Context(compared)

    def _improve(self, pairs: Pairs, trace: Trace, context: Context) -> tuple[Pairs, Context, Trace] | None:
        for tried in self._proposals(pairs, trace, context):
            if self.runs >= _MOST_RUNS:
                return None
            new_trace = self._run(tried)
            new = self._compare(tried, new_trace)
            if new.first is None or self._position(new.first) > self._position_of(context):
                return tried, new, new_trace
        return None

    def _proposals(self, pairs: Pairs, trace: Trace, context: Context) -> Sequence[Pairs]:
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

    def _same_input_elsewhere(self, pairs: Pairs, trace: Trace, here: int) -> list[int]:
        """Pairs whose source layer got what the target layer gets that should be its partner."""
        wrong = pairs[here]
        given = trace.calls[wrong.target.owner].inputs
        return [
            index
            for index, pair in enumerate(pairs)
            if index != here
            and not (pair.settled or wrong.settled)
            and pair.source.fits(wrong.source)
            and pair.source.owner in self.source.calls
            and rearranged_difference(self.source.calls[pair.source.owner].inputs, given) <= MODEL_LIMIT
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
