"""Ranks against each other: replicas that must be equal bit for bit, and reductions that must be means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from reprod_log.alignment import Alignment
from reprod_log.diagnose import Finding
from reprod_log.diagnose import ranked as surest_first
from reprod_log.judge import Limit, Policy, judge, whole
from reprod_log.match import Pair, Pairing
from reprod_log.measure.comparison import measure
from reprod_log.ranks import reduction, settings, statistics
from reprod_log.ranks.dims import Layout
from reprod_log.ranks.gradients import Reduction, reductions
from reprod_log.ranks.parts import Ranks
from reprod_log.ranks.roles import is_split, of_rank, parameter_shapes
from reprod_log.record import Entry, Key
from reprod_log.record.side import Side

_REPLICAS = ("gradient", "clip", "lr", "update", "parameter", "buffer", "optimizer")
_EQUAL = Limit("max_abs", 0.0, reason="replicas are equal bit for bit")
_MEANS = (
    # The order of a sum over ranks is the backend's; contributions that cancel leave up to a thousand roundings.
    Limit("rel_l2", 1e-4, keys="*:*.mean", reason="the mean over ranks, in another order"),
    Limit("rel_l2", 2.0**-9, keys="*:*.mean", dtype="float16", reason="the mean over ranks in half precision"),
    Limit("rel_l2", 2.0**-6, keys="*:*.mean", dtype="bfloat16", reason="the mean over ranks in half precision"),
)


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
    layout = Layout.of(dims)
    layout.check_used([entry.key for entry in ranks.parts[0].entries])
    given = tuple(Limit.parse(one) if isinstance(one, str) else one for one in limits)
    policy = Policy.fixed(
        (*_MEANS, *(given or (_EQUAL,))),
        accept=accept,
        allow_unmatched=allow_unmatched,
        allow_incomplete=allow_incomplete,
        equal_nan=equal_nan,
    )
    found = tuple(reductions(ranks)) if layout.data_parallel else ()
    apart = statistics.differing_statistics(ranks)
    kept = statistics.keeping(ranks, apart)
    left_out = set(apart) if statistics.may_differ(ranks, kept) else set()
    pairing = _pairing(ranks, layout, found, left_out)
    comparison = measure(pairing, progress=progress, threads=threads, elements=True)
    complete = all(part.complete for part in ranks.parts)
    verdict = whole(judge(comparison, policy), complete=complete, allow_incomplete=allow_incomplete)
    others = Side(
        source=f"{ranks.source or 'ranks'}, ranks 1 to {ranks.size - 1}" if ranks.size > 2 else ranks.parts[1].source,
        entries=sum(len(part) for part in ranks.parts[1:]),
        provenance=ranks.parts[1].provenance,
        complete=all(part.complete for part in ranks.parts[1:]),
        notes=tuple(note for note in ranks.notes if not note.startswith("rank 0:")),
    )
    causes = surest_first(rank_findings(ranks, layout, found=found))
    return Alignment(Side.of(ranks.parts[0]), others, comparison, policy, verdict, causes)


def rank_findings(ranks: Ranks, layout: Layout, *, found: tuple[Reduction, ...] | None = None) -> Iterator[Finding]:
    """What is wrong with the ranks, whatever they are compared with."""
    if layout.data_parallel:
        yield from reduction.look(tuple(reductions(ranks)) if found is None else found, ranks.size)
        yield from settings.look(ranks)
    apart = statistics.differing_statistics(ranks)
    said = statistics.look(ranks, apart, statistics.keeping(ranks, apart))
    if said is not None:
        yield said


def _pairing(ranks: Ranks, layout: Layout, found: tuple[Reduction, ...], left_out: set[str]) -> Pairing:
    late = {str(one.raw) for one in found if one.late}
    means = {str(one.key): one for one in _checkable(found, ranks.size)}
    shapes = parameter_shapes(ranks.parts[0])
    pairs: list[Pair] = []
    for text in ranks.keys:
        first, *others = ranks.entries(text)
        one = means.get(text)
        if one is not None:
            expected = one.expected()
            pairs.append(Pair(expected, replace(one.reduced[0], key=expected.key)))
        if text not in late and _is_replica(first, layout, shapes) and first.key.path not in left_out:
            pairs += [_pair(first, other, rank) for rank, other in enumerate(others, start=1)]
    alone = [
        (rank, replace(entry, key=of_rank(entry.key, rank)))
        for rank, entry in ranks.lonely()
        if _is_replica(entry, layout, shapes)
    ]
    return Pairing(
        tuple(pairs),
        only_in_reference=tuple(entry for rank, entry in alone if rank == 0),
        only_in_candidate=tuple(entry for rank, entry in alone if rank),
    )


def _pair(first: Entry, other: Entry, rank: int) -> Pair:
    key = of_rank(first.key, rank)
    return Pair(replace(first, key=key), replace(other, key=key))


def _is_replica(entry: Entry, layout: Layout, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether every rank should have the same under this key."""
    key: Key = entry.key
    if key.phase == "gradient" and key.role == "local":
        return False
    dims = layout.dims(key)
    if dims is not None and is_split(entry, shapes):
        return dims.axis is None
    return key.phase in _REPLICAS or not layout.data_parallel


def _checkable(found: tuple[Reduction, ...], size: int) -> Iterator[Reduction]:
    """The reductions that can be held against the mean: not those that were clipped in between."""
    late = tuple(one for one in found if one.late)
    steps = reduction.by_step(late)
    ratio = reduction.uniform_ratio(next(iter(steps.values()))) if steps else None
    plain = ratio is not None and min(abs(ratio - 1), abs(ratio / size - 1)) < 1e-3
    for one in found:
        if one.has_values and (plain or not one.late):
            yield one
