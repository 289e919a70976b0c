"""Explaining: causes that lie in the ranks, added to the alignment of what was put together from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from reprod_log.alignment import Alignment
from reprod_log.diagnose import Finding, ranked
from reprod_log.errors import counted, listed
from reprod_log.ranks.joining import JoinedRecording
from reprod_log.ranks.parts import Group
from reprod_log.ranks.placing import Placing
from reprod_log.ranks.reduction import named_ratio
from reprod_log.ranks.replicas import rank_findings
from reprod_log.ranks.statistics import is_synchronised
from reprod_log.recording import Key, Recording
from reprod_log.verdict import Status

_CONSTANTS = ("loss_scale", "constant_factor")
"""Rules that see a constant factor in every gradient and do not know of ranks."""

_ABOUT_PARAMETERS = ("missing_parameter", "cut_graph", "update_fit")
"""Rules that take parameters which were not recorded for missing in the model."""


def with_ranks(alignment: Alignment, reference: Recording, candidate: Recording) -> Alignment:
    """The alignment with what the ranks behind its sides tell; as it is when neither was put together from ranks."""
    sides = (("reference", reference), ("candidate", candidate))
    joined = [(name, side) for name, side in sides if isinstance(side, JoinedRecording) and side.ranks is not None]
    found: list[Finding] = []
    for name, side in joined:
        told = list(_of_side(side, alignment, name))
        if alignment.passed:
            # What differs between ranks may be left out of the comparison, as a block that is cut elsewhere.
            told = [replace(one, kind="suspicious pass") if one.kind == "cause" else one for one in told]
        found += told if len(joined) == 1 else [replace(one, cause=f"{name}: {one.cause}") for one in told]
    others = list(alignment.findings)
    if any(side.differing or side.left_out for _, side in joined):
        # A rank's own version of a parameter has no partner, and one that was left out neither; it is not missing.
        others = [one for one in others if one.rule != "missing_parameter"]
    if any(one.rule == "rank_parameters" for one in found):
        others = [one for one in others if one.rule not in _ABOUT_PARAMETERS]
    if any(one.rule == "sum_for_mean" for one in found):
        others = [one for one in others if one.rule not in _CONSTANTS]
    return replace(alignment, findings=ranked([*others, *found]))


def _of_side(side: JoinedRecording, alignment: Alignment, name: str) -> Iterator[Finding]:
    assert side.ranks is not None
    mesh = side.mesh
    found = list(rank_findings(side.ranks, Placing(side.ranks, side.layout, mesh)))
    if mesh.has_batch and not any(one.rule in ("sum_for_mean", "missed_reduction") for one in found):
        group = side.ranks.groups(mesh, *mesh.batch)[0]
        found += _ratio_to_other(alignment, group, name)
    yield from found
    yield from _no_parameters(side, alignment)
    yield from _separate_statistics(side, alignment, name)
    if side.differing and not any(one.kind == "cause" for one in found):
        yield _not_replicas(side)


def _no_parameters(side: JoinedRecording, alignment: Alignment) -> Iterator[Finding]:
    """The other side has parameters and gradients, the ranks recorded none at all."""
    phases = ("parameter", "gradient")
    if any(entry.key.phase in phases for entry in side.entries):
        return
    unmatched = [one.key for one in alignment.verdict.judgements if one.status is Status.UNMATCHED]
    missing = [key for key in unmatched if Key.parse(key).phase in phases]
    if missing:
        yield Finding(
            rule="rank_parameters",
            cause="no parameter of the ranks was recorded, so neither parameters nor gradients can be compared",
            evidence=f"{counted(len(missing), 'entry of', 'entries of')} the other side have no partner",
            confidence="consistent",
            advice="FullyShardedDataParallel keeps them in one flat parameter unless it is made with "
            "use_orig_params=True; otherwise look at the phases and layers that watch was given",
            keys=tuple(missing[:3]),
        )


def _ratio_to_other(alignment: Alignment, group: Group, name: str) -> Iterator[Finding]:
    """A sum for a mean, seen in the gradients of the other side when the ranks' own were not recorded."""
    ratios, keys = [], []
    for row in alignment.comparison.rows:
        key, measured = Key.parse(row.key), row.measurement
        if key.phase != "gradient" or key.role != "raw" or key.run or key.step != _first_step(alignment):
            continue
        if measured is None or not measured.reference.rms > 0 or not measured.cosine_distance < 1e-6:
            return
        ratio = measured.candidate.rms / measured.reference.rms
        ratios.append(ratio if name == "candidate" else 1 / ratio if ratio else 0.0)
        keys.append(row.key)
    if len(ratios) >= 2 and max(ratios) - min(ratios) <= 1e-3 * max(ratios):
        evidence = f"every reduced gradient is {ratios[0]:.6g} times that of the single process, in the same direction"
        yield from named_ratio(ratios[0], group.size, evidence, tuple(keys[:3]), axis=group.axis)


def _first_step(alignment: Alignment) -> int | None:
    return next(
        (key.step for row in alignment.comparison.rows if (key := Key.parse(row.key)).phase == "gradient"), None
    )


def _separate_statistics(side: JoinedRecording, alignment: Alignment, name: str) -> Iterator[Finding]:
    """A batch norm is the first that differs: it normalised each rank's share of the batch by itself."""
    first = alignment.first_divergence
    row = None if first is None else alignment.row(first.key)
    if row is None or not side.mesh.has_batch:
        return
    key = Key.parse(row.key if name == "reference" else row.candidate_key)
    module = next((one for one in side.modules if one.path == key.path), None)
    if module is None or module.kind != "batchnorm" or key.phase != "forward" or is_synchronised(module):
        return
    yield Finding(
        rule="rank_statistics",
        cause=f"{module.path} normalises each rank's share of the batch by itself, a single process the whole batch",
        evidence=f"it is the first that differs, and it is a {module.type}",
        confidence="consistent",
        advice="use SyncBatchNorm on the ranks (its convert_sync_batchnorm turns a whole model) to compute what a "
        "single process computes; otherwise compare in eval mode, or rank by rank",
        keys=(row.key,),
    )


def _not_replicas(side: JoinedRecording) -> Finding:
    differing = list(side.differing)
    axes = dict.fromkeys(axis for found in side.differing.values() for axis in found)
    along = ", ".join(axes) if side.mesh.is_grid else ""
    split = (
        "" if side.mesh.batch == tuple(range(len(side.mesh.axes))) else ", or declare the dims of those that are split"
    )
    return Finding(
        rule="rank_replicas",
        cause=(
            f"{counted(len(differing), 'entry differs', 'entries differ')} between ranks"
            f"{f' along {along}' if along else ''} although every rank should have the same"
        ),
        evidence=f"the first are {listed(differing, most=3)}",
        confidence="possible",
        advice=f"see them with `reprod ranks`{split}",
        keys=tuple(differing[:3]),
    )
