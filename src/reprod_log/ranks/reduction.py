"""Gradients that were not averaged over all ranks: a rank that kept its own, a sum for a mean, divided twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from reprod_log.diagnose import Finding
from reprod_log.diagnose.material import factor
from reprod_log.errors import counted, listed
from reprod_log.ranks.gradients import Reduction
from reprod_log.recording import Key

_MOST_STEPS = 3
"""Steps whose gradients are read for the ratio; a wrong reduction is wrong from the first."""
_NEAR = 1e-3


def look(found: tuple[Reduction, ...]) -> Iterable[Finding]:
    """What is wrong with the reductions along the axes of the batch, each group of ranks by itself, said once."""
    groups: dict[tuple[int, ...], list[Reduction]] = {}
    for one in found:
        groups.setdefault(one.numbers, []).append(one)
    said: dict[tuple[str, str], Finding] = {}
    for members in groups.values():
        for finding in _of_group(tuple(members)):
            said.setdefault((finding.rule, finding.cause), finding)
    if not said:
        wrong = over_all_ranks(found)
        said = {} if wrong is None else {("", ""): wrong}
    yield from said.values()


def over_all_ranks(found: tuple[Reduction, ...]) -> Finding | None:
    """Gradients that were reduced over ranks of all groups, where each group should do it for itself."""
    for step, members in list(by_step(found).items())[:_MOST_STEPS]:
        keys: dict[str, list[Reduction]] = {}
        for one in members:
            keys.setdefault(str(one.key), []).append(one)
        wrong = [key for key, groups in keys.items() if _mixes_groups(groups)]
        if wrong:
            size, total = len(members[0].numbers), len({rank for one in members for rank in one.numbers})
            return Finding(
                rule="missed_reduction",
                cause=f"gradients are reduced over all {total} ranks instead of the {size} along {members[0].axis}",
                evidence=f"in step {step} the reduced gradient is a multiple of the mean over all ranks, which mixes "
                f"those of different pieces: {listed([Key.parse(key).path for key in wrong])}",
                confidence="consistent",
                advice="give the all-reduce the process group of the ranks that have the same pieces",
                keys=tuple(wrong[:3]),
            )
    return None


def _mixes_groups(groups: list[Reduction]) -> bool:
    if len(groups) < 2 or not all(one.has_values for one in groups):
        return False
    means = [one.mean() for one in groups]
    if len({mean.shape for mean in means}) > 1:
        return False
    total = np.mean(means, axis=0)
    reduced = [np.asarray(one.reduced[0].array(), np.float64) for one in groups]
    own = [factor(mean, one, within=_NEAR) for mean, one in zip(means, reduced, strict=True)]
    mixed = [factor(total, one, within=_NEAR) for one in reduced]
    return None in own and None not in mixed


def _of_group(found: tuple[Reduction, ...]) -> Iterator[Finding]:
    missed = list(_missed(found))
    yield from missed
    if not missed:
        yield from _scaled(found)


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


def _missed(found: tuple[Reduction, ...]) -> Iterator[Finding]:
    """Ranks that go on with their own gradients, said once for the first step in which they do."""
    told: set[int] = set()
    places = range(len(found[0].numbers))
    for step, members in by_step(found).items():
        telling = [one for one in members if one.locals_differ]
        own = {place: [one for one in telling if one.stayed_local(place)] for place in places}
        alone = [place for place in places if own[place] and place not in told]
        if len(alone) == len(places) and all(len(own[place]) == len(telling) for place in alone):
            yield _nothing_reduced(step, telling)
            return
        shared = set.intersection(*({one.key for one in own[place]} for place in places))
        everywhere = [one for one in telling if one.key in shared]
        if everywhere and len(alone) == len(places):
            yield _left_out_of_it(step, everywhere, len(telling))
        for place in alone:
            told.add(place)
            kept = [one for one in own[place] if one.key not in shared]
            if kept:
                yield _kept_own(found[0].numbers[place], step, kept, len(telling))


def _nothing_reduced(step: int, telling: list[Reduction]) -> Finding:
    axis = telling[0].axis
    return Finding(
        rule="missed_reduction",
        cause=f"gradients are not reduced{f' along {axis}' if axis else ''} in step {step}: every rank trains on its "
        "own data alone",
        evidence=f"on every rank the gradients of all {counted(len(telling), 'parameter')} are the ones it computed "
        "itself, and they differ between ranks",
        confidence="consistent",
        advice="wrap the model (DistributedDataParallel, paddle.DataParallel) and call the wrapper; leave no_sync "
        "before the last backward of a step",
        keys=tuple(str(one.key) for one in telling[:3]),
    )


def _left_out_of_it(step: int, never: list[Reduction], total: int) -> Finding:
    axis = never[0].axis
    return Finding(
        rule="missed_reduction",
        cause=f"the gradients of {listed([one.key.path for one in never])} are not reduced"
        f"{f' along {axis}' if axis else ''} in step {step}: every rank trains them on its own data alone",
        evidence=f"on every rank they are the ones it computed itself; those of the other "
        f"{counted(total - len(never), 'parameter')} are reduced",
        confidence="consistent",
        advice="look for parameters that the wrapper does not know: ignored_params, made after the model was wrapped, "
        "or used outside of its forward",
        keys=tuple(str(one.key) for one in never[:3]),
    )


def _kept_own(rank: int, step: int, kept: list[Reduction], total: int) -> Finding:
    axis = kept[0].axis
    which = (
        "its gradients are"
        if len(kept) == total
        else f"of {len(kept)} of {counted(total, 'parameter')} its gradients are"
    )
    return Finding(
        rule="missed_reduction",
        cause=f"rank {rank} misses the all-reduce{f' along {axis}' if axis else ''} in step {step}: {which} those "
        "that it computed itself",
        evidence=f"its reduced gradient equals its local one bit for bit, which is not the mean over the ranks: "
        f"{listed([one.key.path for one in kept])}",
        confidence="consistent",
        advice="every rank must go through the same reduction: look for no_sync, a condition on the rank, or a copy "
        "that is reduced instead of the gradient itself",
        keys=tuple(str(one.key) for one in kept[:3]),
    )


def _scaled(found: tuple[Reduction, ...]) -> Iterator[Finding]:
    for step, members in list(by_step(found).items())[:_MOST_STEPS]:
        ratio = uniform_ratio(members)
        if ratio is None or abs(ratio - 1) <= _NEAR:
            continue
        keys = tuple(str(one.key) for one in members[:3])
        evidence = (
            f"in step {step} the reduced gradient of every parameter is {ratio:.6g} times the mean of the ranks' local "
            "gradients"
        )
        yield from named_ratio(ratio, len(found[0].numbers), evidence, keys, axis=found[0].axis)
        return


def named_ratio(ratio: float, size: int, evidence: str, keys: tuple[str, ...], *, axis: str = "") -> Iterator[Finding]:
    """The mistake that makes gradients `ratio` times what they should be, if reducing over `size` ranks can."""
    if abs(ratio - size) <= _NEAR * size:
        yield Finding(
            rule="sum_for_mean",
            cause=f"gradients are reduced by a sum over the {size} ranks{f' along {axis}' if axis else ''} instead of "
            "the mean",
            evidence=evidence,
            confidence="consistent",
            advice="divide by the number of ranks after the all-reduce (ReduceOp.AVG, or gradient / world_size), or "
            "divide the loss by it",
            keys=keys,
        )
    elif abs(ratio - 1 / size) <= _NEAR / size:
        yield Finding(
            rule="sum_for_mean",
            cause=f"gradients are divided by the {size} ranks{f' along {axis}' if axis else ''} twice",
            evidence=evidence,
            confidence="consistent",
            advice="divide once: DistributedDataParallel and paddle.DataParallel average by themselves",
            keys=keys,
        )
