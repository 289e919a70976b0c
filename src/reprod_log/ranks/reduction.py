"""Gradients that were not averaged over all ranks: a rank that kept its own, a sum for a mean, divided twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from reprod_log.diagnose import Finding
from reprod_log.errors import counted, listed
from reprod_log.ranks.gradients import Reduction

_MOST_STEPS = 3
"""Steps whose gradients are read for the ratio; a wrong reduction is wrong from the first."""
_NEAR = 1e-3


def look(found: tuple[Reduction, ...], size: int) -> Iterable[Finding]:
    """What is wrong with the reductions of a data-parallel run."""
    missed = list(_missed(found, size))
    yield from missed
    if not missed:
        yield from _scaled(found, size)


def uniform_ratio(found: Iterable[Reduction]) -> float | None:
    """How many times the mean of the contributions the ranks go on with, if it is the same for every parameter."""
    ratios: list[float] = []
    largest = 0.0
    for one in found:
        if not one.has_values:
            continue
        most = float(np.abs(one.mean()).max(initial=0.0))
        largest = max(largest, most)
        if most > 1e-6 * largest and most > 0:
            ratio = one.ratio()
            if ratio is None:
                return None
            ratios.append(ratio)
    if not ratios or max(ratios) - min(ratios) > _NEAR * abs(ratios[0]):
        return None
    return sorted(ratios)[len(ratios) // 2]


def by_step(found: tuple[Reduction, ...]) -> dict[int, tuple[Reduction, ...]]:
    steps: dict[int, list[Reduction]] = {}
    for one in found:
        if not one.key.run:
            steps.setdefault(one.key.step or 0, []).append(one)
    return {step: tuple(members) for step, members in sorted(steps.items())}


def _missed(found: tuple[Reduction, ...], size: int) -> Iterator[Finding]:
    """Ranks that go on with their own gradients, said once for the first step in which they do."""
    told: set[int] = set()
    for step, members in by_step(found).items():
        telling = [one for one in members if one.locals_differ]
        own = {rank: [one for one in telling if one.stayed_local(rank)] for rank in range(size)}
        alone = [rank for rank in range(size) if own[rank] and rank not in told]
        if len(alone) == size and all(len(own[rank]) == len(telling) for rank in alone):
            yield _nothing_reduced(step, telling)
            return
        for rank in alone:
            told.add(rank)
            yield _kept_own(rank, step, own[rank], len(telling))


def _nothing_reduced(step: int, telling: list[Reduction]) -> Finding:
    return Finding(
        rule="missed_reduction",
        cause=f"gradients are not reduced in step {step}: every rank trains on its own data alone",
        evidence=f"on every rank the gradients of all {counted(len(telling), 'parameter')} are the ones it computed "
        "itself, and they differ between ranks",
        confidence="consistent",
        advice="wrap the model (DistributedDataParallel, paddle.DataParallel) and call the wrapper; leave no_sync "
        "before the last backward of a step",
        keys=tuple(str(one.key) for one in telling[:3]),
    )


def _kept_own(rank: int, step: int, kept: list[Reduction], total: int) -> Finding:
    which = (
        "its gradients are"
        if len(kept) == total
        else f"of {len(kept)} of {counted(total, 'parameter')} its gradients are"
    )
    return Finding(
        rule="missed_reduction",
        cause=f"rank {rank} misses the all-reduce in step {step}: {which} those that it computed itself",
        evidence=f"its reduced gradient equals its local one bit for bit, which is not the mean over the ranks: "
        f"{listed([one.key.path for one in kept])}",
        confidence="consistent",
        advice="every rank must go through the same reduction: look for no_sync, a condition on the rank, or a copy "
        "that is reduced instead of the gradient itself",
        keys=tuple(str(one.key) for one in kept[:3]),
    )


def _scaled(found: tuple[Reduction, ...], size: int) -> Iterator[Finding]:
    for step, members in list(by_step(found).items())[:_MOST_STEPS]:
        ratio = uniform_ratio(members)
        if ratio is None or abs(ratio - 1) <= _NEAR:
            continue
        keys = tuple(str(one.key) for one in members[:3])
        evidence = (
            f"in step {step} the reduced gradient of every parameter is {ratio:.6g} times the mean of the ranks' local "
            "gradients"
        )
        yield from named_ratio(ratio, size, evidence, keys)
        return


def named_ratio(ratio: float, size: int, evidence: str, keys: tuple[str, ...]) -> Iterator[Finding]:
    """The mistake that makes gradients `ratio` times what they should be, if reducing over `size` ranks can."""
    if abs(ratio - size) <= _NEAR * size:
        yield Finding(
            rule="sum_for_mean",
            cause=f"gradients are reduced by a sum over the {size} ranks instead of the mean",
            evidence=evidence,
            confidence="consistent",
            advice="divide by the number of ranks after the all-reduce (ReduceOp.AVG, or gradient / world_size), or "
            "divide the loss by it",
            keys=keys,
        )
    elif abs(ratio - 1 / size) <= _NEAR / size:
        yield Finding(
            rule="sum_for_mean",
            cause=f"gradients are divided by the {size} ranks twice",
            evidence=evidence,
            confidence="consistent",
            advice="divide once: DistributedDataParallel and paddle.DataParallel average by themselves",
            keys=keys,
        )
