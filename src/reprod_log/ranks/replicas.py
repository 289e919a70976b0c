"""Ranks against each other: replicas that must be equal bit for bit, and reductions that must be means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from reprod_log.alignment import Alignment
from reprod_log.diagnose import Finding
from reprod_log.diagnose import ranked as surest_first
from reprod_log.measure.comparison import measure
from reprod_log.pairing import Pair, Pairing
from reprod_log.ranks import model_axes, reduction, settings, statistics
from reprod_log.ranks.dims import DeclaredDims
from reprod_log.ranks.gradients import Reduction, reductions
from reprod_log.ranks.mesh import Mesh
from reprod_log.ranks.parts import Group, Ranks
from reprod_log.ranks.pieces import together
from reprod_log.ranks.placing import Parts, Placing
from reprod_log.ranks.roles import of_rank
from reprod_log.recording import Entry
from reprod_log.recording.recording import Source
from reprod_log.verdict import Limit, Policy, judge, require_complete

_REPLICAS = ("gradient", "clip", "lr", "update", "parameter", "buffer", "optimizer")
_EQUAL = Limit("max_abs", 0.0, reason="replicas are equal bit for bit")
_MEANS = (
    # The order of a sum over ranks is the backend's; contributions that cancel leave up to a thousand roundings.
    Limit("rel_l2", 1e-4, keys="*:*.mean", reason="the mean over ranks, in another order"),
    Limit("rel_l2", 2.0**-9, keys="*:*.mean", dtype="float16", reason="the mean over ranks in half precision"),
    Limit("rel_l2", 2.0**-6, keys="*:*.mean", dtype="bfloat16", reason="the mean over ranks in half precision"),
)

_MOST_PLACES = 8


def compare_ranks(
    ranks: Ranks,
    *,
    dims: Mapping[str, str] | None = None,
    limits: Iterable[Limit | str] = (),
    accept: Iterable[str] = (),
    allow_unmatched: Iterable[str] = (),
    allow_incomplete: bool = False,
    equal_nan: bool = False,
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
) -> Alignment:
    """Compare every rank with rank 0: what should be the same is, and what was reduced is the mean of all.

    A key such as `step0/update/fc.weight:rank1` is rank 1's version of what rank 0 has, and
    `step0/gradient/fc.weight:raw.mean` the reduced gradient against the mean of the ranks' own. Without `limits`
    replicas must be equal.
    """
    layout = DeclaredDims.of(dims)
    layout.check_used([entry.key for entry in ranks.parts[0].entries])
    mesh = layout.mesh(ranks)
    placing = Placing(ranks, layout, mesh)
    found = tuple(reductions(ranks, placing))
    left_out: set[str] = set()
    for group in statistics_groups(ranks, mesh):
        apart = statistics.differing_statistics(group)
        if statistics.may_differ(group, apart, statistics.keeping(group, apart)):
            left_out |= set(apart)
    pairing = _pairing(ranks, placing, found, left_out)
    given = tuple(Limit.parse(one) if isinstance(one, str) else one for one in limits)
    policy = Policy.fixed(
        (*_limits_of_means(pairing), *(given or (_EQUAL,))),
        accept=accept,
        allow_unmatched=allow_unmatched,
        allow_incomplete=allow_incomplete,
        equal_nan=equal_nan,
    )
    comparison = measure(pairing, progress=progress, threads=threads, elements=True)
    complete = all(part.complete for part in ranks.parts)
    verdict = require_complete(judge(comparison, policy), complete=complete, allow_incomplete=allow_incomplete)
    others = Source(
        source=f"{ranks.source or 'ranks'}, ranks 1 to {ranks.size - 1}" if ranks.size > 2 else ranks.parts[1].source,
        entries=sum(len(part) for part in ranks.parts[1:]),
        provenance=ranks.parts[1].provenance,
        complete=all(part.complete for part in ranks.parts[1:]),
        notes=(*_places(mesh), *(note for note in ranks.notes if not note.startswith("rank 0:"))),
    )
    causes = surest_first(rank_findings(ranks, placing, found=found))
    return Alignment(Source.of(ranks.parts[0]), others, comparison, policy, verdict, causes)


def _places(mesh: Mesh) -> Iterator[str]:
    """Who stands where, for reading the keys of single ranks."""
    if mesh.is_grid:
        axes = " × ".join(f"{axis.name} {axis.size}" for axis in mesh.axes)
        ranks = range(min(len(mesh.coordinates), _MOST_PLACES))
        places = "; ".join(f"rank {rank}: {mesh.where(rank)}" for rank in ranks)
        rest = f" and {len(mesh.coordinates) - _MOST_PLACES} more" if len(mesh.coordinates) > _MOST_PLACES else ""
        yield f"the ranks lie on {axes} ({places}{rest})"


def _limits_of_means(pairing: Pairing) -> list[Limit]:
    """The limits for means over ranks of those dtypes that there are; one that fits nothing would be warned about."""
    means = [pair.candidate for pair in pairing.pairs if str(pair.candidate.key).endswith(".mean")]
    return [one for one in _MEANS if any(one.fits(str(entry.key), entry.dtype) for entry in means)]


def rank_findings(ranks: Ranks, placing: Placing, *, found: tuple[Reduction, ...] | None = None) -> Iterator[Finding]:
    """What is wrong with the ranks, whatever they are compared with."""
    mesh = placing.mesh
    if mesh.has_batch:
        yield from reduction.look(tuple(reductions(ranks, placing)) if found is None else found)
    yield from settings.look(ranks, mesh)
    yield from model_axes.look(ranks, placing)
    for group in statistics_groups(ranks, mesh):
        apart = statistics.differing_statistics(group)
        said = statistics.look(group, apart, statistics.keeping(group, apart))
        if said is not None:
            yield said
            return


def statistics_groups(ranks: Ranks, mesh: Mesh) -> tuple[Group, ...]:
    """The ranks whose running statistics may come from different data: those along the batch, else all."""
    return ranks.groups(mesh, *mesh.batch) if mesh.has_batch else (ranks.all,)


def _pairing(ranks: Ranks, placing: Placing, found: tuple[Reduction, ...], left_out: set[str]) -> Pairing:
    mesh = placing.mesh
    late = {str(one.raw) for one in found if one.late}
    means: dict[str, list[Reduction]] = {}
    for one in _checkable(found):
        means.setdefault(str(one.key), []).append(one)
    pairs: list[Pair] = []
    for text in ranks.keys:
        parts = ranks.entries(text)
        for one in means.get(text, ()):
            expected = one.expected()
            pairs.append(Pair(expected, replace(one.reduced[0], key=expected.key)))
        if text not in late and _is_comparable(parts[0]):
            placed = placing.of(parts)
            if placed.shard is not None:
                # Refuses parts that do not make the whole they speak of; reads nothing.
                together(parts, placed, mesh)
            axes = placed.same
            if parts[0].key.path in left_out or parts[0].key.phase not in _REPLICAS:
                # What each rank has of its own along the batch says nothing about the others there.
                axes = tuple(axis for axis in axes if not mesh.axes[axis].batch)
            pairs += _replicas(parts, axes, mesh)
    shared = any(not axis.batch for axis in mesh.axes)
    alone = [
        (rank, replace(entry, key=of_rank(entry.key, rank)))
        for rank, entry in ranks.all.lonely()
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
    steps = reduction.by_step(late)
    ratio = reduction.uniform_ratio(next(iter(steps.values()))) if steps else None
    size = len(late[0].numbers) if late else 1
    plain = ratio is not None and min(abs(ratio - 1), abs(ratio / size - 1)) < 1e-3
    plain = plain or reduction.over_all_ranks(late) is not None
    for one in found:
        if one.has_values and (plain or not one.late):
            yield one
