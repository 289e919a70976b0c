"""Hypotheses about ranks: causes that lie in how the processes of one parallel run work together.

Gradients that were not averaged over all ranks; layers that are split over ranks and lack a sum; weights, rates,
settings or data that ranks should not have been given; batch-norm statistics that each rank keeps for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod
from typing import Any

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.errors import counted, listed
from reprod_log.layers.lookup import column_of
from reprod_log.ranks.joining import JoinedRecording
from reprod_log.ranks.mesh import Mesh
from reprod_log.ranks.parts import Group, Ranks, digest, said_ranks, same
from reprod_log.ranks.placing import Parts, Placing, other_weights
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

_EXPLAINS = {
    # These see a constant factor in every gradient and do not know of ranks.
    "sum_for_mean": ("loss_scale", "constant_factor"),
    # These take parameters which were not recorded for missing in the model.
    "rank_parameters": ("missing_parameter", "cut_graph", "update_fit"),
}
_MODEL_REDUCTION = "model_reduction"
_RATES = ("lr", "learning_rate", "initial_lr", "parameters")


def look(case: Case) -> Iterator[Finding]:
    """What the ranks tell from which a side was put together."""
    joined = _joined(case)
    for name, side in joined:
        for one in _of_side(side, case, name):
            found = one
            if case.verdict.passed and one.kind == "cause":
                # What differs between ranks may be left out of the comparison, as a block that is cut elsewhere.
                found = replace(one, kind="suspicious pass")
            yield found if len(joined) == 1 else replace(found, cause=f"{name}: {found.cause}")


def superfluous(case: Case, found: Iterable[Finding]) -> frozenset[str]:
    """The rules whose findings are explained by what the ranks tell."""
    explained = {rule for one in found for rule in _EXPLAINS.get(one.rule, ())}
    if any(side.differing or side.left_out for _, side in _joined(case)):
        # A rank's own version of a parameter has no partner, and one that was left out neither; it is not missing.
        explained.add("missing_parameter")
    return frozenset(explained)


def _joined(case: Case) -> list[tuple[str, JoinedRecording]]:
    assert case.material is not None
    sides = (("reference", case.material.reference), ("candidate", case.material.candidate))
    return [(name, side) for name, side in sides if isinstance(side, JoinedRecording) and side.ranks is not None]


def rank_findings(ranks: Ranks, placing: Placing, *, found: tuple[Reduction, ...] | None = None) -> Iterator[Finding]:
    """What is wrong with the ranks, whatever they are compared with."""
    mesh = placing.mesh
    if mesh.has_batch:
        yield from _reductions(tuple(reductions(ranks, placing)) if found is None else found)
    yield from _settings_of_ranks(ranks, mesh)
    yield from _model_axes(ranks, placing)
    for group in statistics_groups(ranks, mesh):
        apart = differing_statistics(group)
        said = _statistics(group, apart, keeping(group, apart))
        if said is not None:
            yield said
            return


def _of_side(side: JoinedRecording, case: Case, name: str) -> Iterator[Finding]:
    assert side.ranks is not None
    mesh = side.mesh
    found = list(rank_findings(side.ranks, Placing(side.ranks, side.layout, mesh)))
    if mesh.has_batch and not any(one.rule in ("sum_for_mean", "missed_reduction") for one in found):
        group = side.ranks.groups(mesh, *mesh.batch)[0]
        found += _ratio_to_other(case, group, name)
    yield from found
    yield from _no_parameters(side, case)
    yield from _separate_statistics(side, case, name)
    if side.differing and not any(one.kind == "cause" for one in found):
        yield _not_replicas(side)


def _no_parameters(side: JoinedRecording, case: Case) -> Iterator[Finding]:
    """The other side has parameters and gradients, the ranks recorded none at all."""
    phases = ("parameter", "gradient")
    if any(entry.key.phase in phases for entry in side.entries):
        return
    unmatched = [one.key for one in case.verdict.judgements if one.status is Status.UNMATCHED]
    missing = [key for key in unmatched if key.phase in phases]
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


def _ratio_to_other(case: Case, group: Group, name: str) -> Iterator[Finding]:
    """A sum for a mean, seen in the gradients of the other side when the ranks' own were not recorded."""
    ratios, keys = [], []
    for row in case.comparison.rows:
        key, measured = row.key, row.measurement
        if key.phase != "gradient" or key.role != "raw" or key.run or key.step != _first_step(case):
            continue
        if measured is None or not measured.reference.rms > 0 or not measured.cosine_distance < 1e-6:
            return
        ratio = measured.candidate.rms / measured.reference.rms
        ratios.append(ratio if name == "candidate" else 1 / ratio if ratio else 0.0)
        keys.append(row.key)
    if len(ratios) >= 2 and max(ratios) - min(ratios) <= 1e-3 * max(ratios):
        evidence = f"every reduced gradient is {ratios[0]:.6g} times that of the single process, in the same direction"
        yield from _named_ratio(ratios[0], group.size, evidence, tuple(keys[:3]), axis=group.axis)


def _first_step(case: Case) -> int | None:
    return next((row.key.step for row in case.comparison.rows if row.key.phase == "gradient"), None)


def _separate_statistics(side: JoinedRecording, case: Case, name: str) -> Iterator[Finding]:
    """A batch norm is the first that differs: it normalised each rank's share of the batch by itself."""
    first = case.verdict.first_divergence
    row = None if first is None else case.rows.get(first.key)
    if row is None or not side.mesh.has_batch:
        return
    key = row.key if name == "reference" else row.candidate_key
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
        evidence=f"the first are {listed(map(str, differing), most=3)}",
        confidence="possible",
        advice=f"see them with `reprod ranks`{split}",
        keys=tuple(differing[:3]),
    )


def _reductions(found: tuple[Reduction, ...]) -> Iterable[Finding]:
    """What is wrong with the reductions along the axes of the batch, each group of ranks by itself, said once."""
    groups: dict[tuple[int, ...], list[Reduction]] = {}
    for one in found:
        groups.setdefault(one.numbers, []).append(one)
    said: dict[tuple[str, str], Finding] = {}
    for members in groups.values():
        for finding in _of_group(tuple(members)):
            said.setdefault((finding.rule, finding.cause), finding)
    if not said:
        mixed = mixed_groups(found)
        said = {} if mixed is None else {("", ""): _reduced_over_all(mixed)}
    yield from said.values()


def _of_group(found: tuple[Reduction, ...]) -> Iterator[Finding]:
    missed = list(_missed(found))
    yield from missed
    if not missed:
        yield from _scaled(found)


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
        keys=tuple(one.key for one in telling[:3]),
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
        keys=tuple(one.key for one in never[:3]),
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
        keys=tuple(one.key for one in kept[:3]),
    )


def _scaled(found: tuple[Reduction, ...]) -> Iterator[Finding]:
    for step, members in list(by_step(found).items())[:MOST_STEPS]:
        ratio = uniform_ratio(members)
        if ratio is None or abs(ratio - 1) <= NEAR:
            continue
        keys = tuple(one.key for one in members[:3])
        evidence = (
            f"in step {step} the reduced gradient of every parameter is {ratio:.6g} times the mean of the ranks' local "
            "gradients"
        )
        yield from _named_ratio(ratio, len(found[0].numbers), evidence, keys, axis=found[0].axis)
        return


def _named_ratio(ratio: float, size: int, evidence: str, keys: tuple[Key, ...], *, axis: str = "") -> Iterator[Finding]:
    """The mistake that makes gradients `ratio` times what they should be, if reducing over `size` ranks can."""
    if abs(ratio - size) <= NEAR * size:
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
    elif abs(ratio - 1 / size) <= NEAR / size:
        yield Finding(
            rule="sum_for_mean",
            cause=f"gradients are divided by the {size} ranks{f' along {axis}' if axis else ''} twice",
            evidence=evidence,
            confidence="consistent",
            advice="divide once: DistributedDataParallel and paddle.DataParallel average by themselves",
            keys=keys,
        )


def _reduced_over_all(mixed: MixedGroups) -> Finding:
    return Finding(
        rule="missed_reduction",
        cause=f"gradients are reduced over all {mixed.total} ranks instead of the {mixed.size} along {mixed.axis}",
        evidence=f"in step {mixed.step} the reduced gradient is a multiple of the mean over all ranks, which mixes "
        f"those of different pieces: {listed([key.path for key in mixed.keys])}",
        confidence="consistent",
        advice="give the all-reduce the process group of the ranks that have the same pieces",
        keys=mixed.keys[:3],
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
    apart = said_ranks(_apart(parts, placing.mesh, axis))
    if key.phase == "data":
        yield Finding(
            rule=_MODEL_REDUCTION,
            cause=f"ranks along {name} were fed different data",
            evidence=f"{key} differs between {apart}, which work on the same samples",
            confidence="consistent",
            advice="give all ranks that share a layer the same batch: a sampler counts only the ranks along the batch; "
            "if the ranks lie on axes that were not recorded, declare them with --mesh",
            keys=(key,),
        )
    elif key.phase == "forward" and key.role.startswith("output"):
        yield from _of_output(parts, ranks, placing, axis)
    elif key.phase == "backward":
        yield Finding(
            rule=_MODEL_REDUCTION,
            cause=f"the gradient of {key.path}'s output is not summed over the {size} ranks along {name}: each goes "
            "back with its own part",
            evidence=f"everything before it is the same along {name}, {key} differs between {apart}",
            confidence="consistent",
            advice="sum the gradient of a column-parallel layer's input over the ranks (the identity forward, an "
            "all-reduce backward)",
            keys=(key,),
        )
    elif key.phase == "gradient":
        yield Finding(
            rule=_MODEL_REDUCTION,
            cause=f"the gradient of {key.path} is not the same on the {size} ranks along {name}, which all have this "
            "parameter",
            evidence=f"everything before it is the same along {name}, {key} differs between {apart}",
            confidence="consistent",
            advice="a parameter that is not split but works on a split activation needs its gradient summed over these "
            "ranks; if it is split, declare its dims",
            keys=(key,),
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
        yield _undeclared(key, name)
        return
    apart = said_ranks(_apart(parts, placing.mesh, axis))
    yield Finding(
        rule=_MODEL_REDUCTION,
        cause=f"the output of {key.path} is not summed over the {size} ranks along {name}: each goes on with its own "
        "part",
        evidence=f"everything before it is the same along {name} or lies in pieces; {key.path} works with pieces of "
        f"{listed(cut)}, and its output differs between {apart}",
        confidence="possible" if whole_sums is None else "consistent",
        advice="sum the output of a row-parallel layer over the ranks (all-reduce) before its bias is added; if it is "
        "meant to lie in pieces, declare its dims",
        keys=(key,),
    )


def _undeclared(key: Key, axis: str) -> Finding:
    """A column-parallel layer gives pieces of the output."""
    return Finding(
        rule="undeclared_pieces",
        cause=f"the output of {key.path} lies in pieces along {axis}, and nothing declares them",
        evidence=f"the outputs of its weight are split, and {key} differs between the ranks",
        confidence="consistent",
        advice="declare the dims of what lies in pieces, or have layers give DTensors (use_local_output=False), which "
        "know it themselves",
        keys=(key,),
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
    shown = (
        f"; after the first step {counted(len(apart), 'parameter differs', 'parameters differ')}: "
        f"{listed(map(str, apart), most=3)}"
        if apart
        else ""
    )
    yield Finding(
        rule="rank_weights",
        cause=f"{said_ranks(others)} started from other weights than rank {first}",
        evidence=f"the hash of all parameters and buffers when recording began is another one{shown}",
        confidence="consistent",
        advice="seed every rank alike, load the same checkpoint on all, or broadcast rank 0's parameters before "
        "training (the wrappers do it when they are made, not for what is changed afterwards)",
        keys=tuple(apart[:3]),
    )


def _steps(ranks: Group) -> Iterator[Finding]:
    first = len(ranks.parts[0].steps)
    for rank, part in enumerate(ranks.parts):
        if len(part.steps) != first and part.complete and ranks.parts[0].complete:
            yield Finding(
                rule="rank_steps",
                cause=f"rank {rank} took {counted(len(part.steps), 'step')}, rank 0 took {first}",
                evidence="a step ends with the optimizer's update, or with the call of the model when none is watched",
                confidence="consistent",
                advice="every rank must update in each iteration, on as many batches as the others: look for a "
                "condition on the rank, a skipped update, or a sampler without drop_last",
            )
            return


def _rates(ranks: Group) -> Iterator[Finding]:
    for key in ranks.keys:
        if key.phase != "lr" or key.run:
            continue
        first, *others = [entry.array().item() for entry in ranks.entries(key)]
        apart = [(rank, rate) for rank, rate in enumerate(others, start=1) if rate != first]
        if apart:
            rank, rate = apart[0]
            yield Finding(
                rule="rank_rates",
                cause=f"rank {rank} has the learning rate {rate:.6g} in step {key.step}, rank 0 has {first:.6g}",
                evidence=f"{key} on {len(apart) + 1} ranks",
                confidence="consistent",
                advice="schedules must step alike on all ranks: look for a schedule that depends on the rank's own "
                "loss, number of batches or metric",
                keys=(key,),
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
            yield Finding(
                rule="rank_optimizer",
                cause=f"the optimizer setting {name} is {theirs!r} on rank {rank} and {ours!r} on rank 0",
                evidence=f"{len(apart)} settings differ: {listed(sorted(apart))}",
                confidence="consistent",
                advice="make the optimizer with the same settings on every rank",
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
        yield Finding(
            rule="rank_data",
            cause=f"{said_ranks(together)} were fed the same data in {len(when)} of {counted(len(steps), 'step')}",
            evidence=f"every input has the same bits on these ranks, first in step {when[0]}",
            confidence="consistent",
            advice="give each rank its own share: DistributedSampler (paddle: DistributedBatchSampler) with the rank "
            "and the number of ranks, and set_epoch for another order in each epoch",
            keys=tuple(steps[when[0]][:3]),
            kind="suspicious pass",
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


def _statistics(ranks: Group, differing: dict[str, ModuleInfo], kept: StatisticsKept) -> Finding | None:
    """What to say about statistics that differ between ranks."""
    if not differing:
        return None
    apart = dict.fromkeys(module.path for module in differing.values() if is_synchronised(module))
    if apart:
        return Finding(
            rule="rank_statistics",
            cause=f"the statistics of {listed(apart)} differ between ranks, although SyncBatchNorm takes them over all",
            evidence="after the same step the running statistics have other bits",
            confidence="consistent",
            advice="look at its process_group: it must hold all ranks that have parts of the batch; every rank must "
            "call the layer in each step",
            keys=tuple(map(Key, differing))[:3],
        )
    layers = listed(dict.fromkeys(module.path for module in differing.values()))
    sync = "use SyncBatchNorm (its convert_sync_batchnorm turns a whole model) for statistics of the whole batch"
    if kept == "rank 0's":
        return Finding(
            rule="rank_statistics",
            cause=f"the BatchNorm statistics of {layers} differ between ranks at the end of a step; rank 0's are given "
            "to all before the next forward pass, so only its share of the data enters them",
            evidence="rank 0's running mean is found again on a rank that was fed something else "
            "(DistributedDataParallel with broadcast_buffers)",
            confidence="consistent",
            advice=f"usual and harmless for training; {sync}",
            kind="remark",
        )
    proof = "fitted to the running means: those of each rank follow from its own of the step before"
    if kept == "unknown":
        proof = "from what was recorded it cannot be told whether rank 0's are given to the others later"
    passes = may_differ(ranks, differing, kept)
    return Finding(
        rule="rank_statistics",
        cause=f"the BatchNorm statistics of {layers} differ between ranks: each rank keeps those of its own data",
        evidence=proof,
        confidence="possible" if kept == "unknown" else "consistent",
        advice=f"{sync}, or give rank 0's to all before evaluating and saving; paddle.DataParallel and "
        "broadcast_buffers=False leave them so (--accept '*/buffer/*' if that is meant)",
        keys=tuple(map(Key, differing))[:3],
        kind="suspicious pass" if passes else "cause",
    )
