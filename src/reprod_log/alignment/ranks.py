"""compare_ranks: the ranks of one parallel run with each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from reprod_log.alignment.alignment import Alignment
from reprod_log.alignment.options import AlignOptions
from reprod_log.alignment.stopped import Patience, stopped
from reprod_log.diagnose import ranked
from reprod_log.diagnose.hypotheses.ranks import rank_findings
from reprod_log.measure.comparison import Comparison, measure
from reprod_log.messages import Message, Parts, message
from reprod_log.pairing import Pairing
from reprod_log.progress import Progress, shown
from reprod_log.ranks.mesh import DeclaredDims, Mesh
from reprod_log.ranks.parts import Ranks
from reprod_log.ranks.placing import Placing
from reprod_log.ranks.reductions import reductions
from reprod_log.ranks.replicas import pair_replicas
from reprod_log.recording.recording import Source
from reprod_log.verdict import Limit, Policy, verdict_of

_HALF = message("reason.limit.mean_over_ranks.half")
_EQUAL = Limit("max_abs", 0.0, reason=message("reason.limit.replicas"))
_MEANS = (
    # The order of a sum over ranks is the backend's; contributions that cancel leave up to a thousand roundings.
    Limit("rel_l2", 1e-4, keys="*:*.mean", reason=message("reason.limit.mean_over_ranks")),
    Limit("rel_l2", 2.0**-9, keys="*:*.mean", dtype="float16", reason=_HALF),
    Limit("rel_l2", 2.0**-6, keys="*:*.mean", dtype="bfloat16", reason=_HALF),
)
_MOST_PLACES = 8


def compare_ranks(
    ranks: Ranks,
    *,
    dims: Mapping[str, str] | None = None,
    limits: str | Iterable[Limit | str] = (),
    accept: str | Iterable[str] = (),
    allow_unmatched: str | Iterable[str] = (),
    allow_incomplete: bool = False,
    allow_unproven: bool = False,
    equal_nan: bool = False,
    progress: bool | Progress | None = None,
    threads: int | None = None,
) -> Alignment:
    """Compare every rank with rank 0: what should be the same is, and what was reduced is the mean of all.

    A key such as `step0/update/fc.weight:rank1` is rank 1's version of what rank 0 has, and
    `step0/gradient/fc.weight:raw.mean` the reduced gradient against the mean of the ranks' own. Without `limits`
    replicas must be equal.
    """
    options = AlignOptions.of(
        dims=dims,
        limits=limits,
        accept=accept,
        allow_unmatched=allow_unmatched,
        allow_incomplete=allow_incomplete,
        allow_unproven=allow_unproven,
        equal_nan=equal_nan,
        progress=progress,
        threads=threads,
    )
    return compare_ranks_with(ranks, options)


def compare_ranks_with(ranks: Ranks, options: AlignOptions) -> Alignment:
    """`compare_ranks` with its options as one value."""
    layout = DeclaredDims.of(options.dims)
    layout.check_used([entry.key for entry in ranks.parts[0].entries])
    mesh = layout.mesh(ranks.mesh, ranks.size)
    placing = Placing(ranks, layout, mesh)
    found = tuple(reductions(ranks, placing))
    pairing = pair_replicas(ranks, placing, found)
    policy = options.loosened(Policy.fixed((*_limits_of_means(pairing), *(options.limits or (_EQUAL,)))))
    patience, pairs = Patience(), len(pairing.pairs)
    with shown(options.progress):
        comparison = patience(Comparison, lambda: measure(pairing, threads=options.threads, elements=True))
    complete = all(part.complete for part in ranks.parts)
    verdict = verdict_of(comparison, policy, None, complete)
    others = Source(
        source=f"{ranks.source or 'ranks'}, ranks 1 to {ranks.size - 1}" if ranks.size > 2 else ranks.parts[1].source,
        entries=sum(len(part) for part in ranks.parts[1:]),
        provenance=ranks.parts[1].provenance,
        complete=all(part.complete for part in ranks.parts[1:]),
        notes=(*_places(mesh), *ranks.notes_of(range(1, ranks.size))),
    )
    if patience.stopped:
        partial = Alignment(Source.of(ranks.parts[0]), others, comparison, policy, verdict)
        raise stopped(partial, message("stopped.measuring", done=len(comparison.rows), total=pairs))
    causes = ranked(rank_findings(ranks, placing, found=found))
    return Alignment(Source.of(ranks.parts[0]), others, comparison, policy, verdict, causes)


def _places(mesh: Mesh) -> Iterator[Message]:
    """Who stands where, for reading the keys of single ranks."""
    if mesh.is_grid:
        ranks = range(min(len(mesh.coordinates), _MOST_PLACES))
        places = Parts(message("note.ranks.place", rank=rank, place=mesh.where(rank)) for rank in ranks)
        more = len(mesh.coordinates) - _MOST_PLACES
        if more > 0:
            yield message("note.ranks.axes_more", axes=mesh.sizes, places=places, count=more)
        else:
            yield message("note.ranks.axes", axes=mesh.sizes, places=places)


def _limits_of_means(pairing: Pairing) -> list[Limit]:
    """The limits for means over ranks of those dtypes that there are; one that fits nothing would be warned about."""
    means = [pair.candidate for pair in pairing.pairs if str(pair.candidate.key).endswith(".mean")]
    return [one for one in _MEANS if any(one.fits(str(entry.key), entry.dtype) for entry in means)]
