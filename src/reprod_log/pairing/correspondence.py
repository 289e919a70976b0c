"""All the ways of pairing, one after the other, each on what the ones before left over."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from reprod_log.errors import UsageError
from reprod_log.layers.transform import Array
from reprod_log.pairing.loose import match_loose
from reprod_log.pairing.model_values import Context, Pairs, Settlement
from reprod_log.pairing.names import match_names, match_renames
from reprod_log.pairing.order import match_order
from reprod_log.pairing.pieces import take_apart
from reprod_log.pairing.structure import (
    Ambiguity,
    by_signature,
    lone_bare_units,
    match_single_tensors,
    match_structure,
)
from reprod_log.pairing.survey import Survey
from reprod_log.pairing.unit import BARE, PIECE, Unit
from reprod_log.pairing.weight_map import UnitPair, make_plan
from reprod_log.pairing.wording import attention_role
from reprod_log.transfer.execution import Inputs, Trace, run_model
from reprod_log.transfer.verification import canonical_outputs, owners_agree

Order = Literal["registration", "execution"]


@dataclass(frozen=True)
class Correspondence:
    """Which unit goes where, what could not be decided, and how far the whole models agree under it."""

    pairs: Pairs
    undecided: tuple[Ambiguity, ...] = ()
    context: Context | None = None
    source_trace: Trace | None = None
    target_trace: Trace | None = None


def correspond(
    source: Survey,
    target: Survey,
    *,
    rename: Mapping[str, str],
    order: Order | None,
    inputs: Inputs | None,
    target_inputs: Inputs | None,
    values: Mapping[str, Array],
) -> Correspondence:
    """The correspondence of two live models: renames, names, order, structure; with inputs, proved by values.

    `values` are the source's tensors as the proof is to use them.
    """
    if order not in (None, "registration", "execution"):
        raise UsageError(f"order is 'registration', 'execution' or None, not {order!r}.")
    if order == "execution" and inputs is None:
        raise UsageError("order='execution' needs inputs= to run both models on.")
    pairs = match_renames(source.units, target.units, rename)
    pairs += match_names(*_rest(source.units, target.units, pairs))
    if inputs is None:
        return _without_runs(source, target, pairs, order)
    given = inputs, inputs if target_inputs is None else target_inputs
    return _with_runs(source, target, pairs, order, given, values)


def _without_runs(source: Survey, target: Survey, pairs: list[UnitPair], order: Order | None) -> Correspondence:
    sources, targets = take_apart(*_rest(source.units, target.units, pairs))
    if order == "registration":
        found = match_order(sources, targets, {}, how="registration order")
        pairs, sources, targets = pairs + found, *_rest(sources, targets, found)
    found, undecided = match_structure(sources, targets)
    found += match_single_tensors(*_rest(sources, targets, found))
    return Correspondence((*pairs, *found), tuple(undecided))


def _with_runs(
    source: Survey,
    target: Survey,
    pairs: list[UnitPair],
    order: Order | None,
    given: tuple[Inputs, Inputs],
    values: Mapping[str, Array],
) -> Correspondence:
    inputs, target_inputs = given
    source_trace = run_model(source, inputs, values, side="source")
    first_trace = run_model(target, target_inputs, {}, side="target")
    sources, targets = take_apart(*_rest(source.units, target.units, pairs))
    decided = {pair.source.path: pair.target.path for pair in pairs}
    here = source_trace.in_order((*(pair.source for pair in pairs), *sources))
    there = first_trace.in_order((*(pair.target for pair in pairs), *targets))
    pairs = pairs + match_order(here, there, decided, how="execution order")
    found, undecided = match_structure(*_rest(sources, targets, pairs))
    pairs = pairs + found
    pairs += match_single_tensors(*_rest(sources, targets, pairs))
    pairs += match_loose(*_rest(sources, targets, pairs), pairs, source_trace.ends, first_trace.ends)
    guesses = lone_bare_units(*_rest(sources, targets, pairs))

    def run_target(tried: Pairs) -> Trace:
        plan = make_plan(tried, shapes_of(target))
        return run_model(target, target_inputs, plan.carry(values.__getitem__), side="target")

    def outputs(unit: Unit, trace: Trace, side: str) -> tuple[Array, ...] | None:
        return _unit_outputs(source if side == "source" else target, unit, trace)

    settlement = Settlement(source_trace, run_target, outputs, first_run=first_trace)
    settled, context, trace = found_out = settlement.settle((*pairs, *guesses))
    if guesses and not _explained(guesses, found_out, source_trace):
        without = settlement.settle(tuple(pairs))
        if not settlement.gets_further(found_out, without[1]):
            settled, context, trace = without
    if order == "execution":
        settled += tuple(_in_turn(*_rest(sources, targets, settled)))
    else:
        unproved = _unproved(settlement, settled, context)
        undecided += unproved
        doubtful = {unit.path for group in unproved for unit in group.targets}
        settled = tuple(pair for pair in settled if pair.target.path not in doubtful)
    settled = settlement.with_doubts(settled, context)
    return Correspondence(settled, tuple(undecided), context, source_trace, trace)


def _in_turn(sources: Iterable[Unit], targets: Iterable[Unit]) -> list[UnitPair]:
    """What no run reached, where both sides have equally many of one signature: in the order of registration."""
    here, there = by_signature(sources), by_signature(targets)
    return [
        UnitPair(one, other, "registration order")
        for signature, group in here.items()
        if len(group) == len(there.get(signature, []))
        for one, other in zip(group, there[signature], strict=True)
    ]


def _explained(guesses: list[UnitPair], tried: tuple[Pairs, Context, Trace], source: Trace) -> bool:
    """Whether nothing differs and the modules that hold the guessed tensors return the same."""
    _, context, trace = tried
    return context.first is None and all(owners_agree(pair, source, trace) for pair in guesses)


def _unproved(settlement: Settlement, pairs: Pairs, context: Context) -> list[Ambiguity]:
    """Groups that order cannot tell apart, that names do not tell apart, and that the values left open."""
    groups = []
    for group in settlement.siblings(pairs):
        roles = [(attention_role(pairs[i].source.path), attention_role(pairs[i].target.path)) for i in group]
        told_by_role = all(one is not None and one == other for one, other in roles)
        if not told_by_role and not settlement.proved(pairs, group, context):
            groups.append(Ambiguity(tuple(pairs[i].source for i in group), tuple(pairs[i].target for i in group)))
    return groups


def _unit_outputs(survey: Survey, unit: Unit, trace: Trace) -> tuple[Array, ...] | None:
    call = trace.calls.get(unit.owner)
    if call is None or unit.kind == BARE:
        return None
    if unit.class_name == PIECE:
        # Only the last piece of an attention layer has outputs of its own: those of the whole layer.
        whole = next((one for one in survey.units if one.path == unit.owner), None)
        if whole is None or whole.kind != "multihead_attention" or not unit.path.endswith(".out"):
            return None
        unit = whole
    return canonical_outputs(survey, unit, call.outputs)


def shapes_of(survey: Survey) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor by name."""
    return {name: survey.shape(name) for name in survey.tensors}


def _rest(
    sources: Iterable[Unit], targets: Iterable[Unit], pairs: Iterable[UnitPair]
) -> tuple[tuple[Unit, ...], tuple[Unit, ...]]:
    pairs = list(pairs)
    here = {pair.source.path for pair in pairs}
    there = {pair.target.path for pair in pairs}
    return (
        tuple(unit for unit in sources if unit.path not in here),
        tuple(unit for unit in targets if unit.path not in there),
    )
