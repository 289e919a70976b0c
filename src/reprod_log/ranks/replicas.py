"""Replicas: what all ranks should have alike, paired with the first rank's, and reduced gradients with their means.

Both data-parallel wrappers let each rank normalise by its own share of the batch. One then keeps the batch-norm
statistics that each rank found; the other gives rank 0's buffers to all ranks when the next forward pass begins. From a
rank's statistics after two steps, its momentum and what the layer was fed follows which of the two it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np

from reprod_log.layers.arrangement import channels_last
from reprod_log.layers.lookup import layer_kind
from reprod_log.layers.settings import shared_setting
from reprod_log.pairing import Pair, Pairing
from reprod_log.ranks.mesh import Mesh
from reprod_log.ranks.parts import Group, Ranks, same
from reprod_log.ranks.placing import Parts, Placing, of_rank, statistics_of, together
from reprod_log.ranks.reductions import Reduction, by_step, mixed_groups, uniform_ratio
from reprod_log.recording import Array, Entry, Key, ModuleInfo, Recording

_REPLICAS = ("gradient", "clip", "lr", "update", "parameter", "buffer", "optimizer")
StatisticsKept = Literal["equal", "own", "rank 0's", "unknown"]
_FITS = 1e-4


def pair_replicas(ranks: Ranks, placing: Placing, found: tuple[Reduction, ...]) -> Pairing:
    """Every rank's version of what all should have with that of the first, and reduced gradients with their means."""
    mesh = placing.mesh
    own_statistics = statistics_that_may_differ(ranks, mesh)
    late = {one.raw for one in found if one.late}
    means: dict[Key, list[Reduction]] = {}
    for one in _checkable(found):
        means.setdefault(one.key, []).append(one)
    pairs: list[Pair] = []
    for key in ranks.keys:
        parts = ranks.entries(key)
        for one in means.get(key, ()):
            expected = one.expected()
            pairs.append(Pair(expected, replace(one.reduced[0], key=expected.key)))
        if key not in late and _is_comparable(parts[0]):
            placed = placing.of(parts)
            if placed.shard is not None:
                # Refuses parts that do not make the whole they describe; reads nothing.
                together(parts, placed, mesh)
            axes = placed.same
            if parts[0].key.path in own_statistics or parts[0].key.phase not in _REPLICAS:
                # What each rank has of its own along the batch says nothing about the others there.
                axes = tuple(axis for axis in axes if not mesh.axes[axis].batch)
            pairs += _replicas(parts, axes, mesh)
    shared = any(not axis.batch for axis in mesh.axes)
    alone = [
        (rank, replace(entry, key=of_rank(entry.key, rank)))
        for rank, entry in ranks.all.unmatched()
        if _is_comparable(entry) and (shared or entry.key.phase in _REPLICAS)
    ]
    return Pairing(
        tuple(pairs),
        only_in_reference=tuple(entry for rank, entry in alone if rank == 0),
        only_in_candidate=tuple(entry for rank, entry in alone if rank),
    )


def _replicas(parts: Parts, axes: tuple[int, ...], mesh: Mesh) -> Iterator[Pair]:
    """Every rank with the first along the axes where they should have the same."""
    firsts = {rank: ranks[0] for ranks in mesh.groups(*axes) for rank in ranks} if axes else {}
    for rank, part in enumerate(parts):
        if firsts.get(rank, rank) != rank:
            yield _pair(parts[firsts[rank]], part, rank)


def _pair(first: Entry, other: Entry, rank: int) -> Pair:
    key = of_rank(first.key, rank)
    return Pair(replace(first, key=key), replace(other, key=key))


def _is_comparable(entry: Entry) -> bool:
    """Whether there is something that ranks could have alike: not what each contributed to a reduction."""
    return not (entry.key.phase == "gradient" and entry.key.role == "local")


def _checkable(found: tuple[Reduction, ...]) -> Iterator[Reduction]:
    """The reductions that can be held against the mean: not those that were clipped in between."""
    late = tuple(one for one in found if one.late)
    steps = by_step(late)
    ratio = uniform_ratio(next(iter(steps.values()))) if steps else None
    size = len(late[0].numbers) if late else 1
    plain = ratio is not None and min(abs(ratio - 1), abs(ratio / size - 1)) < 1e-3
    plain = plain or mixed_groups(late) is not None
    for one in found:
        if one.has_values and (plain or not one.late):
            yield one


def statistics_groups(ranks: Ranks, mesh: Mesh) -> tuple[Group, ...]:
    """The ranks whose running statistics may come from different data: those along the batch, else all."""
    return ranks.groups(mesh, *mesh.batch) if mesh.has_batch else (ranks.all,)


def statistics_that_may_differ(ranks: Ranks, mesh: Mesh) -> set[str]:
    """Paths of running statistics that the wrapper is meant to leave different at the end of a step."""
    found: set[str] = set()
    for group in statistics_groups(ranks, mesh):
        differing = differing_statistics(group)
        if may_differ(group, differing, keeping(group, differing)):
            found |= set(differing)
    return found


def differing_statistics(ranks: Group) -> dict[str, ModuleInfo]:
    """Paths of the running statistics that are not the same on all ranks in some step, with their layer."""
    statistics = statistics_of(ranks.parts[0])
    found: dict[str, ModuleInfo] = {}
    for key in ranks.keys:
        if key.phase == "buffer" and not key.run and key.path in statistics and key.path not in found:
            first, *others = ranks.entries(key)
            if not all(same(first, other) for other in others):
                found[key.path] = statistics[key.path]
    return found


def keeping(ranks: Group, differing: dict[str, ModuleInfo]) -> StatisticsKept:
    """How the ranks keep statistics that differ: each its own, or rank 0's for all from one step to the next."""
    if not differing:
        return "equal"
    found = {_kept_by(ranks, rank, path, module) for path, module in differing.items() for rank in range(1, ranks.size)}
    found -= {"unknown"}
    # What a framework does by default is not a proof, but a first answer.
    return next(iter(found)) if len(found) == 1 else "unknown"


def is_synchronised(module: ModuleInfo) -> bool:
    """Whether a batch norm says of itself that it takes its statistics over all ranks."""
    return "Sync" in module.type or "SyncBatchNorm" in module.origin


def may_differ(ranks: Group, differing: dict[str, ModuleInfo], kept: StatisticsKept) -> bool:
    """Whether differing statistics are what the wrapper is meant to leave at the end of a step."""
    if any(is_synchronised(module) for module in differing.values()):
        return False
    return kept == "rank 0's" or (kept == "unknown" and all(_is_broadcast(ranks, one) for one in differing.values()))


def _is_broadcast(ranks: Group, module: ModuleInfo) -> bool:
    row = layer_kind(module.kind)
    column = None if row is None else row.columns.get(ranks.parts[0].provenance.framework)
    return column is not None and column.broadcast


def _kept_by(ranks: Group, rank: int, path: str, module: ModuleInfo) -> StatisticsKept:
    """What the running mean of one layer on one rank says."""
    if not path.endswith("mean"):
        return "unknown"
    part, first = ranks.parts[rank], ranks.parts[0]
    share = _share(module)
    for before, step in zip(first.steps, first.steps[1:], strict=False):
        then, now = Key(path, "buffer", before), Key(path, "buffer", step)
        if step != before + 1 or not (ranks.all_have(then) and ranks.all_have(now)):
            continue
        own, theirs, result = part[then], first[then], part[now]
        if same(own, theirs):
            # The buffers of a step are read when the next one begins, which may be after rank 0's were given to all.
            output = Key(module.path, "forward", before, 0, "output")
            if ranks.all_have(output) and not same(part[output], first[output]):
                return "rank 0's"
            continue
        fed = _fed(part, module, step)
        if share is None or fed is None or any(entry.detail != "full" for entry in (own, theirs, result)):
            continue
        axis = fed.ndim - 1 if channels_last(module) else 1
        mean = fed.astype(np.float64).mean(axis=tuple(one for one in range(fed.ndim) if one != axis))
        apart = float(np.linalg.norm(_wide(own) - _wide(theirs)))
        errors = [
            float(np.linalg.norm((1 - share) * _wide(one) + share * mean - _wide(result))) for one in (own, theirs)
        ]
        if min(errors) <= max(_FITS * apart, 1e-6 * float(np.linalg.norm(_wide(result)))):
            return "own" if errors[0] < errors[1] else "rank 0's"
    return "unknown"


def _share(module: ModuleInfo) -> float | None:
    """The share of the new in the running mean."""
    share = shared_setting(module, "momentum")
    return share if isinstance(share, float) and 0 < share < 1 else None


def _fed(part: Recording, module: ModuleInfo, step: int) -> Array | None:
    """What the layer was fed in a step: its recorded input, or the output that was its input in an earlier step."""
    given = Key(module.path, "forward", step, 0, "input.0")
    if replace(given, call=1, role="output") in part:
        return None
    if given in part:
        return _values(part[given])
    for other in part.steps:
        earlier = replace(given, step=other)
        source = part[earlier].meta.get("from") if earlier in part else None
        if isinstance(source, str):
            now = replace(Key.parse(source), step=step)
            return _values(part[now]) if now in part else None
    return None


def _values(entry: Entry) -> Array | None:
    return entry.array() if entry.detail == "full" and len(entry.shape) >= 2 else None


def _wide(entry: Entry) -> Array:
    return entry.array().astype(np.float64)
