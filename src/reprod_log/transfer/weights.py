"""transfer_weights: one model's weights into another, by layer type, planned and proved before anything is written."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from reprod_log.capture.session import suppress_recording
from reprod_log.errors import TransferError, UsageError
from reprod_log.frameworks.side import Scope, Side
from reprod_log.frameworks.tensors import plain_batch
from reprod_log.messages import Name, message
from reprod_log.pairing.correspondence import Correspondence, Given, correspond
from reprod_log.pairing.links import Link, WeightMap
from reprod_log.pairing.live_map import search_weight_map
from reprod_log.pairing.survey import Inputs, Order, Survey, generic_values, survey
from reprod_log.pairing.units import Unit
from reprod_log.transfer.leftovers import find_leftovers
from reprod_log.transfer.report import TransferReport, TransferRow, changes
from reprod_log.transfer.verification import Check
from reprod_log.transfer.verification import verify as verify_links


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

    With `inputs` (arrays by parameter name, or a tuple) both models run, and weights go where both compute the same.
    Where no such map is found, or without inputs, layers are paired by equal path, by `rename` (source path or prefix
    to target path or prefix) and by unique fit. What cannot be decided is refused; `order="registration"` or
    `order="execution"` trusts that order.

    Nothing is written unless every weight has a target: `allow_left` (patterns of tensor names) loosens that. With
    `verify` every pair of layers is run on one input first; a layer that computes something different is refused,
    unless `on_difference="report"`. With `dry_run` nothing is refused and nothing is written; the report shows what
    would happen. A model that is a value (a function over a tree of parameters, a graph) stays as it is: the report's
    `model` has the weights.
    """
    if on_difference not in ("raise", "report"):
        raise UsageError(f"on_difference is 'raise' or 'report', not {on_difference!r}.")
    how = How(rename, allow_left, inputs, target_inputs, order)
    if dry_run:
        return prepare(source, target, how, verify=verify).report
    return transfer(source, target, how, verify=verify, on_difference=on_difference)


def transfer(
    source: Any, target: Any, how: "How", *, verify: bool = True, on_difference: Literal["raise", "report"]
) -> TransferReport:
    """Writes the source's weights into the target, unless something is left or, if that is to be raised, differs."""
    prepared = prepare(source, target, how, verify=verify)
    refuse_incomplete(prepared.report, on_difference)
    return replace(prepared.report, model=prepared.target.live.write(prepared.plan.apply(prepared.source.read)))


@dataclass(frozen=True)
class How:
    """How two models are paired, and what may be left: the options that all transfers share."""

    rename: Mapping[str, str] | None = None
    allow_left: Iterable[str] = ()
    inputs: Inputs | None = None
    target_inputs: Inputs | None = None
    order: Order | None = None
    found: WeightMap | None = None
    """The map that values speak for, where it was searched for already."""

    def given(self, source: Any, target: Any) -> Given:
        """What the two models are paired by; the map is searched for where there is something to run on."""
        if self.inputs is None:
            return Given(self.rename or {}, self.order, None, self.found or WeightMap(()))
        inputs = self.inputs, self.inputs if self.target_inputs is None else self.target_inputs
        found = self.found
        if found is None:
            batches = [(tuple(one) if isinstance(one, list) else one, None) for one in map(plain_batch, inputs)]
            sides, run = (Side(source), Side(target)), Scope(evaluation=True)
            with suppress_recording():
                found = search_weight_map(*sides, batches[0], run, their_batch=batches[1])
        return Given(self.rename or {}, self.order, inputs, found)


@dataclass(frozen=True)
class Prepared:
    """Two surveyed models, the map between them and the report on it; nothing has been written."""

    source: Survey
    target: Survey
    plan: WeightMap
    report: TransferReport


def prepare(source: Any, target: Any, how: How, *, verify: bool) -> Prepared:
    """The map from one live model to another, checked if asked to, with its report."""
    here, there = survey(source), survey(target)
    if here.live.model is there.live.model:
        raise UsageError("The source and the target are one and the same model.")
    values = generic_values(here) if verify or how.inputs is not None else {}
    values |= {here.first_name(name): array for name, array in values.items()}
    found = correspond(here, there, how.given(source, target), values)
    plan = WeightMap(found.links)
    _refuse_conflicts(here, there, plan)
    checks = verify_links(here, there, found, values) if verify else {}
    left = find_leftovers(here, there, found, how.allow_left)
    report = TransferReport(
        here.framework,
        there.framework,
        tuple(_row(here, there, link, found, checks.get(link.target)) for link in plan.links),
        left.in_source,
        left.in_target,
        left.allowed,
        left.reasons,
        None if found.runs is None else found.runs.message,
        plan,
    )
    return Prepared(here, there, plan, report)


def refuse_incomplete(report: TransferReport, on_difference: str) -> None:
    """Raises what the report complains of, with the assurance that nothing was changed."""
    try:
        report.raise_if_incomplete()
    except TransferError as error:
        if report.complete and on_difference == "report":
            return
        raise TransferError(f"{error} Nothing was changed.") from None


def _row(source: Survey, target: Survey, link: Link, found: Correspondence, check: Check | None) -> TransferRow:
    check = check or Check("unverified", message("transfer.check.not_asked"))
    notes = list(changes(link))
    dtypes = sorted({source.dtype(name) for name in link.sources})
    own = target.dtype(link.target)
    if dtypes != [own]:
        notes.append(message("note.transfer.cast", before=tuple(dtypes), after=own))
    if link.proof == "execution order" and found.runs is not None and found.runs.first is not None:
        notes.insert(0, message("note.transfer.order_alone", path=Name(found.runs.first.target.path)))
    return TransferRow.of(link, layers_of(link, source, target), check.status, check.why, notes)


def layers_of(link: Link, source: Survey, target: Survey) -> tuple[Unit, Unit]:
    """The unit of the source that a tensor comes from (the first, where there are several) and the target's."""
    return source.holders[source.first_name(link.sources[0])], target.holders[target.first_name(link.target)]


def _refuse_conflicts(source: Survey, target: Survey, plan: WeightMap) -> None:
    """Tied tensors of the target must get one value, whichever name it comes under."""
    first: dict[str, Link] = {}
    for link in plan.links:
        other = first.setdefault(target.first_name(link.target), link)
        if other is link or (other.sources == link.sources and other.recipe == link.recipe):
            continue
        mine, its = (one.apply([source.read(name) for name in one.sources]) for one in (link, other))
        if not np.array_equal(mine, its, equal_nan=True):
            raise TransferError(
                f"'{other.target}' and '{link.target}' are one tensor in the target, but would get two different "
                f"values, from {other.sources[0]!r} and {link.sources[0]!r}. Tie the weights in the source, or untie "
                "them in the target. Nothing was changed."
            )
