"""Hypotheses about ranks: causes that lie in how the processes of one parallel run work together.

Gradients that were not averaged over all ranks; layers that are split over ranks and lack a sum; weights, rates,
settings or data that ranks should not have been given; batch-norm statistics that each rank keeps for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding, side, told
from reprod_log.layers.lookup import column_of
from reprod_log.messages import Message, Name, Names, Number, message
from reprod_log.ranks.joining import JoinedRecording
from reprod_log.ranks.mesh import Mesh
from reprod_log.ranks.parts import Group, Ranks, digest, same
from reprod_log.ranks.placing import Parts, Placing, of_rank, other_weights
from reprod_log.ranks.reductions import (
    MOST_STEPS,
    NEAR,
    MixedGroups,
    Reduction,
    by_step,
    mixed_groups,
    reductions,
    uniform_ratio,
)
from reprod_log.ranks.replicas import (
    StatisticsKept,
    differing_statistics,
    is_synchronised,
    keeping,
    may_differ,
    statistics_groups,
)
from reprod_log.recording import Key, ModuleInfo
from reprod_log.verdict import Status

_RATES = ("lr", "learning_rate", "initial_lr", "parameters")
_BLAMES = ("cause", "hint")


def look(case: Case) -> Iterator[Finding]:
    """What the ranks explain from which a side was put together."""
    joined = case.data.joined
    for name, recording in joined:
        for one in _of_side(recording, case, name):
            found = _as_compared(one, recording, case) if one.kind in _BLAMES else one
            if len(joined) > 1:
                found = replace(found, cause=message("cause.of_side", side=side(name), cause=found.cause))
            yield found


def _as_compared(finding: Finding, joined: JoinedRecording, case: Case) -> Finding:
    """A finding that blames what the comparison has of it: ranks' own versions, where rank 0's stands for all."""
    assert joined.ranks is not None
    own = [of_rank(key, rank) for key in finding.keys for rank in range(joined.ranks.size)]
    judged = [case.judgements[key] for key in (*finding.keys, *own) if key in case.judgements]
    failed = tuple(one.key for one in judged if not one.status.passed)
    if case.verdict.passed or (judged and not failed):
        # What differs between ranks may be left out of the comparison, as a block that is cut elsewhere.
        return replace(finding, kind="doubt")
    return replace(finding, keys=failed or finding.keys)


def rank_findings(ranks: Ranks, placing: Placing, *, found: tuple[Reduction, ...] | None = None) -> Iterator[Finding]:
    """What is wrong with the ranks, whatever they are compared with."""
    mesh = placing.mesh
    if mesh.has_batch:
        yield from _reductions(tuple(reductions(ranks, placing)) if found is None else found)
    yield from _settings_of_ranks(ranks, mesh)
    yield from _model_axes(ranks, placing)
    for group in statistics_groups(ranks, mesh):
        apart = differing_statistics(group)
        found_here = list(_statistics(group, apart, keeping(group, apart)))
        yield from found_here
        if found_here:
            return


def _of_side(joined: JoinedRecording, case: Case, name: str) -> Iterator[Finding]:
    assert joined.ranks is not None
    mesh = joined.mesh
    found = list(rank_findings(joined.ranks, Placing(joined.ranks, joined.layout, mesh)))
    if mesh.has_batch and not any(one.rule in ("sum_for_mean", "missed_reduction") for one in found):
        group = joined.ranks.groups(mesh, *mesh.batch)[0]
        found += _ratio_to_other(case, group, name)
    yield from found
    yield from _no_parameters(joined, case)
    yield from _separate_statistics(joined, case, name)
    if joined.differing and not any(one.kind in _BLAMES for one in found):
        yield _not_replicas(joined)


def _no_parameters(joined: JoinedRecording, case: Case) -> Iterator[Finding]:
    """The other side has parameters and gradients, the ranks recorded none at all."""
    phases = ("parameter", "gradient")
    if any(entry.key.phase in phases for entry in joined.entries):
        return
    unmatched = [one.key for one in case.verdict.judgements if one.status is Status.UNMATCHED]
    missing = [key for key in unmatched if key.phase in phases]
    if missing:
        yield told("cause.rank_parameters", tuple(missing[:3]), count=len(missing))


_ALIKE = 1e-3
"""Relative: gradients that several processes sum in another order than one does are further apart than one layer's."""


def _ratio_to_other(case: Case, group: Group, name: str) -> Iterator[Finding]:
    """A sum for a mean, seen in the gradients of the other side when the ranks' own were not recorded."""
    ratios, keys = [], []
    for row in case.comparison.rows:
        key, measured = row.key, row.measurement
        if key.phase != "gradient" or key.role != "raw" or key.run or key.step != _first_step(case):
            continue
        if measured is None or not measured.reference.rms > 0 or not measured.cosine_distance < _ALIKE**2:
            return
        ratio = measured.candidate.rms / measured.reference.rms
        ratios.append(ratio if name == "candidate" else 1 / ratio if ratio else 0.0)
        keys.append(row.key)
    if len(ratios) >= 2 and max(ratios) - min(ratios) <= _ALIKE * max(ratios):
        evidence = message("evidence.ranks.times_single_process", ratio=Number(ratios[0], ".6g"))
        yield from _named_ratio(ratios[0], group.size, evidence, tuple(keys[:3]), axis=group.axis)


def _first_step(case: Case) -> int | None:
    return next((row.key.step for row in case.comparison.rows if row.key.phase == "gradient"), None)


def _separate_statistics(joined: JoinedRecording, case: Case, name: str) -> Iterator[Finding]:
    """A batch norm is the first that differs: it normalised each rank's share of the batch by itself."""
    first = case.verdict.first_divergence
    row = None if first is None else case.rows.get(first.key)
    if row is None or not joined.mesh.has_batch:
        return
    key = row.key if name == "reference" else row.candidate_key
    module = next((one for one in joined.modules if one.path == key.path), None)
    if module is None or module.kind != "batchnorm" or key.phase != "forward" or is_synchronised(module):
        return
    yield told("cause.rank_statistics.share_of_batch", (row.key,), path=Name(module.path), type=module.type)


def _not_replicas(joined: JoinedRecording) -> Finding:
    differing = list(joined.differing)
    axes = dict.fromkeys(axis for found in joined.differing.values() for axis in found)
    split = joined.mesh.batch != tuple(range(len(joined.mesh.axes)))
    return told(
        "cause.rank_replicas",
        differing[:3],
        advice=message("advice.ranks.see_or_declare" if split else "advice.ranks.see_them"),
        keys=Names(map(str, differing[:3])),
        count=len(differing),
        along=_along(Names(axes)) if joined.mesh.is_grid and axes else "",
    )


def _along(axis: str | Names) -> Message | str:
    """Along which axis, as words of a sentence; nothing where there is only one."""
    return message("word.ranks.along", axis=axis) if axis else ""


def _reductions(found: tuple[Reduction, ...]) -> Iterable[Finding]:
    """What is wrong with the reductions along the axes of the batch, each group of ranks by itself, reported once."""
    groups: dict[tuple[int, ...], list[Reduction]] = {}
    for one in found:
        groups.setdefault(one.numbers, []).append(one)
    found_once: dict[tuple[str, Message], Finding] = {}
    for members in groups.values():
        for finding in _of_group(tuple(members)):
            found_once.setdefault((finding.rule, finding.cause), finding)
    if found_once:
        yield from found_once.values()
    elif (mixed := mixed_groups(found)) is not None:
        yield _reduced_over_all(mixed)


def _of_group(found: tuple[Reduction, ...]) -> Iterator[Finding]:
    missed = list(_missed(found))
    yield from missed
    if not missed:
        yield from _scaled(found)


def _missed(found: tuple[Reduction, ...]) -> Iterator[Finding]:
    """Ranks that go on with their own gradients, said once for the first step in which they do."""
    known: set[int] = set()
    places = range(len(found[0].numbers))
    for step, members in by_step(found).items():
        telling = [one for one in members if one.locals_differ]
        own = {place: [one for one in telling if one.stayed_local(place)] for place in places}
        alone = [place for place in places if own[place] and place not in known]
        if len(alone) == len(places) and all(len(own[place]) == len(telling) for place in alone):
            yield _nothing_reduced(step, telling)
            return
        shared = set.intersection(*({one.key for one in own[place]} for place in places))
        everywhere = [one for one in telling if one.key in shared]
        if everywhere and len(alone) == len(places):
            yield _left_out_of_it(step, everywhere, len(telling))
        for place in alone:
            known.add(place)
            kept = [one for one in own[place] if one.key not in shared]
            if kept:
                yield _kept_own(found[0].numbers[place], step, kept, len(telling))


def _nothing_reduced(step: int, telling: list[Reduction]) -> Finding:
    along, keys = _along(telling[0].axis), [one.key for one in telling[:3]]
    return told("cause.missed_reduction", keys, along=along, step=step, count=len(telling))


def _left_out_of_it(step: int, never: list[Reduction], total: int) -> Finding:
    along, paths = _along(never[0].axis), Names(one.key.path for one in never)
    keys = [one.key for one in never[:3]]
    return told("cause.missed_reduction.some", keys, along=along, step=step, paths=paths, count=total - len(never))


def _kept_own(rank: int, step: int, kept: list[Reduction], total: int) -> Finding:
    id = "cause.missed_reduction.rank_some" if len(kept) < total else "cause.missed_reduction.rank"
    along, paths = _along(kept[0].axis), Names(one.key.path for one in kept)
    keys = [one.key for one in kept[:3]]
    return told(id, keys, along=along, rank=rank, step=step, count=len(kept), total=total, paths=paths)


def _scaled(found: tuple[Reduction, ...]) -> Iterator[Finding]:
    for step, members in list(by_step(found).items())[:MOST_STEPS]:
        ratio = uniform_ratio(members)
        if ratio is None or abs(ratio - 1) <= NEAR:
            continue
        keys = tuple(one.key for one in members[:3])
        evidence = message("evidence.ranks.times_the_mean", step=step, ratio=Number(ratio, ".6g"))
        yield from _named_ratio(ratio, len(found[0].numbers), evidence, keys, axis=found[0].axis)
        return


def _named_ratio(
    ratio: float, size: int, evidence: Message, keys: tuple[Key, ...], *, axis: str = ""
) -> Iterator[Finding]:
    """The mistake that makes gradients `ratio` times what they should be, if reducing over `size` ranks can."""
    if abs(ratio - size) <= NEAR * size:
        id = "cause.sum_for_mean"
    elif abs(ratio - 1 / size) <= NEAR / size:
        id = "cause.sum_for_mean.twice"
    else:
        return
    yield told(id, keys, evidence=evidence, along=_along(axis), count=size)


def _reduced_over_all(mixed: MixedGroups) -> Finding:
    return told(
        "cause.missed_reduction.over_all",
        mixed.keys[:3],
        total=mixed.total,
        count=mixed.size,
        axis=mixed.axis,
        step=mixed.step,
        paths=Names(k.path for k in mixed.keys),
    )


def _model_axes(ranks: Ranks, placing: Placing) -> Iterator[Finding]:
    """What is missing along each axis that layers are split over."""
    for axis, one in enumerate(placing.mesh.axes):
        if not one.batch:
            parts = _first_apart(ranks, placing, axis)
            if parts is not None:
                yield from _missing_sum(parts, ranks, placing, axis)


def _first_apart(ranks: Ranks, placing: Placing, axis: int) -> Parts | None:
    """The first entry that should be the same along the axis and is not."""
    for key in ranks.keys:
        parts = ranks.entries(key)
        if key.run or (key.phase == "gradient" and key.role == "local"):
            continue
        if _apart(parts, placing.mesh, axis) and axis in placing.of(parts).same:
            return parts
    return None


def _apart(parts: Parts, mesh: Mesh, axis: int) -> tuple[int, ...]:
    """The ranks of the first line along the axis that do not all have the same."""
    for line in mesh.groups(axis):
        if len({digest(parts[rank]) for rank in line}) > 1:
            return line
    return ()


def _missing_sum(parts: Parts, ranks: Ranks, placing: Placing, axis: int) -> Iterator[Finding]:
    key, name, size = parts[0].key, placing.mesh.axes[axis].name, placing.mesh.axes[axis].size
    apart = named_ranks(_apart(parts, placing.mesh, axis))
    same_before = message("evidence.ranks.same_before", axis=name, key=Name(key), ranks=apart)
    if key.phase == "data":
        yield told("cause.model_reduction.data", (key,), axis=name, key=Name(key), ranks=apart)
    elif key.phase == "forward" and key.role.startswith("output"):
        yield from _of_output(parts, ranks, placing, axis)
    elif key.phase == "backward":
        yield told(
            "cause.model_reduction.backward", (key,), evidence=same_before, path=Name(key.path), count=size, axis=name
        )
    elif key.phase == "gradient":
        yield told(
            "cause.model_reduction.gradient", (key,), evidence=same_before, path=Name(key.path), count=size, axis=name
        )


def _of_output(parts: Parts, ranks: Ranks, placing: Placing, axis: int) -> Iterator[Finding]:
    key, name, size = parts[0].key, placing.mesh.axes[axis].name, placing.mesh.axes[axis].size
    module = next((one for one in ranks.parts[0].modules if one.path == key.path), None)
    cut = {} if module is None else _cut_parameters(module, ranks, placing, axis)
    if not cut:
        return
    assert module is not None
    column = column_of(module)
    whole_sums = None if column is None else column.split_input
    if whole_sums is not None and cut.get("weight", whole_sums) != whole_sums:
        # A column-parallel layer gives pieces of the output.
        yield told("cause.undeclared_pieces", (key,), path=Name(key.path), axis=name, key=Name(key))
        return
    yield told(
        "cause.model_reduction.forward",
        (key,),
        sure="hint" if whole_sums is None else "explained",
        path=Name(key.path),
        count=size,
        axis=name,
        names=Names(cut),
        ranks=named_ranks(_apart(parts, placing.mesh, axis)),
    )


def _cut_parameters(module: ModuleInfo, ranks: Ranks, placing: Placing, axis: int) -> dict[str, int]:
    """The layer's own parameters that lie in pieces along the axis, with the dim that is cut."""
    found: dict[str, int] = {}
    wanted = {f"{module.path}.{name}" if module.path else name: name for name in module.parameters}
    for key in ranks.keys:
        if key.path in wanted and key.phase in ("parameter", "gradient", "update") and wanted[key.path] not in found:
            cuts = dict(placing.of(ranks.entries(key)).cuts)
            if axis in cuts:
                found[wanted[key.path]] = cuts[axis]
    return found


def _settings_of_ranks(ranks: Ranks, mesh: Mesh) -> Iterable[Finding]:
    """What ranks were given that they should not have been; weights and data along the axes of the batch."""
    groups = ranks.groups(mesh, *mesh.batch) if mesh.has_batch else ()
    for group in groups:
        yield from _start_weights(group)
    yield from _steps(ranks.all)
    yield from _rates(ranks.all)
    yield from _optimizers(ranks.all)
    # Along other axes all ranks are fed the same, so one group shows what was fed.
    for group in groups[:1]:
        yield from _same_data(group)


def _start_weights(group: Group) -> Iterator[Finding]:
    others = other_weights(group)
    if not others:
        return
    first = group.numbers[0]
    keys = [key for key in group.keys if key.phase == "parameter" and key.step == group.parts[0].steps[0]]
    entries = [group.entries(key) for key in keys]
    apart = [parts[0].key for parts in entries if not all(same(parts[0], part) for part in parts[1:])]
    evidence = [message("evidence.ranks.other_hash")]
    if apart:
        evidence.append(
            message("evidence.ranks.differ_after_first_step", count=len(apart), keys=Names(map(str, apart[:3])))
        )
    yield told("cause.rank_weights", tuple(apart[:3]), evidence=tuple(evidence), ranks=named_ranks(others), first=first)


def _steps(ranks: Group) -> Iterator[Finding]:
    first = len(ranks.parts[0].steps)
    for rank, part in enumerate(ranks.parts):
        if len(part.steps) != first and part.complete and ranks.parts[0].complete:
            yield told("cause.rank_steps", rank=rank, count=len(part.steps), first=first)
            return


def _rates(ranks: Group) -> Iterator[Finding]:
    for key in ranks.keys:
        if key.phase != "lr" or key.run:
            continue
        first, *others = [entry.array().item() for entry in ranks.entries(key)]
        apart = [(rank, rate) for rank, rate in enumerate(others, start=1) if rate != first]
        if apart:
            rank, rate = apart[0]
            yield told(
                "cause.rank_rates",
                (key,),
                rank=rank,
                rate=Number(rate, ".6g"),
                step=key.step,
                first=Number(first, ".6g"),
                key=Name(key),
                count=len(apart) + 1,
            )
            return


def _optimizers(ranks: Group) -> Iterator[Finding]:
    first = _optimizer_settings(ranks, 0)
    for rank in range(1, ranks.size):
        other = _optimizer_settings(ranks, rank)
        apart = [name for name in first.keys() | other.keys() if first.get(name) != other.get(name)]
        if apart:
            name = min(apart)
            ours, theirs = first.get(name), other.get(name)
            yield told(
                "cause.rank_optimizer",
                name=name,
                theirs=repr(theirs),
                rank=rank,
                ours=repr(ours),
                count=len(apart),
                names=Names(sorted(apart)),
            )
            return


def _same_data(ranks: Group) -> Iterator[Finding]:
    """Ranks that were fed the same batch: what should differ and does not."""
    steps: dict[int, list[Key]] = {}
    for key in ranks.keys:
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
        yield told(
            "cause.rank_data",
            tuple(steps[when[0]][:3]),
            ranks=named_ranks(together),
            count=len(when),
            total=len(steps),
            step=when[0],
        )


def _optimizer_settings(ranks: Group, rank: int) -> dict[str, Any]:
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


def _statistics(ranks: Group, differing: dict[str, ModuleInfo], kept: StatisticsKept) -> Iterator[Finding]:
    """What to report about statistics that differ between ranks."""
    if not differing:
        return
    keys = tuple(map(Key, differing))[:3]
    apart = dict.fromkeys(module.path for module in differing.values() if is_synchronised(module))
    if apart:
        yield told("cause.rank_statistics.synchronised", keys, layers=Names(apart))
        return
    layers = Names(dict.fromkeys(module.path for module in differing.values()))
    if kept == "rank 0's":
        yield told("cause.rank_statistics.of_first_rank", layers=layers)
        return
    unknown = kept == "unknown"
    yield told(
        "cause.rank_statistics",
        keys,
        evidence=(message("evidence.ranks.cannot_tell" if unknown else "evidence.ranks.own_of_step_before"),),
        kind="remark" if may_differ(ranks, differing, kept) else "cause",
        sure="hint" if unknown else "explained",
        layers=layers,
    )


def named_ranks(ranks: Sequence[int], most: int = 20) -> Message:
    """The ranks as words of a sentence: `rank 1`, `ranks 0, 1 and 4`."""
    if len(ranks) == 1:
        return message("word.rank", rank=ranks[0])
    shown = list(map(str, ranks[:most]))
    if len(ranks) > most:
        return message("word.ranks.more", some=", ".join(shown), count=len(ranks) - most)
    return message("word.ranks", some=", ".join(shown[:-1]), last=shown[-1])
