"""What ranks were given: weights to start from, learning rates, optimizer settings, data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

from reprod_log.diagnose import Finding
from reprod_log.errors import counted, listed
from reprod_log.ranks.bits import digest, same
from reprod_log.ranks.mesh import Mesh
from reprod_log.ranks.parts import Group, Ranks, said_ranks
from reprod_log.ranks.roles import other_weights
from reprod_log.recording import Key

_RATES = ("lr", "learning_rate", "initial_lr", "parameters")


def look(ranks: Ranks, mesh: Mesh) -> Iterable[Finding]:
    """What ranks were given that they should not have been; weights and data along the axes of the batch."""
    groups = ranks.groups(mesh, *mesh.batch) if mesh.has_batch else ()
    for group in groups:
        yield from _weights(group)
    yield from _steps(ranks.all)
    yield from _rates(ranks.all)
    yield from _optimizers(ranks.all)
    # Along other axes all ranks are fed the same, so one group shows what was fed.
    for group in groups[:1]:
        yield from same_data(group)


def _weights(group: Group) -> Iterator[Finding]:
    others = other_weights(group)
    if not others:
        return
    first = group.numbers[0]
    keys = [
        key for key in map(Key.parse, group.keys) if key.phase == "parameter" and key.step == group.parts[0].steps[0]
    ]
    entries = [group.entries(key) for key in keys]
    apart = [str(parts[0].key) for parts in entries if not all(same(parts[0], part) for part in parts[1:])]
    shown = (
        f"; after the first step {counted(len(apart), 'parameter differs', 'parameters differ')}: "
        f"{listed(apart, most=3)}"
        if apart
        else ""
    )
    yield Finding(
        rule="rank_weights",
        cause=f"{said_ranks(others)} started from other weights than rank {first}",
        evidence=f"the hash of all parameters and buffers when recording began is another one{shown}",
        confidence="consistent",
        advice="seed every rank alike, load the same checkpoint on all, or broadcast rank 0's parameters before "
        "training (the wrappers do it when they are made, not for what is changed afterwards)",
        keys=tuple(apart[:3]),
    )


def _steps(ranks: Group) -> Iterator[Finding]:
    first = len(ranks.parts[0].steps)
    for rank, part in enumerate(ranks.parts):
        if len(part.steps) != first and part.complete and ranks.parts[0].complete:
            yield Finding(
                rule="rank_steps",
                cause=f"rank {rank} took {counted(len(part.steps), 'step')}, rank 0 took {first}",
                evidence="a step ends with the optimizer's update, or with the call of the model when none is watched",
                confidence="consistent",
                advice="every rank must update in each iteration, on as many batches as the others: look for a "
                "condition on the rank, a skipped update, or a sampler without drop_last",
            )
            return


def _rates(ranks: Group) -> Iterator[Finding]:
    for text in ranks.keys:
        key = Key.parse(text)
        if key.phase != "lr" or key.run:
            continue
        first, *others = [entry.array().item() for entry in ranks.entries(text)]
        apart = [(rank, rate) for rank, rate in enumerate(others, start=1) if rate != first]
        if apart:
            rank, rate = apart[0]
            yield Finding(
                rule="rank_rates",
                cause=f"rank {rank} has the learning rate {rate:.6g} in step {key.step}, rank 0 has {first:.6g}",
                evidence=f"{text} on {len(apart) + 1} ranks",
                confidence="consistent",
                advice="schedules must step alike on all ranks: look for a schedule that depends on the rank's own "
                "loss, number of batches or metric",
                keys=(text,),
            )
            return


def _optimizers(ranks: Group) -> Iterator[Finding]:
    first = _settings(ranks, 0)
    for rank in range(1, ranks.size):
        other = _settings(ranks, rank)
        apart = [name for name in first.keys() | other.keys() if first.get(name) != other.get(name)]
        if apart:
            name = min(apart)
            ours, theirs = first.get(name), other.get(name)
            yield Finding(
                rule="rank_optimizer",
                cause=f"the optimizer setting {name} is {theirs!r} on rank {rank} and {ours!r} on rank 0",
                evidence=f"{len(apart)} settings differ: {listed(sorted(apart))}",
                confidence="consistent",
                advice="make the optimizer with the same settings on every rank",
            )
            return


def same_data(ranks: Group) -> Iterator[Finding]:
    """Ranks that were fed the same batch: what should differ and does not."""
    steps: dict[int, list[Key]] = {}
    for key in map(Key.parse, ranks.keys):
        if key.phase == "data" and not key.run and prod(ranks.parts[0][key].shape) > 1:
            steps.setdefault(key.step or 0, []).append(key)
    alike: dict[tuple[int, ...], list[int]] = {}
    for step, keys in steps.items():
        fed: dict[tuple[str, ...], list[int]] = {}
        for rank, part in zip(ranks.numbers, ranks.parts, strict=True):
            fed.setdefault(tuple(digest(part[key]) for key in keys), []).append(rank)
        for what, who in fed.items():
            if len(who) > 1 and all(what):
                alike.setdefault(tuple(who), []).append(step)
    for together, when in alike.items():
        yield Finding(
            rule="rank_data",
            cause=f"{said_ranks(together)} were fed the same data in {len(when)} of {counted(len(steps), 'step')}",
            evidence=f"every input has the same bits on these ranks, first in step {when[0]}",
            confidence="consistent",
            advice="give each rank its own share: DistributedSampler (paddle: DistributedBatchSampler) with the rank "
            "and the number of ranks, and set_epoch for another order in each epoch",
            keys=tuple(str(key) for key in steps[when[0]][:3]),
            kind="suspicious pass",
        )


def _settings(ranks: Group, rank: int) -> dict[str, Any]:
    """The optimizers' settings under dotted names; learning rates are compared step by step instead."""
    optimizers = ranks.parts[rank].provenance.extra.get("optimizers", {})
    return dict(_flat(optimizers, ""))


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    inside: Iterable[tuple[Any, Any]]
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, (list, tuple)):
        inside = enumerate(value)
    else:
        yield name, value
        return
    for key, one in inside:
        if key not in _RATES:
            yield from _flat(one, f"{name}.{key}" if name else str(key))
