"""align: two recordings, or their paths, compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

from reprod_log.alignment.alignment import Alignment
from reprod_log.alignment.options import AlignOptions
from reprod_log.alignment.stopped import Patience, stopped
from reprod_log.diagnose import Case, Finding, diagnose
from reprod_log.diagnose.case import CaseData
from reprod_log.diagnose.finding import told
from reprod_log.errors import UsageError
from reprod_log.measure.comparison import Comparison, measure
from reprod_log.measure.metrics import metric
from reprod_log.measure.picture import pictures_of
from reprod_log.measure.sketch import has_values
from reprod_log.messages import Message, Name, Number, message
from reprod_log.pairing import Pair, Pairing, match
from reprod_log.pairing.links import Crossing, WeightMap
from reprod_log.pairing.rename import is_front
from reprod_log.progress import Progress, shown
from reprod_log.ranks import open_sides
from reprod_log.recording import Array, Key, Recording
from reprod_log.recording.counting import counting
from reprod_log.recording.portable import portable
from reprod_log.recording.recording import Source
from reprod_log.verdict import CalibratedPolicy, Limit, NoiseFloor, Policy, Verdict, calibrate, verdict_of
from reprod_log.verdict.evidence import FLOAT64
from reprod_log.verdict.policy import ABSOLUTE


def align(
    reference: Recording | str | Path,
    candidate: Recording | str | Path,
    *,
    policy: Policy | CalibratedPolicy | None = None,
    limits: str | Iterable[Limit | str] = (),
    rename: Mapping[str, str] | None = None,
    allow_unmatched: str | Iterable[str] = (),
    accept: str | Iterable[str] = (),
    allow_incomplete: bool = False,
    allow_unproven: bool = False,
    equal_nan: bool = False,
    counts: Any = None,
    dims: Mapping[str, str] | None = None,
    mesh: Mapping[str, int] | None = None,
    trust: bool = False,
    progress: bool | Progress | None = None,
    threads: int | None = None,
    executor: Executor | None = None,
    elements: bool = True,
) -> Alignment:
    """Compare two recordings (or their paths): match, measure, calibrate, judge, diagnose.

    A path with the parts of several ranks is joined first: as data-parallel, or as `dims` and `mesh` declare
    (see `load_ranks` and `join_ranks` of reprod_log.ranks).
    Pass a `policy` or `limits`, not both. Without either, the calibrated rule judges if the reference also ran in
    float64, fixed limits otherwise. `allow_unmatched`, `accept`, `allow_incomplete` (an incomplete recording may
    pass on what it contains), `allow_unproven` (accept a pass that proves nothing) and `equal_nan` loosen the policy
    in use.
    `counts` is a mask of the positions that count (real tokens, not padding), over the first axes of tensors, or a list
    with one per step: at the others nothing is compared, and the report states how many these are.
    Pairs are measured on `threads` of this process (None: one per core), or by any `executor` of concurrent.futures;
    one that runs elsewhere must see the recordings under the same paths or URLs. Neither changes the result.
    `elements` keeps a few single elements of each pair for the pictures of HTML reports; nothing else needs them.
    `progress` is shown on a terminal and in a notebook; True also shows it elsewhere, False never, and a function is
    called with what is being done, how much is done and the total. On Ctrl-C, the `result` of the KeyboardInterrupt is
    the alignment of what was measured so far; it never passes.
    """
    options = AlignOptions.of(
        rename=rename,
        policy=policy,
        limits=limits,
        allow_unmatched=allow_unmatched,
        accept=accept,
        allow_incomplete=allow_incomplete,
        allow_unproven=allow_unproven,
        equal_nan=equal_nan,
        counts=counts,
        dims=dims,
        mesh=mesh,
        trust=trust,
        progress=progress,
        threads=threads,
        executor=executor,
        elements=elements,
    )
    return align_with(reference, candidate, options)


def align_with(
    reference: Recording | str | Path,
    candidate: Recording | str | Path,
    options: AlignOptions,
    weights: WeightMap | None = None,
) -> Alignment:
    """`align` with its options as one value; `weights` is a map under which both programs are known to agree."""
    reference, candidate = open_sides(reference, candidate, dims=options.dims, mesh=options.mesh, trust=options.trust)
    if options.executor is not None:
        reference, candidate = (portable(side, trust=options.trust) for side in (reference, candidate))
    (reference, candidate), counted = _counting(reference, candidate, options.counts)
    pairing = match(reference, candidate, rename=options.rename, weights=weights)
    pairing = replace(pairing, notes=(*pairing.notes, *counted))
    # The calibrated rule looks at single elements, which sketches and statistics do not have.
    has_truth = any(run.endswith(FLOAT64) for run in reference.runs) and all(map(has_values, pairing.pairs))
    calibrated = has_truth or isinstance(options.policy, CalibratedPolicy)
    policy = options.policy_for(calibrated=calibrated)
    patience, pairs = Patience(), len(pairing.pairs)
    with shown(options.progress):
        comparison = patience(
            Comparison,
            lambda: measure(
                pairing,
                limit_for=_absolute_limit(policy),
                rows_for=_metrics_of_rows(policy),
                elements=options.elements,
                executor=options.executor,
                threads=options.threads,
            ),
        )
        # Rows come in the order of pairs.
        pairing = replace(pairing, pairs=pairing.pairs[: len(comparison.rows)])
        floor = None
        if calibrated:
            floor = patience(
                NoiseFloor,
                lambda: calibrate(
                    pairing,
                    reference=reference,
                    candidate=candidate,
                    comparison=comparison,
                    executor=options.executor,
                    threads=options.threads,
                ),
            )
    verdict = verdict_of(comparison, policy, floor, reference.complete and candidate.complete)
    case = Case(
        Source.of(reference),
        Source.of(candidate),
        comparison,
        policy,
        verdict,
        floor,
        CaseData(reference, candidate, pairing),
    )
    if patience.stopped:
        measured, judged = len(comparison.rows), len(verdict.judgements)
        how_far = message("stopped.measuring", done=measured, total=pairs)
        if measured == pairs:
            how_far = message("stopped.floor", done=judged)
        raise stopped(Alignment(case.reference, case.candidate, comparison, policy, verdict, (), floor), how_far)
    findings = (*crossed(pairing.crossings, options.rename), *diagnose(case))
    pictures = pictures_of(_to_look_at(pairing, comparison, verdict, findings)) if options.elements else {}
    return Alignment(case.reference, case.candidate, comparison, policy, verdict, findings, floor, pictures=pictures)


def _counting(
    reference: Recording, candidate: Recording, masks: tuple[Array, ...]
) -> tuple[tuple[Recording, Recording], list[Message]]:
    """Both sides with nothing where nothing counts, and what the report states of it."""
    if not masks:
        return (reference, candidate), []
    (ours, here), (theirs, there) = (counting(one, masks) for one in (reference, candidate))
    positions, left_out = sum(one.size for one in masks), sum(int((~one).sum()) for one in masks)
    if left_out and not (here and there):
        raise UsageError(
            f"no tensor of the {'candidate' if here else 'reference'} begins with axes of {list(masks[0].shape)}, the "
            "sizes of the mask of what counts"
        )
    share = Number(100 * left_out / positions, ".3g")
    note = message("note.counts", some=left_out, all=positions, share=share, entries=here, others=there)
    return (ours, theirs), [note]


def crossed(crossings: Iterable[Crossing], rename: Mapping[str, str]) -> Iterator[Finding]:
    """A doubt for every two layers that agree only against their names, unless the user's own map says so."""
    for one in crossings:
        if not any(is_front(old, path) for old in rename for path in (one.one, one.two)):
            yield told(
                "cause.crossed",
                one=Name(one.one),
                other=Name(one.other),
                two=Name(one.two),
                another=Name(one.another),
                rename=repr({one.one: one.other, one.two: one.another}),
            )


def _to_look_at(
    pairing: Pairing, comparison: Comparison, verdict: Verdict, findings: Iterable[Finding]
) -> Iterator[tuple[Pair, tuple[int, ...]]]:
    """The pairs of which people want a picture, with their worst elements: the first divergence, what causes name,
    where each phase goes wrong, what else does not pass, then what differs most."""
    pairs = {pair.reference.key: pair for pair in pairing.pairs}
    rows = {row.key: row for row in comparison.rows}
    failing = [one.key for one in verdict.judgements if not one.status.passed]
    of_phases: dict[tuple[str, str], Key] = {}
    for key in failing:
        of_phases.setdefault((key.run, key.phase), key)
    differing = [row for row in comparison.rows if row.measurement is not None and not row.measurement.identical]
    furthest = sorted(differing, key=lambda row: -row.measurement.rel_l2 if row.measurement else 0.0)
    named = [key for one in findings for key in one.keys]
    for key in dict.fromkeys([*failing[:1], *named, *of_phases.values(), *failing, *(row.key for row in furthest)]):
        if key in pairs and key in rows:
            worst = rows[key].worst_elements
            yield pairs[key], worst[0].index if worst else ()


def _absolute_limit(policy: Policy | CalibratedPolicy) -> Callable[[Pair], float | None]:
    """The limit whose excess is worth counting for a pair: that of an absolute metric, if the policy has one."""

    def of(pair: Pair) -> float | None:
        if isinstance(policy, CalibratedPolicy):
            return None
        found = policy.limits_for(str(pair.reference.key), pair.reference.dtype)
        values = [found[name].value for name in ABSOLUTE if name in found]
        return values[0] if values else None

    return of


def _metrics_of_rows(policy: Policy | CalibratedPolicy) -> Callable[[Pair], tuple[str, ...]]:
    """The metrics of whole rows that the policy holds a pair to: nothing else asks for them."""
    if isinstance(policy, CalibratedPolicy) or all(metric(one.metric).of_rows is None for one in policy.limits):
        return lambda pair: ()

    def of(pair: Pair) -> tuple[str, ...]:
        found = policy.limits_for(str(pair.reference.key), pair.reference.dtype)
        return tuple(name for name in found if metric(name).of_rows is not None)

    return of
