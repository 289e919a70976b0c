"""Reductions: for each gradient of a run, what every rank contributed and what it went on with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from reprod_log.pairing.distance import factor
from reprod_log.ranks.parts import Group, Ranks, digest, same
from reprod_log.ranks.placing import Placing, along_axes
from reprod_log.recording import Array, Entry, Key, Recording
from reprod_log.recording.shards import shard_of

MOST_STEPS = 3
"""Steps whose gradients are read for the ratio; a wrong reduction is wrong from the first."""
NEAR = 1e-3
Contributions = tuple[Entry, ...]
"""What one rank's backward passes of a step gave for one parameter, before any reduction."""


@dataclass(frozen=True)
class Reduction:
    """One parameter's gradient in one step, on all ranks that reduce it together."""

    key: Key
    """Of what the ranks went on with: `raw`, or `clipped` when the program reduces by itself after `backward`."""
    local: tuple[Contributions, ...]
    reduced: tuple[Entry, ...]
    numbers: tuple[int, ...] = ()
    """Which ranks they are."""
    axis: str = ""
    """What they lie along; '' when the run has only one axis."""
    late: bool = False
    """Whether it was reduced after `backward`, so that `raw` is still what the rank itself contributed."""
    peers: tuple[Contributions, ...] = ()
    """What the ranks beside each one along other axes contributed, where that is summed too."""

    @property
    def raw(self) -> Key:
        """The key of the gradient as `backward` left it."""
        return replace(self.key, phase="gradient", role="raw")

    @property
    def has_values(self) -> bool:
        contributed = (one for local in (*self.local, *self.peers) for one in local)
        return all(entry.detail == "full" for entry in (*self.reduced, *contributed))

    @property
    def locals_differ(self) -> bool:
        """Whether there was anything to reduce: equal contributions have the same mean."""
        first = [digest(entry) for entry in self.local[0]]
        return any([digest(entry) for entry in local] != first for local in self.local[1:])

    def stayed_local(self, rank: int) -> bool:
        """Whether a rank goes on with nothing but its own contribution."""
        if len(self.local[rank]) == 1:
            return same(self.reduced[rank], self.local[rank][0])
        if not self.has_values:
            return False
        own = total(self.local[rank])
        return bool(np.allclose(np.asarray(self.reduced[rank].array(), np.float64), own, rtol=1e-5, atol=0))

    def mean(self) -> Array:
        """The mean of all contributions, in float64."""
        beside = self.peers or ((),) * len(self.local)
        found: Array = np.mean([total((*own, *more)) for own, more in zip(self.local, beside, strict=True)], axis=0)
        return found

    def ratio(self) -> float | None:
        """How many times the mean of the contributions rank 0 goes on with; None when it is not a multiple of it."""
        return factor(self.mean(), np.asarray(self.reduced[0].array(), np.float64), within=1e-3)

    def expected(self) -> Entry:
        """The mean of the contributions as an entry; computed when it is asked for."""
        reduced = self.reduced[0]

        def read() -> Array:
            return self.mean().astype(reduced.array().dtype)

        # Several groups of a grid have a mean each; all but that of rank 0 are known by their first rank.
        group = f".rank{self.numbers[0]}" if self.numbers and self.numbers[0] else ""
        return replace(reduced, read=read, hash="", key=replace(self.key, role=f"{self.key.role}{group}.mean"))


def reductions(ranks: Ranks, placing: Placing) -> Iterator[Reduction]:
    """Every gradient of which the local contributions were recorded, in execution order, group after group.

    Along a batch axis gradients are reduced; each group of ranks along all batch axes does it for itself.
    """
    mesh = placing.mesh
    for group in ranks.groups(mesh, *mesh.batch) if mesh.has_batch else ():
        found = [(one, _used_instead(one, group)) for one in _read_after_backward(group, ranks, placing)]
        # Equal contributions are their own mean, so only what differs between ranks tells that a step reduces later.
        late = {(one.key.run, one.key.step) for one, used in found if used is not None and one.locals_differ}
        for one, used in found:
            chosen = used if used is not None and (one.key.run, one.key.step) in late else one
            yield replace(chosen, peers=_peers(chosen, ranks, placing))


def _read_after_backward(group: Group, ranks: Ranks, placing: Placing) -> Iterator[Reduction]:
    for key in group.keys:
        raw = replace(key, role="raw")
        if key.phase == "gradient" and key.role == "local" and key.call is None and group.all_have(raw):
            if _is_of_all(group.parts[0][key], placing):
                continue
            local = tuple(tuple(_contributions(part, key)) for part in group.parts)
            reduced = _whole(group, ranks, raw, placing)
            if reduced is not None and _fit(local, reduced):
                yield Reduction(raw, local, reduced, group.numbers, group.axis)


def _peers(one: Reduction, ranks: Ranks, placing: Placing) -> tuple[Contributions, ...]:
    """What is summed along axes of split layers as well: parameters that all ranks there have, but use on a part each.

    Those of a norm whose activations are split along the sequence, for example.
    """
    local = replace(one.raw, role="local")
    if not (ranks.all.all_have(one.key) and ranks.all.all_have(local) and ranks.all.all_have(one.raw)):
        return ()
    whole = placing.of(ranks.entries(one.raw)).same
    axes = tuple(axis for axis in whole if not placing.mesh.axes[axis].batch)
    lines = placing.mesh.groups(*axes) if axes else ()
    reduced, own = ranks.entries(one.key), ranks.entries(local)
    if not _differ(own, lines) or _differ(reduced, lines):
        return ()
    beside = {rank: [other for other in line if other != rank] for line in lines for rank in line}
    return tuple(
        tuple(part for other in beside[rank] for part in _contributions(ranks.parts[other], local))
        for rank in one.numbers
    )


def _differ(entries: tuple[Entry, ...], lines: tuple[tuple[int, ...], ...]) -> bool:
    return any(len({digest(entries[rank]) for rank in line}) > 1 for line in lines)


def _fit(local: tuple[Contributions, ...], reduced: tuple[Entry, ...]) -> bool:
    """Whether contributions lie as what was made of them; a distributed one may still wait for a sum of its own."""
    return all(one.shape == whole.shape for own, whole in zip(local, reduced, strict=True) for one in own)


def _is_of_all(local: Entry, placing: Placing) -> bool:
    """Whether it is a part of one gradient of all ranks (a distributed tensor) rather than one rank's own."""
    shard = shard_of(local.meta)
    return shard is not None and any(placing.mesh.axes[axis].name in shard.axes for axis in placing.mesh.batch)


def _whole(group: Group, ranks: Ranks, raw: Key, placing: Placing) -> tuple[Entry, ...] | None:
    """What each rank of the group goes on with; all have the whole in hand when they keep it in pieces (FSDP)."""
    entries = group.entries(raw)
    if not ranks.all.all_have(raw):
        return entries
    placed = placing.of(ranks.entries(raw))
    batch = placing.mesh.batch
    if not set(placed.cut_axes) & set(batch):
        return entries
    whole = along_axes(dict(zip(group.numbers, entries, strict=True)), placed, placing.mesh, batch)
    return None if whole is None else (whole,) * group.size


def _used_instead(one: Reduction, group: Group) -> Reduction | None:
    """The same gradient as the optimizers used it, if every rank still had its own after `backward`."""
    used = replace(one.key, phase="clip", role="clipped")
    if not any(used in part for part in group.parts) or not all(map(one.stayed_local, range(group.size))):
        return None
    # A rank that changed nothing has no other reading.
    last = (part[used] if used in part else part[one.key] for part in group.parts)
    return replace(one, key=used, reduced=tuple(last), late=True)


def total(local: Contributions) -> Array:
    """The sum of one rank's contributions, in float64."""
    found: Array = np.sum([np.asarray(entry.array(), np.float64) for entry in local], axis=0)
    return found


def _contributions(part: Recording, key: Key) -> Iterator[Entry]:
    """One of each backward pass of the step; all but the first have a number."""
    yield part[key]
    call = 1
    while (again := replace(key, call=call)) in part:
        yield part[again]
        call += 1


def by_step(found: tuple[Reduction, ...]) -> dict[int, tuple[Reduction, ...]]:
    steps: dict[int, list[Reduction]] = {}
    for one in found:
        if not one.key.run:
            steps.setdefault(one.key.step or 0, []).append(one)
    return {step: tuple(members) for step, members in sorted(steps.items())}


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
    if not ratios or max(ratios) - min(ratios) > NEAR * abs(ratios[0]):
        return None
    return sorted(ratios)[len(ratios) // 2]


@dataclass(frozen=True)
class MixedGroups:
    """Gradients of one step that were reduced over ranks of all groups, where each group should do it for itself."""

    step: int
    keys: tuple[Key, ...]
    size: int
    """How many ranks reduce together."""
    total: int
    """How many ranks there are."""
    axis: str


def mixed_groups(found: tuple[Reduction, ...]) -> MixedGroups | None:
    """The first step in which gradients were reduced over all ranks instead of group by group."""
    for step, members in list(by_step(found).items())[:MOST_STEPS]:
        keys: dict[Key, list[Reduction]] = {}
        for one in members:
            keys.setdefault(one.key, []).append(one)
        wrong = tuple(key for key, groups in keys.items() if _mixes_groups(groups))
        if wrong:
            total = len({rank for one in members for rank in one.numbers})
            return MixedGroups(step, wrong, len(members[0].numbers), total, members[0].axis)
    return None


def _mixes_groups(groups: list[Reduction]) -> bool:
    if len(groups) < 2 or not all(one.has_values for one in groups):
        return False
    means = [one.mean() for one in groups]
    if len({mean.shape for mean in means}) > 1:
        return False
    overall = np.mean(means, axis=0)
    reduced = [np.asarray(one.reduced[0].array(), np.float64) for one in groups]
    own = [factor(mean, one, within=NEAR) for mean, one in zip(means, reduced, strict=True)]
    mixed = [factor(overall, one, within=NEAR) for one in reduced]
    return None in own and None not in mixed
