"""Graph: where the two programs compute different things, or send other gradients back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from reprod_log.diagnose.case import Both, Case, CaseData, shared_weights
from reprod_log.diagnose.engine import Hypothesis, Where
from reprod_log.diagnose.finding import Finding, What, side, told, what
from reprod_log.diagnose.fits import (
    MOST_CHANNELS,
    by_channel,
    epsilon,
    function_between,
    holds,
    nearness,
    relation,
    scaled,
    shown_ratio,
)
from reprod_log.layers.lookup import layer_kind
from reprod_log.layers.settings import setting_differences
from reprod_log.messages import Message, Name, Names, Number, message
from reprod_log.pairing.distance import factor, relative
from reprod_log.recording import Array, Key, Recording
from reprod_log.verdict import Status

# Code between two layers that differs: everything a layer was made from agrees, what it is given does not. Tried are:
# another tensor, the same numbers in another order, a constant factor or shift, another activation, a missing term.

_RECENT = 6
"""How many earlier tensors are tried as what an activation was given: each through every function."""


def _between_layers(case: Case) -> Iterable[Finding]:
    data = case.data
    step = data.steps[0]
    if any(key.phase == "data" and key.step == step for key in case.failed):
        return
    forward = data.keys("forward", step)
    place = next((i for i, key in enumerate(forward) if key in case.failed), None)
    if place is None or not forward[place].role.startswith("input") or _has_own_error_before(case, forward, place):
        return
    key = forward[place]
    both = data.best(key)
    earlier = [
        (one, found) for one in forward[:place] if one not in case.failed and (found := data.best(one)) is not None
    ]
    before = next((one.path for one, _ in reversed(earlier) if not one.role.startswith("input")), "")
    difference = None if both is None else _difference_between(case.near(key, both), both, earlier)
    yield told(
        "cause.between_layers",
        (key,),
        evidence=(message("evidence.input_differs", path=Name(key.path)),)
        if both is None
        else (message("evidence.input_differs.by", path=Name(key.path), size=Number(relative(*both), ".2g")),),
        before=Name(before) if before else message("word.the_input"),
        after=Name(key.path),
        what=difference or what("word.something_else"),
    )


def _has_own_error_before(case: Case, forward: list[Key], place: int) -> bool:
    return any(key.path in case.own for key in forward[:place])


def _difference_between(near: float, both: Both, earlier: list[tuple[Key, Both]]) -> What | None:
    recent = [one for one in reversed(earlier) if one[1][0].shape == both[0].shape]
    found = _another_tensor(near, both, recent) or relation(*both, near=near, functions=False)
    return found or _other_activation(near, both, recent[:_RECENT]) or _missing_term(near, both, recent)


def _another_tensor(near: float, both: Both, recent: list[tuple[Key, Both]]) -> What | None:
    """Each side passes on another of the tensors that both have."""
    keys = [next((key for key, (given, _) in recent if holds(given, one, near)), None) for one in both]
    if keys[0] is None or keys[1] is None:
        return None
    return what("word.passes_another", ours=_end_of(keys[0]), theirs=_end_of(keys[1]))


def _end_of(key: Key) -> Message:
    """What was recorded under a key of the forward pass: what a layer was given, or what it gave."""
    return message("word.input_of" if key.role.startswith("input") else "word.output_of", path=Name(key.path))


def _other_activation(near: float, both: Both, recent: list[tuple[Key, Both]]) -> What | None:
    ours, theirs = both
    for key, (given, _) in recent:
        here, there = (function_between(given, one, near=near) for one in (ours, theirs))
        if here is not None and there is not None and here != there:
            return what("word.functions", ours=here, theirs=there, path=_end_of(key))
    return None


def _missing_term(near: float, both: Both, recent: list[tuple[Key, Both]]) -> What | None:
    """One side is a tensor, the other the same and something added: a residual connection that is missing."""
    ours, theirs = both
    for key, (given, _) in recent:
        for whole, part, name in ((ours, theirs, "candidate"), (theirs, ours, "reference")):
            # Nothing at all is no sum that lacks a term.
            if float(np.abs(part).max(initial=0.0)) > near and holds(given, whole - part, near):
                return what("word.does_not_add", side=side(name), path=_end_of(key))
    return None


# A layer whose output alone is the reference's times or plus a constant: a scale, a temperature, a missing offset.


def _constant_factor(case: Case) -> Iterable[Finding]:
    for path in case.own:
        key = Key(path, "forward", 0, 0, "output", "isolated")
        both = case.data.best(key)
        if both is None or both[0].size < 4 or not np.ptp(both[0]) > 0:
            continue
        found = scaled(*both, case.near(key, both))
        ratio = factor(*both, within=1.0)
        if found is not None and ratio is not None and (count := _deviation_over(ratio, both[0].shape)) is not None:
            found = what("word.deviation", ratio=shown_ratio(ratio), count=count)
        if found is not None:
            yield told("cause.constant_factor", (key,), path=Name(path), what=found)


def _deviation_over(ratio: float, shape: tuple[int, ...]) -> int | None:
    """The size of an axis whose two deviations, biased and unbiased, have this ratio."""
    for size in shape:
        expected = ((size - 1) / size) ** 0.5 if size > 1 else 0.0
        # Epsilon beside the variance moves the ratio by a little.
        if expected and min(abs(ratio - expected), abs(1 / ratio - expected)) < 1e-4:
            return size
    return None


# A graph that is cut: outputs agree, but gradients are missing or zero before some place.


def _cut_graph(case: Case) -> Iterable[Finding]:
    step = case.data.first
    outputs = [key for key in case.rows if key.phase in ("forward", "loss") and key.step == step and not key.run]
    if not outputs or any(key in case.failed for key in outputs):
        # Only where outputs were compared, and match, can a cut explain gradients.
        return
    found = next(_lost_gradients(case, step), None) or _cleared_between(case, step)
    yield from [found] if found is not None else _partly_cut(case, step, tuple(outputs))


def _lost_gradients(case: Case, step: int) -> Iterator[Finding]:
    """Gradients that one side has and the other lacks: of parameters, of whole passes, of single calls of layers."""
    # A weight that the other side does not have as one of its own is no sign of a cut.
    shared = {one.separate for one in shared_weights(case)}
    wrong = {*case.failed, *(one.key for one in case.comparison.unmatched)}
    for name, here, there in (("candidate", *_recordings(case)), ("reference", *_recordings(case)[::-1])):
        lost = dict(_lost(case, name, step, here, there))
        paths = [key.path for key in lost if key.phase == "gradient" and key.path not in shared]
        calls = {key: other for key, other in lost.items() if key.phase == "backward"}
        if paths:
            keys = tuple(map(Key, paths))[:5]
            yield told("cause.cut_graph", keys, paths=Names(paths), side=side(name), count=len(paths))
        if name == "candidate":
            yield from _lost_passes(case, step, tuple(calls))
        for key, other in calls.items():
            if key in wrong or other in wrong:
                yield told("cause.cut_call", (key,), path=Name(key.path), call=key.call, side=side(name))


def _recordings(case: Case) -> tuple[Recording, Recording]:
    return case.data.reference, case.data.candidate


def _lost(case: Case, name: str, step: int, here: Recording, there: Recording) -> Iterator[tuple[Key, Key | None]]:
    """Gradients of parameters and of layers' outputs that are not zero here and that this side lacks, with its keys."""
    partner = dict(_partners(case, name))
    alone = {one.key for one in case.comparison.unmatched}
    for entry in here.of_run(""):
        key = entry.key
        other = None
        if key.step != step:
            continue
        if key.phase == "gradient" and key.role == "raw":
            other = partner.get(key)
            if other is None and key not in alone:
                # Compared as a part of another weight.
                continue
        elif _is_of_output(key) and (made := partner.get(replace(key, phase="forward"))) is not None:
            # Both sides have the call.
            other = replace(made, phase="backward")
        else:
            continue
        if not _has(there, other) and not entry.is_zero():
            yield key, other


def _is_of_output(key: Key) -> bool:
    return key.phase == "backward" and key.role.startswith("output")


def _lost_passes(case: Case, step: int, lost: Sequence[Key]) -> Iterator[Finding]:
    """Every layer has no gradient at one of the calls of the model: micro-batches that are lost."""
    layers = case.data.layers
    calls: dict[str, set[int | None]] = {}
    for entry in case.data.reference.of_run(""):
        if _is_of_output(entry.key) and entry.key.step == step and entry.key.path in layers:
            calls.setdefault(entry.key.path, set()).add(entry.key.call)
    passes = {call for path in case.data.roots for call in calls.get(path, ())}
    # What is called several times in one pass of the model says nothing about passes.
    once = [path for path, some in calls.items() if some == passes]
    missing = {frozenset(key.call for key in lost if key.path == path) for path in once}
    if len(passes) < 2 or len(missing) != 1 or not 0 < len(gone := missing.pop()) < len(passes):
        return
    some, listed = len(passes) - len(gone), ", ".join(sorted(map(str, gone)))
    keys = [key for key in lost if key.call in gone][:5]
    yield told("cause.lost_pass", keys, some=some, all=len(passes), path=Name(once[-1]), calls=listed)


def _cleared_between(case: Case, step: int) -> Finding | None:
    """Gradients that hold the last backward pass of a step alone: they were cleared between the micro-batches.

    What is added to every row of a layer's output has the sum of that output's gradients as its own, pass by pass.
    """
    wrong = []
    for key, both in case.data.each("gradient", step, "raw"):
        found = (by_channel(one, both[0].size) for one in _by_pass(case.data, key.path, step))
        parts = [one.sum(1) for one in found if one is not None]
        if both[0].ndim != 1 or len(parts) < 2 or key not in case.failed:
            continue
        near = case.near(key, both)
        if holds(np.sum(parts, 0), both[0], near):
            wrong.append((key, len(parts), holds(parts[-1], both[1], near)))
    if not wrong or not all(last for _, _, last in wrong):
        return None
    return told("cause.cleared_between", [key for key, _, _ in wrong][:5], count=wrong[0][1], step=step)


def _by_pass(data: CaseData, path: str, step: int) -> Iterator[Array]:
    """The gradients of a layer's output at each of its calls, in the reference."""
    for key, (ours, _) in data.each("backward", step, "output"):
        if key.path == path.rpartition(".")[0]:
            yield ours


def _partly_cut(case: Case, step: int, outputs: tuple[Key, ...]) -> Iterable[Finding]:
    """Outputs agree, the loss agrees, and from some layer on (backwards) gradients do not: a branch is cut."""
    keys = case.data.keys("backward", step)
    wrong = [key for key in keys if key in case.failed]
    right = [key for key in keys if key not in case.failed]
    if not wrong or not right or "own" in case.states.values():
        return
    path = Name(wrong[0].path) if wrong[0].path else message(f"word.the_{wrong[0].role.partition('.')[0]}")
    has_loss = any(key.phase == "loss" and key.step == step and not key.run for key in case.rows)
    yield told(
        "cause.cut_graph.partly",
        tuple(wrong)[:5],
        evidence=(
            message("evidence.outputs_and_loss_agree" if has_loss else "evidence.outputs_agree"),
            message("evidence.gradient_still_agrees", last=Name(right[-1].path), path=path),
        ),
        agreeing=outputs,
        path=path,
    )


def _partners(case: Case, name: str) -> Iterable[tuple[Key, Key]]:
    for pair in case.data.pairing.pairs:
        both = pair.reference.key, pair.candidate.key
        yield both if name == "candidate" else (both[1], both[0])


def _has(recording: Recording, key: Key | None) -> bool:
    return key is not None and key in recording and not recording[key].is_zero()


# Data that differ: another order of samples, another step's batch, channels the other way round, normalised twice.


def _data(case: Case) -> Iterable[Finding]:
    first = case.verdict.first_divergence
    if first is None or first.key.phase != "data":
        return
    key = first.key
    both = case.data.values(key)
    if both is None or np.array_equal(*both, equal_nan=True):
        # NaN in both alike is no difference; where it comes from is what not_finite is about.
        return
    found = _other_data(case, key, both)
    yield told("cause.data", (key,), key=Name(key), name=Name(key.role or key.path), step=key.step, what=found)


def _other_data(case: Case, key: Key, both: Both) -> What:
    """How the candidate's input differs."""
    ours, theirs = both
    for step in case.data.steps:
        other = case.data.values(Key(key.path, key.phase, step, key.call, key.role))
        if other is not None and step != key.step and np.array_equal(other[0], theirs):
            return what("word.batch_of_step", step=step)
    if ours.ndim and ours.shape[0] > 1 and _same_rows(ours, theirs):
        return what("word.samples_in_other_order")
    for axis in range(1, ours.ndim):
        if 2 <= ours.shape[axis] <= MOST_CHANNELS:
            for order in permutations(range(ours.shape[axis])):
                if np.array_equal(np.take(ours, order, axis), theirs):
                    return what("word.channel_order", order=str(order))
    if _padded_elsewhere(ours, theirs):
        return what("word.padding_on_other_side")
    pair = case.data.pairs[key]
    dtype = max(pair.reference.dtype, pair.candidate.dtype, key=epsilon)
    found = relation(ours, theirs, near=nearness(ours, theirs, dtype))
    return found or what("word.share_of_values_differs", share=Number(float(np.mean(ours != theirs)), ".0%"))


def _padded_elsewhere(ours: Array, theirs: Array) -> bool:
    """Whether every row has the same values in the same order once one value is left out at its ends."""
    if ours.ndim != 2:
        return False
    changed = [(one, other) for one, other in zip(ours, theirs, strict=True) if not np.array_equal(one, other)]
    fills = {float(row[place]) for pair in changed for row in pair for place in (0, -1)}
    return any(
        all(np.array_equal(_without_ends(one, fill), _without_ends(other, fill)) for one, other in changed)
        for fill in fills
    )


def _without_ends(row: Array, fill: float) -> Array:
    kept = np.flatnonzero(row != fill)
    return row[kept[0] : kept[-1] + 1] if kept.size else row[:0]


def _same_rows(ours: Array, theirs: Array) -> bool:
    left, right = ours.reshape(ours.shape[0], -1), theirs.reshape(theirs.shape[0], -1)
    return np.array_equal(left[np.lexsort(left.T[::-1])], right[np.lexsort(right.T[::-1])])


# Where NaN or infinity comes from: the first entry that has one although what went in was finite.


def _not_finite(case: Case) -> Iterable[Finding]:
    before: Key | None = None
    for row in case.comparison.rows:
        key, measured = row.key, row.measurement
        if key.run or measured is None:
            continue
        sides = {
            name: (one.nan, one.inf)
            for name, one in (("reference", measured.reference), ("candidate", measured.candidate))
            if one.nan or one.inf
        }
        if not sides:
            before = key
            continue
        if len(sides) == 2 and not measured.nonfinite_mismatched and key not in case.failed:
            # Infinite masks are meant so, on both sides alike.
            continue
        shown = tuple(
            message("word.nan_and_inf", side=side(name), nan=nan, inf=inf) for name, (nan, inf) in sides.items()
        )
        where = side(next(iter(sides))) if len(sides) == 1 else message("word.both_sides")
        yield told(
            "cause.not_finite",
            (key,),
            advice=message("advice.look_at_inputs" if key.phase == "data" else "advice.look_for_not_finite"),
            key=Name(key),
            sides=where,
            shown=shown,
            count=measured.count,
            before=message("word.the_start") if before is None else Name(before),
        )
        return


# Less precision in one layer: float64 agrees, float32 does not, by about what bfloat16, TF32 or float16 round.

_FORMATS = (
    ("word.half_precision", 2.0**-14, 2.0**-10.3),
    ("word.bfloat16", 2.0**-10.3, 2.0**-7),
    ("word.float8", 2.0**-7, 2.0**-2),
)
"""Relative error of a tensor (rms) that was rounded once or a few times to the format."""


def _precision_cut(case: Case) -> Iterable[Finding]:
    assert case.floor is not None
    evidence = {one.key: one for one in case.floor.evidence}
    for judgement in case.verdict.judgements:
        if judgement.status is not Status.PRECISION:
            continue
        found = evidence.get(judgement.key)
        if found is None or found.float32 is None or not found.float32.reference.rms or case.is_rounding(found):
            continue
        if all(check.passed for check in judgement.checks if check.metric == "rms"):
            largest = Number(found.float32.max_abs, ".1e")
            yield told("cause.single_elements", (judgement.key,), path=Name(judgement.key.path), largest=largest)
            return
        share = found.float32.rmse / found.float32.reference.rms
        if share >= _FORMATS[-1][2]:
            # No format rounds by as much.
            continue
        name = next((name for name, low, high in _FORMATS if low <= share < high), "word.less_than_float32")
        yield told(
            "cause.precision_cut",
            (judgement.key,),
            path=Name(judgement.key.path),
            format=message(name),
            share=Number(share, ".1e"),
        )
        return


# Softmax far out: some kernels of softmax and cross entropy cut differences of logits off at 64. A sample whose logit
# lies 100 below the largest then has a loss of 64 in place of 100. Both are nearly certain predictions; the gradients
# differ by exp(-64), the loss visibly.


def _saturation(case: Case) -> Iterable[Finding]:
    first = case.verdict.first_divergence
    frameworks = {source.provenance.framework for source in (case.reference, case.candidate)}
    if first is None or not first.key.phase or len(frameworks) == 1:
        return
    limits = {name: limit for name in frameworks if (limit := _limit("cross_entropy_loss", name)) is not None}
    if len(limits) != 1:
        return
    cutting, limit = next(iter(limits.items()))
    key = first.key
    found = case.data.layers.get(key.path)
    at_softmax = found is not None and any(_limit(found[0].kind, name) for name in frameworks)
    if key.phase != "loss" and not at_softmax:
        return
    role = "input.0" if at_softmax else "output"
    for one, (ours, _) in case.data.each("forward", key.step):
        if one.role != role or ours.ndim < 2 or (at_softmax and one.path != key.path):
            continue
        spread = float((ours.max(-1) - ours.min(-1)).max())
        if spread > limit and (at_softmax or one.path == ""):
            yield told(
                "cause.saturation",
                (key,),
                sure="explained" if _is_cut_off(case, key, one, ours, (cutting, limit)) else "hint",
                spread=Number(spread, ".3g"),
                framework=cutting,
                limit=Number(limit, "g"),
                key=Name(key),
            )
            return


def _is_cut_off(case: Case, key: Key, output: Key, logits: Array, cut: tuple[str, float]) -> bool:
    """Whether both losses are mean cross entropies of these logits, on the one side with each cut off."""
    losses, back = case.data.best(key), case.data.best(replace(output, phase="backward"))
    if key.phase != "loss" or losses is None or back is None:
        return False
    rows, gradients = (one.reshape(-1, logits.shape[-1]) for one in (logits, back[0]))
    counted = gradients.any(-1)
    labels = np.take_along_axis(rows, gradients.argmin(-1)[:, None], -1)[:, 0]
    each = (rows.max(-1) - labels + np.log(np.exp(rows - rows.max(-1, keepdims=True)).sum(-1)))[counted]
    near = case.near(key, losses)
    return bool(counted.any()) and all(
        holds(np.minimum(each, cut[1] if source.provenance.framework == cut[0] else np.inf).mean(), loss, near)
        for source, loss in zip((case.reference, case.candidate), losses, strict=True)
    )


def _limit(kind: str, framework: str) -> float | None:
    """Where the framework's kernel of this kind of layer cuts differences of logits off."""
    row = layer_kind(kind)
    column = None if row is None else row.columns.get(framework)
    return None if column is None else column.value_limit


# A layer whose output is right and whose gradient is wrong: a kernel's or a hand-written backward pass. With live
# models the re-run asks finite differences which of the two sides is right.


def _wrong_backward(case: Case) -> Iterable[Finding]:
    data = case.data
    for path in case.own:
        failed = [key for key in case.failed if key.run == "isolated" and key.layer_alone == path]
        wrong = sorted((key for key in failed if key.phase == "backward"), key=str)
        if not wrong or any(key.phase in ("forward", "buffer") for key in failed):
            continue
        if path not in data.layers or setting_differences(*data.layers[path]):
            continue
        both = data.best(wrong[0])
        ours, theirs = data.layers[path]
        yield told(
            "cause.wrong_backward",
            tuple(wrong[:3]),
            evidence=message("evidence.gradient_alone_incomparable")
            if both is None
            else message("evidence.gradient_alone_differs", share=Number(relative(*both), ".2g")),
            path=Name(path),
            ours=ours.type,
            theirs=theirs.type,
        )


HYPOTHESES = (
    Hypothesis("between_layers", _between_layers, Where(steps=1)),
    Hypothesis("constant_factor", _constant_factor),
    Hypothesis("cut_graph", _cut_graph, Where(steps=1)),
    Hypothesis("data", _data),
    Hypothesis("not_finite", _not_finite, Where(data=False)),
    Hypothesis("precision_cut", _precision_cut, Where(data=False, floor=True)),
    Hypothesis("saturation", _saturation),
    Hypothesis("wrong_backward", _wrong_backward),
)
