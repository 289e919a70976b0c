"""transfer_weights: one model's weights into another, by layer type, planned and proved before anything is written."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from reprod_log.errors import TransferError, UsageError
from reprod_log.messages import Message, message
from reprod_log.pairing.generic import generic_values
from reprod_log.pairing.live import Correspondence, Inputs, Order, Survey, correspond, find_leftovers, shapes_of, survey
from reprod_log.pairing.units import PIECE
from reprod_log.pairing.weight_map import Move, TransferPlan, make_plan
from reprod_log.transfer.report import TransferReport, TransferRow
from reprod_log.transfer.verification import Check, Runs
from reprod_log.transfer.verification import verify as verify_plan


def transfer_weights(
    source: Any,
    target: Any,
    *,
    rename: Mapping[str, str] | None = None,
    allow_left: Iterable[str] = (),
    verify: bool = True,
    inputs: Inputs | None = None,
    target_inputs: Inputs | None = None,
    order: Order | None = None,
    on_difference: Literal["raise", "report"] = "raise",
    dry_run: bool = False,
) -> TransferReport:
    """Copies all weights of the source model into the target; returns what went where, by which rule, and how sure.

    Layers are paired by equal path, by `rename` (source path or prefix to target path or prefix), by unique fit
    and, with `inputs` (arrays by parameter name, or a tuple), by the order in which both models call their
    layers, proved by their values. What cannot be decided is refused; `order="registration"` or
    `order="execution"` trusts that order.

    Nothing is written unless every weight has a target: `allow_left` (patterns of tensor names) loosens that. With
    `verify` every pair of layers is run on one input first; a layer that computes something different is refused,
    unless `on_difference="report"`. With `dry_run` nothing is refused and nothing is written; the report shows what
    would happen. A model that is a value (a function over a tree of parameters, a graph) stays as it is: the report's
    `model` has the weights.
    """
    if on_difference not in ("raise", "report"):
        raise UsageError(f"on_difference is 'raise' or 'report', not {on_difference!r}.")
    prepared = prepare(source, target, How(rename, allow_left, inputs, target_inputs, order), verify=verify)
    report = prepared.report
    if dry_run:
        return report
    refuse_incomplete(report, on_difference)
    return replace(report, model=prepared.target.live.write(prepared.plan.apply(prepared.source.read)))


@dataclass(frozen=True)
class How:
    """How two models are paired, and what may be left: the options that all transfers share."""

    rename: Mapping[str, str] | None = None
    allow_left: Iterable[str] = ()
    inputs: Inputs | None = None
    target_inputs: Inputs | None = None
    order: Order | None = None


@dataclass(frozen=True)
class Prepared:
    """Two surveyed models, the plan between them and the report on it; nothing has been written."""

    source: Survey
    target: Survey
    plan: TransferPlan
    report: TransferReport


def prepare(source: Any, target: Any, how: How, *, verify: bool) -> Prepared:
    """The plan from one live model to another, checked if asked to, with its report."""
    here, there = survey(source), survey(target)
    if here.live.model is there.live.model:
        raise UsageError("The source and the target are one and the same model.")
    values = generic_values(here) if verify or how.inputs is not None else {}
    found = correspond(
        here,
        there,
        rename=how.rename or {},
        order=how.order,
        inputs=how.inputs,
        target_inputs=how.target_inputs,
        values=values,
    )
    plan = make_plan(found.pairs, shapes_of(there))
    _refuse_conflicts(here, there, plan)
    checks = verify_plan(here, there, plan, values, _runs(found)) if verify else {}
    left = find_leftovers(here, there, plan, found.undecided, how.allow_left)
    report = TransferReport(
        here.framework,
        there.framework,
        tuple(_row(here, there, move, checks.get(move.pair.target.path)) for move in plan.moves),
        left.in_source,
        left.in_target,
        left.allowed,
        left.reasons,
        None if found.context is None else found.context.message,
        _doubts(here, there, found),
        plan,
    )
    return Prepared(here, there, plan, report)


def _doubts(source: Survey, target: Survey, found: Correspondence) -> tuple[Message, ...]:
    """Wide layers that were cut in three on one side, when the models then differ."""
    if found.context is None or found.context.first is None:
        return ()
    linear = {unit.path for survey in (source, target) for unit in survey.units if unit.kind == "linear"}
    cut = [unit for pair in found.pairs for unit in (pair.source, pair.target) if unit.class_name == PIECE]
    return tuple(
        message("note.transfer.packed", layer=repr(owner))
        for owner in dict.fromkeys(unit.owner for unit in cut if unit.owner in linear)
    )


def refuse_incomplete(report: TransferReport, on_difference: str) -> None:
    """Raises what the report complains of, with the assurance that nothing was changed."""
    try:
        report.raise_if_incomplete()
    except TransferError as error:
        if report.complete and on_difference == "report":
            return
        raise TransferError(f"{error} Nothing was changed.") from None


def _runs(found: Correspondence) -> Runs | None:
    if found.context is None or found.source_trace is None or found.target_trace is None:
        return None
    return Runs(found.source_trace, found.target_trace, found.context.first is None)


def _row(source: Survey, target: Survey, move: Move, check: Check | None) -> TransferRow:
    check = check or Check("unverified", message("transfer.check.not_asked"))
    notes = [] if move.pair.note is None else [move.pair.note]
    shapes = [source.shape(name) for name in move.sources]
    if not move.view.unchanged or shapes != [move.shape]:
        notes.append(message("view.done", steps=move.view.steps))
    dtypes = sorted({source.dtype(name) for name in move.sources})
    own = target.dtype(move.target)
    if dtypes != [own]:
        notes.append(message("note.transfer.cast", before=tuple(dtypes), after=own))
    return TransferRow.of(move, check.status, check.why, notes)


def _refuse_conflicts(source: Survey, target: Survey, plan: TransferPlan) -> None:
    """Tied tensors of the target must get one value, whichever name it comes under."""
    first: dict[str, Move] = {}
    for move in plan.moves:
        other = first.setdefault(target.first_name(move.target), move)
        if other is move or (other.sources == move.sources and other.view.pieces == move.view.pieces):
            continue
        if not np.array_equal(move.apply(source.read), other.apply(source.read), equal_nan=True):
            raise TransferError(
                f"'{other.target}' and '{move.target}' are one tensor in the target, but would get two different "
                f"values, from {other.sources[0]!r} and {move.sources[0]!r}. Tie the weights in the source, or untie "
                "them in the target. Nothing was changed."
            )
