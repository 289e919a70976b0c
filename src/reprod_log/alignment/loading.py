"""The candidate with the reference's weights: through the map that values speak for, or as names and order have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from reprod_log.capture.live import live_model
from reprod_log.diagnose.proof import own_tables, replaced_tables
from reprod_log.errors import TransferError, UsageError
from reprod_log.frameworks.side import Batch, Scope, Side, as_mapping
from reprod_log.messages import Message, Names, message
from reprod_log.pairing.anchors import same_numbers
from reprod_log.pairing.correspondence import obeys
from reprod_log.pairing.links import Link, WeightMap
from reprod_log.pairing.live_map import (
    of_model,
    of_program,
    proven_map,
    read_weights,
    search_weight_map,
    write_weights,
)
from reprod_log.pairing.rename import rules_of_model
from reprod_log.pairing.survey import loose_buffers
from reprod_log.pairing.units import NAMED
from reprod_log.progress import stage
from reprod_log.recording.spool import Spool
from reprod_log.transfer import TransferReport
from reprod_log.transfer.weights import How, prepare, transfer

_ROUNDED = 1e-6
"""Weights of a converter that went through float32 are still those of the map."""


@dataclass(frozen=True)
class Loaded:
    """The candidate with weights, and what is to be known of them."""

    side: Side
    weights: WeightMap | None = None
    """The map they went through, where values speak for it."""
    notes: list[Message] = field(default_factory=list)
    """What was taken on trust."""
    tables: tuple[str, ...] = ()
    """Which of the candidate's tables were replaced."""
    assumed: WeightMap | None = None
    """A map that gave weights and that no run of both could prove."""


def load_weights(
    ours: Side, theirs: Side, batch: Batch, rename: Mapping[str, str], left: Sequence[str], spool: Spool | None
) -> Loaded:
    """The candidate with the reference's weights; `left` are patterns of those that may stay as they are."""
    found = searched_map(ours, theirs, batch, spool)
    if fixed := _fixed(ours, theirs):
        return replace(as_loaded(ours, theirs, found), notes=fixed)
    if found.agrees and obeys(found, rename):
        return _written(found, ours, theirs)
    try:
        with stage(message("progress.transfer")):
            done, links = transferred(ours, theirs, batch[0], rename, left, found)
    except TransferError:
        # Of a wrong port one wants to know where it goes wrong: as far as values speak for a map, it holds, and
        # weights that one side alone has (a norm that was forgotten) are part of the answer. Where no value speaks
        # for any of it, or both sides have such weights, the port may as well be right and the map not found.
        proven = found.by_target.keys() - set(found.unproven)
        one_sided = proven and not (found.left_in_reference and found.left_in_candidate)
        if not (found.complete or one_sided) or not obeys(found, rename):
            raise
        return _written(found, ours, theirs)
    agreed = proven_map(ours, done.side, batch, links, Scope(spool=spool))
    if agreed is not None or not found.links:
        return replace(done, weights=agreed)
    if found.is_known and obeys(found, rename):
        # Where names and structure have it otherwise, the values around a mistake decide.
        loaded = _is_loaded(found, ours, done.side)
        return replace(done, assumed=found) if loaded else _written(found, ours, theirs)
    unproven = tuple(link.target for link in links if link.proof not in NAMED)
    return replace(done, assumed=WeightMap(links, unproven=unproven, complete=True) if unproven else None)


def searched_map(ours: Side, theirs: Side, batch: Batch, spool: Spool | None) -> WeightMap:
    """The map that values speak for."""
    with stage(message("progress.map")):
        return search_weight_map(ours, theirs, batch, Scope(spool=spool))


def as_loaded(ours: Side, theirs: Side, found: WeightMap) -> Loaded:
    """The candidate as it is, with the map where that agrees and has its weights: it may have been loaded by hand."""
    return Loaded(theirs, found if found.agrees and _is_loaded(found, ours, theirs) else None)


def _written(found: WeightMap, ours: Side, theirs: Side) -> Loaded:
    side = write_weights(theirs, found.apply(read_weights(ours).__getitem__))
    # A narrow type has only rounded values of them.
    return Loaded(side, found if _is_loaded(found, ours, side) else None)


def _is_loaded(found: WeightMap, ours: Side, theirs: Side) -> bool:
    """Whether the candidate has the weights that the map gives it: it may have been loaded by hand."""
    here, there = read_weights(ours), read_weights(theirs)
    return all(
        same_numbers(np.asarray(array, np.float64), np.asarray(there[name], np.float64), _ROUNDED)
        for name, array in found.apply(here.__getitem__).items()
        if found.by_target[name].proof != "structure"
    )


def transferred(
    ours: Side,
    theirs: Side,
    inputs: Any,
    rename: Mapping[str, str],
    allowed: Sequence[str] = (),
    found: WeightMap | None = None,
) -> tuple[Loaded, tuple[Link, ...]]:
    """The candidate with the reference's weights as names, values and order have it, and where they come from.

    `found` is the map that values speak for, where it was searched for already.
    """
    there = dict(as_mapping(theirs.model))
    notes: list[Message] = []
    tables: list[str] = []
    links: list[Link] = []
    for name, source in as_mapping(ours.model).items():
        if name not in there:
            raise UsageError(f"the candidate has no model {name!r}; it has {', '.join(map(repr, there))}")
        before = own_tables(there[name])
        how = How(
            rules_of_model(rename, name),
            # Tables that only one side keeps stay as they are; what they change shows in the comparison.
            [*loose_buffers(source), *loose_buffers(there[name]), *(one.removeprefix(f"{name}.") for one in allowed)],
            # Several models have inputs of each other's making, so only a single one can be run.
            inputs if name == "" else None,
            found=None if found is None else of_model(found, name),
        )
        trust, report = _transfer_one(source, there[name], how)
        there[name] = report.model
        notes += trust
        links += of_program(report.plan.links if report.plan else (), name, ours, theirs)
        tables += [f"{name}.{table}" if name else table for table in replaced_tables(before, there[name], report)]
    model = there if isinstance(theirs.model, Mapping) else there[""]
    return Loaded(replace(theirs, model=model), None, notes, tuple(tables)), tuple(links)


def _fixed(ours: Side, theirs: Side) -> list[Message]:
    """Why no weights can be transferred: the model of a side offers none (the weights of a graph are part of it)."""
    return [
        message("note.transfer.fixed", framework=side.framework.name)
        for side in (ours, theirs)
        if side.framework.programs is not None
        and not any(module.inside for model in as_mapping(side.model).values() for module in live_model(model).modules)
    ]


def _transfer_one(source: Any, target: Any, how: How) -> tuple[list[Message], TransferReport]:
    """One model's weights into another; where nothing but order tells layers apart, that order is trusted, with a note.

    Values prove a pairing only where the models agree; of a wrong port one wants to know where it goes wrong.
    """
    try:
        return [], transfer(source, target, how, on_difference="report")
    except TransferError as refusal:
        if how.inputs is None:
            raise
        unproved = prepare(source, target, how, verify=False).report.left_in_target
        try:
            done = transfer(source, target, replace(how, order="execution"), on_difference="report")
        except TransferError:
            raise refusal from None
    return [message("note.transfer.by_order", names=Names(unproved))], done
