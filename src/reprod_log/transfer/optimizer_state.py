"""transfer_optimizer_state: moments and step counts of one optimizer into another, by the rules of the weights."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reprod_log.capture.live import LiveOptimizer
from reprod_log.errors import TransferError, UsageError, counted
from reprod_log.layers.optimizers import (
    STEP,
    OptimizerColumn,
    OptimizerKind,
    find_optimizer,
    from_canonical,
    to_canonical,
)
from reprod_log.messages import message
from reprod_log.pairing.links import Link
from reprod_log.pairing.survey import Inputs, Order, Survey
from reprod_log.pairing.units import Unit
from reprod_log.recording import Array
from reprod_log.transfer.gradients import as_gradient, both_parameters, planned
from reprod_log.transfer.report import TransferReport, TransferRow, changes
from reprod_log.transfer.weights import How, layers_of


def transfer_optimizer_state(
    source_optimizer: Any,
    target_optimizer: Any,
    source_model: Any,
    target_model: Any,
    *,
    report: TransferReport | None = None,
    rename: Mapping[str, str] | None = None,
    allow_left: Iterable[str] = (),
    inputs: Inputs | None = None,
    target_inputs: Inputs | None = None,
    order: Order | None = None,
) -> TransferReport:
    """Copies moments and step counts between two optimizers of one kind and returns what went where.

    Learning rate, betas and other settings stay as they are on each side. Pass the `report` of `transfer_weights` to
    go by the same plan. A parameter that the source has not stepped yet is set back to its first step in the target.
    """
    how = How(rename, allow_left, inputs, target_inputs, order)
    prepared = planned(source_model, target_model, report, how)
    here, there = _Side.of(prepared.source, source_optimizer), _Side.of(prepared.target, target_optimizer)
    if here.row.kind != there.row.kind:
        raise UsageError(f"The source optimizer is {here.title}, the target optimizer {there.title}.")
    links = [link for link in prepared.plan.links if both_parameters(here.survey, there.survey, link)]
    steered = _steered(here, there, links)
    states = {link.target: _state(here, there, link) for link in steered}
    for name, state in states.items():
        there.write(name, state)
    rows = tuple(
        row for link in steered for row in _rows(link, layers_of(link, here.survey, there.survey), states[link.target])
    )
    return TransferReport(here.survey.framework, there.survey.framework, rows, plan=prepared.plan)


@dataclass(frozen=True)
class _Side:
    """One optimizer with its model and its row of the table."""

    survey: Survey
    optimizer: Any
    state: LiveOptimizer
    row: OptimizerKind

    @classmethod
    def of(cls, survey: Survey, optimizer: Any) -> "_Side":
        name = survey.framework
        classes = [one.__name__ for one in type(optimizer).__mro__]
        roots = {one.__module__.partition(".")[0] for one in type(optimizer).__mro__}
        row = find_optimizer(name, classes) if name in roots else None
        if row is None or not row.transferable:
            raise UsageError(f"{classes[0]} is not an optimizer of {name} whose state has a rule.")
        return cls(survey, optimizer, survey.live.optimizer(optimizer), row)

    @property
    def column(self) -> OptimizerColumn:
        """How the optimizer's framework keeps its state."""
        return self.row.columns[self.survey.framework]

    @property
    def title(self) -> str:
        """The optimizer's class, as the framework calls it."""
        return self.column.classes[0]

    def updates(self, name: str) -> bool:
        return name in self.state.updates

    def read(self, name: str) -> dict[str, Array]:
        """The canonical state of the named parameter; empty before the first step."""
        native, constants = self.state.read(name), self.state.constants(name)
        state = to_canonical(self.row, self.survey.framework, native, constants) if native else {}
        return state if state.get(STEP, 1) != 0 else {}

    def kept(self, name: str) -> frozenset[str]:
        """The moments (by their canonical names) that the optimizer keeps with its present settings."""
        return frozenset(one for one, slot in self.column.slots.items() if self.state.is_kept(name, slot))

    def write(self, name: str, state: Mapping[str, Array]) -> None:
        constants = self.state.constants(name)
        self.state.write(name, from_canonical(self.row, self.survey.framework, state, constants) if state else {})


def _steered(here: _Side, there: _Side, links: list[Link]) -> list[Link]:
    """The links between parameters that both optimizers update; anything lopsided is refused."""
    lopsided = [
        link
        for link in links
        if there.updates(link.target) != any(here.updates(name) for name in link.sources)
        or len({here.updates(name) for name in link.sources}) > 1
    ]
    if lopsided:
        link = lopsided[0]
        has, lacks = ("target", "source") if there.updates(link.target) else ("source", "target")
        raise TransferError(
            f"'{link.sources[0]}' in the source and '{link.target}' in the target are partners, but only the {has} "
            f"optimizer updates its one ({counted(len(lopsided), 'such pair')}). Give it to the {lacks} optimizer too. "
            "Nothing was changed."
        )
    return [link for link in links if there.updates(link.target)]


def _state(here: _Side, there: _Side, link: Link) -> dict[str, Array]:
    """The canonical state for the target's parameter, in the target's layout."""
    states = {name: here.read(name) for name in link.sources}
    stepped = [state for state in states.values() if state]
    if not stepped:
        return {}
    counts = {float(state[STEP]) for state in stepped if STEP in state}
    if len(counts) > 1 or len(stepped) < len(states):
        raise TransferError(
            f"{', '.join(link.sources)} become one tensor, '{link.target}', but have taken different numbers of steps. "
            "Nothing was changed."
        )
    slots = [slot for slot in here.column.slots if all(slot in state for state in stepped)]
    result: dict[str, Array] = {}
    for slot in slots:
        result[slot] = as_gradient(link, {name: state[slot] for name, state in states.items()})
    kept = there.kept(link.target)
    _refuse_lost_moments(there, link, result, kept)
    if there.row.counted:
        # A moment that only the target keeps starts from zero. (SGD has no state of zeros: its first step sets it.)
        result |= {slot: np.zeros(link.shape, np.float32) for slot in kept - result.keys()}
    result = {slot: array for slot, array in result.items() if slot in kept}
    if counts:
        result[STEP] = np.asarray(counts.pop(), np.float32)
    return result


def _refuse_lost_moments(there: _Side, link: Link, state: Mapping[str, Array], kept: frozenset[str]) -> None:
    lost = [slot for slot, array in state.items() if slot not in kept and np.any(array)]
    if lost:
        raise TransferError(
            f"The source optimizer keeps '{lost[0]}' for '{link.sources[0]}', but the target's "
            f"{type(there.optimizer).__name__} keeps none with its settings. Nothing was changed."
        )


def _rows(link: Link, layers: tuple[Unit, Unit], state: Mapping[str, Array]) -> list[TransferRow]:
    why = message("transfer.check.follows_weight")
    return [
        TransferRow.of(link, layers, "unverified", why, changes(link), f":{slot}") for slot in state if slot != STEP
    ]
