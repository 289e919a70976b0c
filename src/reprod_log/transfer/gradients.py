"""transfer_gradients: the gradients of one model onto another, by the plan of their weights."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from reprod_log.errors import TransferError
from reprod_log.pairing.live import Inputs, Order, Survey, shapes_of, survey
from reprod_log.pairing.weight_map import Move
from reprod_log.recording import Array
from reprod_log.transfer.report import TransferReport
from reprod_log.transfer.weights import How, Prepared, prepare, refuse_incomplete


def transfer_gradients(
    source: Any,
    target: Any,
    *,
    report: TransferReport | None = None,
    rename: Mapping[str, str] | None = None,
    allow_left: Iterable[str] = (),
    inputs: Inputs | None = None,
    target_inputs: Inputs | None = None,
    order: Order | None = None,
) -> TransferReport:
    """Puts the gradients of the source model's parameters onto the target's and returns what went where.

    Pass the `report` of `transfer_weights` to go by the same plan; without it a new plan is made from the other
    parameters, which mean what they mean there. A parameter without a gradient leaves its partner without one.
    """
    prepared = planned(source, target, report, How(rename, allow_left, inputs, target_inputs, order))
    here, there = prepared.source, prepared.target
    moves = [move for move in prepared.plan.moves if both_parameters(here, there, move)]
    arrays = {move.target: _gradient(here, move) for move in moves}
    there.live.set_gradients(arrays)
    moved = {name for name, array in arrays.items() if array is not None}
    rows = tuple(row for row in prepared.report.rows if row.target in moved)
    return replace(prepared.report, rows=rows)


def planned(source: Any, target: Any, report: TransferReport | None, how: How) -> Prepared:
    """Both models surveyed, with the plan of an earlier report or a new one; a plan that leaves anything is refused."""
    if report is None or report.plan is None:
        prepared = prepare(source, target, how, verify=True)
        refuse_incomplete(prepared.report, "raise")
        return prepared
    here, there = survey(source), survey(target)
    shapes = shapes_of(there)
    for move in report.plan.moves:
        if shapes.get(move.target) != move.shape or not set(move.sources) <= set(here.names):
            raise TransferError(f"The report is of other models: it fills '{move.target}' from {move.sources[0]!r}.")
    return Prepared(here, there, report.plan, report)


def both_parameters(source: Survey, target: Survey, move: Move) -> bool:
    """Whether a move is between parameters and not buffers."""
    return move.target in target.trained and source.trained.issuperset(move.sources)


def _gradient(source: Survey, move: Move) -> Array | None:
    found = {name: source.live.gradient(name) for name in move.sources}
    if all(array is None for array in found.values()):
        return None
    # Of several tensors packed into one, those without a gradient count as zero.
    arrays = {
        name: np.zeros(source.shape(name), np.float32) if array is None else array for name, array in found.items()
    }
    return move.apply(arrays.__getitem__)
