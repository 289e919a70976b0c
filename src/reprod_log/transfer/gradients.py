"""transfer_gradients: the gradients of one model onto another, by the plan of their weights."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from reprod_log.errors import TransferError
from reprod_log.pairing.links import Link, WeightMap
from reprod_log.pairing.survey import Inputs, Order, Survey, survey
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
    links = [link for link in prepared.plan.links if both_parameters(here, there, link)]
    arrays = {link.target: _gradient(here, link) for link in links}
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
    for link in report.plan.links:
        facts = there.state.get(link.target)
        if facts is None or facts.shape != link.shape or not set(link.sources) <= here.state.keys():
            raise TransferError(f"The report is of other models: it fills '{link.target}' from {link.sources[0]!r}.")
    return Prepared(here, there, report.plan, report)


def both_parameters(source: Survey, target: Survey, link: Link) -> bool:
    """Whether a link is between parameters and not buffers."""
    return link.target in target.trained and source.trained.issuperset(link.sources)


def _gradient(source: Survey, link: Link) -> Array | None:
    found = {name: source.live.gradient(name) for name in link.sources}
    if all(array is None for array in found.values()):
        return None
    # Of several tensors packed into one, those without a gradient count as zero.
    arrays = {
        name: np.zeros(source.shape(name), np.float32) if array is None else array for name, array in found.items()
    }
    return as_gradient(link, arrays)


def as_gradient(link: Link, arrays: Mapping[str, Array]) -> Array:
    """What is a gradient, or a mean of gradients, of the sources as that of the target."""
    found = WeightMap((link,)).gradients(arrays).get(link.target)
    if found is None:
        raise TransferError(
            f"'{link.target}' is computed from {', '.join(link.sources)}: their gradients and moments are not its own. "
            "Nothing was changed."
        )
    return found
