"""Doubts: passes that prove nothing, recordings that lack a part, limits that cannot tell rounding from a defect."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path

import numpy as np

from reprod_log.diagnose.case import Case, Point
from reprod_log.diagnose.engine import Hypothesis, Where
from reprod_log.diagnose.finding import Finding, Kind, as_message, side, told
from reprod_log.diagnose.schedules import is_rate
from reprod_log.frameworks.installed import FRAMEWORKS
from reprod_log.measure.comparison import Compared
from reprod_log.measure.measurement import Measurement
from reprod_log.messages import Code, Message, Name, Names, Number, message
from reprod_log.recording import Key, Provenance, Recording
from reprod_log.recording.program import differing_passes, unknown_passes
from reprod_log.verdict import (
    DEFAULT_LIMITS,
    CalibratedPolicy,
    Check,
    Limit,
    Policy,
    Status,
    judge_calibrated,
    odd_passes,
)

_MOST_KEYS = 20
_FLOATING = ("float", "bfloat", "complex")
_GIVEN = ("data", "lr")
"""Phases of what a program is given; all others are results."""


# A learning rate that never changes: a scheduler that was not stepped passes any comparison. Only where learning rates
# are all that was compared: a few training steps at a constant rate are nothing to speak of.

_STEPS_OF_A_SCHEDULE = 5
"""A warm-up or decay shows within this many entries, or the check is too short to show it."""


def _constant_sequence(case: Case) -> Iterable[Finding]:
    if not all(map(is_rate, case.series)):
        return
    for name, points in case.series.items():
        if len(points) >= _STEPS_OF_A_SCHEDULE and all(point.measurement.count == 1 for point in points):
            sides = [{getattr(p.measurement, side).mean for p in points} for side in ("reference", "candidate")]
            if all(len(values) == 1 for values in sides):
                yield _never_changes(name, message("word.entries", count=len(points)), points)
        elif len(points) == 1 and points[0].measurement.count >= _STEPS_OF_A_SCHEDULE:
            measured = points[0].measurement
            if measured.reference.min == measured.reference.max and measured.candidate.min == measured.candidate.max:
                yield _never_changes(name, message("word.values", count=measured.count), points)


def _never_changes(name: str, many: Message, points: tuple[Point, ...]) -> Finding:
    value = np.format_float_scientific(points[0].measurement.reference.mean, trim="-")
    return told(
        "cause.constant_sequence", tuple(point.row.key for point in points), name=Name(name), many=many, value=value
    )


# A recording that was cut short, or lost a part: entries without a partner are then no difference of the models.


def _kind(case: Case) -> Kind:
    """Where nothing was compared nothing differs, so there is no cause to name."""
    return "remark" if case.verdict.status is Status.NOTHING else "cause"


def _cut_short(case: Case) -> Iterable[Finding]:
    for name, source, other in (
        ("reference", case.reference, "candidate"),
        ("candidate", case.candidate, "reference"),
    ):
        missing = [one.key for one in case.comparison.unmatched if one.side == other]
        if source.complete or not missing:
            continue
        notes = tuple(map(as_message, source.notes[-2:])) or (message("word.no_end"),)
        yield told(
            "cause.cut_short",
            tuple(missing[:_MOST_KEYS]),
            kind=_kind(case),
            side=side(name),
            notes=notes,
            count=len(missing),
            keys=Names(map(str, missing)),
        )


# A loss that hardly moves while the model trains: it would look the same for a wrong update.

_STEPS_OF_A_LOSS = 3
"""Fewer equal losses than this happen by chance (1 ulp of a loss is a coarse step)."""
_MOVES = 1e-3
"""Relative movement over the run below which a loss shows nothing about the updates."""


def _flat_loss(case: Case) -> Iterable[Finding]:
    if any(key.phase in ("update", "gradient") for key in case.rows):
        # Updates were compared themselves, so nothing hangs on the loss.
        return
    for name, points in case.series.items():
        single = all(point.measurement.count == 1 for point in points)
        if "loss" not in name.lower() or len(points) < _STEPS_OF_A_LOSS or not single:
            continue
        values = [point.measurement.reference.mean for point in points]
        size = max(abs(value) for value in values)
        moved = (max(values) - min(values)) / size if size else 0.0
        if moved < _MOVES and all(point.judgement.status.passed for point in points):
            yield told(
                "cause.flat_loss",
                tuple(point.row.key for point in points),
                name=Name(name),
                moved=Number(moved, ".1e"),
                count=len(points),
            )


# Losses that are bit-identical over several training steps. Two frameworks almost never round a loss alike step after
# step; ten exact zeros in a row usually mean that one side was compared with itself. Exact zeros are normal for data,
# learning rates and metrics, so only losses are looked at.


def _identical_losses(case: Case) -> Iterable[Finding]:
    frameworks = {source.provenance.framework for source in (case.reference, case.candidate)}
    if "" not in frameworks:
        # Who computed them is known. The same framework twice is what same_program is about; small losses of two
        # frameworks may well round alike.
        return
    for name, points in case.series.items():
        floating = all(point.row.reference_dtype.startswith("float") for point in points)
        if "loss" not in name.lower() or len(points) < _STEPS_OF_A_LOSS or not floating:
            continue
        values = {point.measurement.reference.mean for point in points}
        if len(values) > 1 and all(point.measurement.identical for point in points):
            yield told(
                "cause.identical_losses", tuple(point.row.key for point in points), name=Name(name), count=len(points)
            )


# A limit that is large beside the values: it would let a wrong number through. Where it did let one through that is off
# by more than rounding, the pass proves nothing, unless someone chose that limit. Nor does it with limits that let
# anything through, whoever chose them.

_SHARE = 0.01
"""A limit of 1 % of the values or more: 1e-6 beside a learning rate of 3e-5 is 3 %."""
_OF_A_RATE = 1e-6
"""A learning rate is computed and not rounded through a model; a log may keep it in float32."""
_ZERO = 1e-5
"""Of the largest tensor of a phase: what float32 makes of a gradient that is zero in truth."""
_ABSOLUTE = ("mean_abs", "max_abs", "rmse")
_ABSURD = 100.0
"""A limit that is so many times the values was chosen by mistake, or to let anything through."""


def _limit_above_values(case: Case) -> Iterable[Finding]:
    wide: dict[Key, float] = {}
    idle, at_stake = False, False
    largest: dict[str, float] = {}
    for key, row in case.rows.items():
        size = 0.0 if row.measurement is None else row.measurement.reference.rms
        largest[key.phase] = max(largest.get(key.phase, 0.0), size)
    for key, row in case.rows.items():
        judgement = case.judgements[key]
        measured = row.measurement
        if measured is None or not judgement.status.passed or measured.identical or not measured.reference.rms > 0:
            continue
        if not judgement.checks:
            continue
        # The narrowest limit decides.
        check, share = min(((one, _share(one, measured)) for one in judgement.checks), key=lambda one: one[1])
        made_for = _made_for(case, row, check.metric)
        at_stake = at_stake or share < _ABSURD or made_for
        if share < _SHARE or made_for:
            continue
        wide[key] = share
        # What agrees by its own size has earned its pass, and what is zero but for rounding has no size.
        most = _OF_A_RATE if is_rate(str(key)) else _SHARE
        apart = not measured.rel_l2 <= most and measured.reference.rms >= _ZERO * largest[key.phase]
        idle = idle or (apart and _is_usual(case, row, check.metric))
    if wide:
        worst = max(wide, key=lambda key: wide[key])
        yield told(
            "cause.limit_above_values",
            tuple(wide),
            kind="doubt" if idle or not at_stake else "remark",
            keys=Names(map(str, wide)),
            key=Name(worst),
            share=Number(wide[worst], ".0%"),
        )


def _share(check: Check, measured: Measurement) -> float:
    """The limit of a check in units of the values: from 1 on even zeros would pass. 0 where it is narrow."""
    if check.floor is not None:
        return 0.0
    if check.metric == "min_abs":
        # One element that agrees is enough for it.
        return math.inf
    if check.metric in _ABSOLUTE:
        return check.limit / max(measured.reference.rms, measured.candidate.rms)
    if check.metric == "share_beyond":
        return math.inf if check.limit >= 1 else 0.0
    if check.metric == "cosine_distance":
        return math.inf if check.limit >= 2 else 0.0
    # Of the other metrics, which are relative, only this is known.
    return check.limit if check.limit >= _ABSURD else 0.0


def _made_for(case: Case, row: Compared, metric: str) -> bool:
    """Whether the limit was worked out for this entry, as the spread of a sample is for its statistics."""
    limit = _limit_of(case, row, metric)
    return limit is not None and limit.keys == escape(str(row.key))


def _is_usual(case: Case, row: Compared, metric: str) -> bool:
    """Whether nobody chose the limit: it is the one that holds when none is given."""
    limit = _limit_of(case, row, metric)
    return limit is not None and any((one, one.reason) == (limit, limit.reason) for one in DEFAULT_LIMITS)


def _limit_of(case: Case, row: Compared, metric: str) -> Limit | None:
    if not isinstance(case.policy, Policy):
        return None
    return case.policy.limits_for(str(row.key), row.reference_dtype).get(metric)


# A mean over many elements hides a few that are wrong: rounding does not single out an element.

_ROUNDED = 3e-4
"""Of a tensor's largest value: what float32 rounds through a whole model is 1e-4 of it."""
_KINKS = ("gradient", "backward", "update")
"""Phases in which one activation on the other side of zero moves single elements (see verdict/kinks.py)."""


def _hidden_by_the_mean(case: Case) -> Iterable[Finding]:
    hidden: dict[Key, Measurement] = {}
    for key, row in case.rows.items():
        measured = row.measurement
        checks = case.judgements[key].checks if case.judgements[key].status is Status.PASS else ()
        if measured is None or key.phase in _KINKS or [one.metric for one in checks] != ["mean_abs"]:
            continue
        limit = max(checks[0].limit, _ROUNDED * max(measured.reference.abs_max, measured.candidate.abs_max))
        if measured.max_abs > limit and _is_usual(case, row, "mean_abs"):
            hidden[key] = measured
    if hidden:
        worst = max(hidden, key=lambda key: hidden[key].max_abs)
        yield told(
            "cause.hidden_by_the_mean",
            tuple(hidden),
            keys=Names(map(str, hidden)),
            key=Name(worst),
            largest=Number(hidden[worst].max_abs, ".3g"),
            mean=Number(hidden[worst].mean_abs, ".1e"),
            count=hidden[worst].count,
        )


# Every result is accepted or allowed to be missing, whatever it is: only inputs and learning rates could have failed.
# Nor could results fail that have no number: empty tensors, or zeros, infinities and NaN as a dead model has them.


def _nothing_at_stake(case: Case) -> Iterable[Finding]:
    accept = case.policy.accept
    judged = {key: any(fnmatchcase(str(key), one) for one in accept) for key in case.judgements}
    judged |= dict.fromkeys(case.verdict.allowed, True)
    results = [let_through for key, let_through in judged.items() if key.phase not in _GIVEN]
    # Recordings of data alone, or of learning rates alone, have them at stake.
    if judged and all(results or judged.values()):
        yield told("cause.nothing_at_stake", patterns=Names((*accept, *case.policy.allow_unmatched)))
    # Of plain logs it is not known what they hold: a metric may well be zero.
    recorded = [row for row in case.rows.values() if row.key.phase and row.key.phase not in _GIVEN]
    if recorded and not any(map(_has_a_number, recorded)):
        keys = tuple(row.key for row in recorded)
        yield told("cause.nothing_at_stake.dead", keys[:_MOST_KEYS], count=len(keys), keys=Names(map(str, keys)))


def _has_a_number(row: Compared) -> bool:
    measured = row.measurement
    if measured is None or (measured.count and not row.reference_dtype.startswith(_FLOATING)):
        return True
    # NaN where no element is finite.
    return bool(measured.count) and (measured.reference.abs_max > 0 or measured.candidate.abs_max > 0)


# Recordings of other lengths, or of other passes: what one side never ran has no partner, whatever its name.


def _other_length(case: Case) -> Iterable[Finding]:
    if case.comparison.unmatched:
        yield from _other_steps(case)
        yield from _other_passes(case)


def _other_steps(case: Case) -> Iterable[Finding]:
    counts = len(_steps_of(case.data.reference)), len(_steps_of(case.data.candidate))
    complete = case.reference.complete and case.candidate.complete
    if counts[0] == counts[1] or not all(counts) or not complete:
        # What was cut short is reported as such (cut_short).
        return
    longer = "reference" if counts[0] > counts[1] else "candidate"
    there = _steps_of(case.data.candidate if longer == "reference" else case.data.reference)
    alone = [
        one.key
        for one in case.comparison.unmatched
        if one.side == longer and not one.key.run and one.key.phase and one.key.step not in there
    ]
    if not alone:
        return
    yield told(
        "cause.other_length",
        tuple(alone[:_MOST_KEYS]),
        kind=_kind(case),
        ours=counts[0],
        theirs=counts[1],
        count=len(alone),
        longer=max(counts),
        shorter=min(counts),
    )


def _other_passes(case: Case) -> Iterable[Finding]:
    for name, recording, other in (
        ("reference", case.data.reference, case.data.candidate),
        ("candidate", case.data.candidate, case.data.reference),
    ):
        runs = recording.runs
        if runs and "" not in runs and "" in other.runs:
            yield told(
                "cause.other_length.passes",
                tuple(one.key for one in case.comparison.unmatched[:_MOST_KEYS]),
                kind=_kind(case),
                side=side(name),
                run=runs[0],
            )


def _steps_of(recording: Recording) -> frozenset[int]:
    """The steps of the program as it runs, of entries that know their step."""
    return frozenset(
        entry.key.step
        for entry in recording.entries
        if not entry.key.run and entry.key.phase and entry.key.step is not None
    )


# A fixed limit that failed by little: is it rounding? Fixed limits cannot tell the two apart; projects raise them until
# a check passes. Where the recordings hold a float64 pass the calibrated rule answers, otherwise the reader learns how
# to record one.

_SMALL = 1e-3
"""Relative differences beyond this are hardly rounding, and nobody needs to be told."""


def _rounding_or_defect(case: Case) -> Iterable[Finding]:
    failed = [one.key for one in case.verdict.judgements if one.status is Status.FAIL]
    sizes = [
        row.measurement.rel_l2
        for key in failed
        # A NaN or infinity is no rounding: such a row gives no size, and nothing is reported.
        if (row := case.rows.get(key)) is not None
        and row.measurement is not None
        and row.measurement.comparable == row.measurement.count
    ]
    if not failed or len(sizes) < len(failed) or not all(size < _SMALL for size in sizes):
        return
    if case.floor is None:
        yield told("cause.rounding_or_defect", tuple(failed), share=Number(max(sizes), ".1e"))
        return
    calibrated = CalibratedPolicy(
        allow_unmatched=case.policy.allow_unmatched, accept=case.policy.accept, equal_nan=case.policy.equal_nan
    )
    verdict = judge_calibrated(case.comparison, case.floor, calibrated)
    first = verdict.first_divergence
    yield told(
        "cause.rounding_or_defect.rounding" if verdict.passed else "cause.rounding_or_defect.defect",
        failed,
        evidence=(
            case.floor.basis.message,
            message("evidence.every_entry_passes")
            if first is None
            else message("evidence.first_failing", key=Name(first.key), reason=as_message(first.reason or "")),
        ),
    )


# One recording given twice proves nothing about a port, and neither does a program that poses as one of another
# framework. The same framework twice, recorded as such (two versions, before and after a change), is a fair comparison.


def _same_program(case: Case) -> Iterable[Finding]:
    left, right = case.reference, case.candidate
    if case.data.reference is case.data.candidate or _is_one_place(left.source, right.source):
        place = Name(left.source) if left.source else message("side.unknown")
        yield _same_run(message("evidence.same_source", source=place))
        return
    ours, theirs = left.provenance, right.provenance
    framework = " ".join((ours.framework, ours.framework_version)).strip()
    made = [(one.command, one.git_commit, one.time, one.weights_hash) for one in (ours, theirs)]
    many = _identical(case)
    if many and ours.command and ours.time and made[0] == made[1] and not _is_live(case):
        yield _same_run(message("evidence.same_command", framework=framework, command=Name(ours.command)))
        return
    engines = {one.extra.get("engine") for one in (ours, theirs)}
    # An engine is compared with the model it was exported from, which is of the same framework by nature.
    if many and ours.framework and len(engines) == 1 and _versions(ours) == _versions(theirs):
        yield told("cause.same_program.framework", framework=framework, count=many)


def _versions(provenance: Provenance) -> tuple[str, str]:
    return provenance.framework, provenance.framework_version


def _is_one_place(ours: str, theirs: str) -> bool:
    """Whether two sources are one: the same path or URL, or two paths to the same file."""
    if not ours or not theirs:
        return False
    return ours == theirs or (os.path.exists(ours) and os.path.realpath(ours) == os.path.realpath(theirs))


def _is_live(case: Case) -> bool:
    """Whether both sides were run here, by us: what they are is then known, and when they ran tells nothing."""
    return any(key.run.startswith("isolated") for key in case.rows) or not (
        case.reference.source or case.candidate.source
    )


def _same_run(evidence: Message) -> Finding:
    return told("cause.same_program.run", evidence=(evidence,))


def _identical(case: Case) -> int:
    """How many floating results there are, if every one of them is bit-identical; inputs do not count."""
    found = _computed(case)
    same = all(row.measurement is not None and row.measurement.identical for row in found)
    return len(found) if same and not case.comparison.unmatched else 0


def _computed(case: Case) -> list[Compared]:
    """The floating results; inputs do not count."""
    return [
        row for row in case.rows.values() if row.reference_dtype.startswith(_FLOATING) and row.key.phase not in _GIVEN
    ]


# A recording whose name or layers are those of another framework than the one it claims.


def _posing(case: Case) -> Iterable[Finding]:
    known = {word: one.name for one in FRAMEWORKS for word in (one.name, *one.words)}
    sides = (("reference", case.reference), ("candidate", case.candidate))
    frameworks = [source.provenance.framework for _, source in sides]
    for (name, source), framework, other in zip(sides, frameworks, reversed(frameworks), strict=True):
        words = re.split(r"[^a-z0-9]+", Path(source.source).name.lower()) if source.source else []
        claimed = {known[word] for word in words if word in known}
        if framework and framework == other and claimed and framework not in claimed:
            evidence = message("evidence.posing.name", source=Name(source.source))
            yield _poses(name, framework, sorted(claimed)[0], evidence)
    for name, recording in case.data.sides:
        claimed_name = recording.provenance.framework
        packages = {module.origin.partition(".")[0] for module in recording.modules} & set(known.values())
        if claimed_name in known.values() and packages and claimed_name not in packages:
            layer = next(one for one in recording.modules if one.origin.partition(".")[0] in packages)
            evidence = message("evidence.posing.layer", layer=Name(layer.path), origin=Code(layer.origin))
            yield _poses(name, sorted(packages)[0], claimed_name, evidence)


def _poses(name: str, framework: str, claimed: str, evidence: Message) -> Finding:
    return told("cause.posing", evidence=(evidence,), side=side(name), framework=framework, claimed=claimed)


# Two frameworks that computed the very same bits over a whole training: kernels round differently, so one of them was
# compared with itself under another name. A few tensors agree by chance, or because nothing was rounded.

_STEPS_OF_A_TRAINING = 3
_ELEMENTS_OF_A_TRAINING = 2_000
"""Fewer results may be equal because the model is tiny and its numbers are round."""


def _identical_training(case: Case) -> Iterable[Finding]:
    frameworks = [source.provenance.framework for source in (case.reference, case.candidate)]
    if not all(frameworks) or frameworks[0] == frameworks[1] or _is_live(case) or not _identical(case):
        return
    rows = [row for row in _computed(case) if not row.key.run and row.key.phase in ("loss", "gradient", "update")]
    steps = {row.key.step for row in rows if row.key.phase != "loss"}
    elements = sum(row.measurement.count for row in rows if row.measurement is not None)
    if len(steps) >= _STEPS_OF_A_TRAINING and elements >= _ELEMENTS_OF_A_TRAINING:
        yield told("cause.identical_training", ours=frameworks[0], theirs=frameworks[1], count=len(steps))


# A side whose plain pass and float64 pass contradict each other: a float64 pass that was recorded with another script,
# other data or another environment makes the difference of two programs the tolerance.


def _odd_pass(case: Case) -> Iterable[Finding]:
    if case.floor is None or not isinstance(case.policy, CalibratedPolicy):
        return
    for odd in odd_passes(case.floor, case.policy):
        # A candidate that is far from the truth and does not pass has its reason already: less precision.
        # That float64 passes differ by more than they may is a failure elsewhere, unless the verdict passes.
        if case.verdict.passed or (odd.side == "reference" and odd.how != "truths"):
            yield told(
                f"cause.odd_pass.{odd.how}",
                (odd.key,),
                side=side(odd.side),
                key=Name(odd.key),
                share=Number(odd.share, ".1e"),
                times=Number(odd.times, ".2g"),
            )


def _other_programs(case: Case) -> Iterable[Finding]:
    for name, recording in case.data.sides:
        differing, unknown = differing_passes(recording), unknown_passes(recording)
        if differing:
            yield told("cause.odd_pass.programs", side=side(name), names=Names(differing))
        elif unknown:
            yield told("cause.odd_pass.unknown", side=side(name), runs=Names(run or "plain" for run in unknown))


# An output that is its own input: logging the fake data as `logits` on both sides passes whatever the model does.

_INPUT_WORDS = ("input", "data", "image", "img", "ids", "fake", "label", "mask")


def _value_equals_input(case: Case) -> Iterable[Finding]:
    inputs = [row for row in case.rows.values() if _is_input(row.key) and _identifies(row)]
    for row in case.rows.values():
        if row.key.phase or _is_input(row.key) or not _identifies(row):
            continue
        twin = next((one for one in inputs if _same_statistics(one, row)), None)
        if twin is not None:
            yield told("cause.value_equals_input", (row.key, twin.key), key=Name(row.key), twin=Name(twin.key))


def _is_input(key: Key) -> bool:
    if key.phase:
        return key.phase == "data"
    return any(word in key.path.lower() for word in _INPUT_WORDS)


def _identifies(row: Compared) -> bool:
    """Whether a few statistics identify the tensor: more than a handful of values that are not all alike."""
    return row.measurement is not None and row.measurement.count >= 8 and row.measurement.reference.std > 0


def _same_statistics(one: Compared, two: Compared) -> bool:
    if one.measurement is None or two.measurement is None or one.reference_shape != two.reference_shape:
        return False
    return (one.measurement.reference, one.measurement.candidate) == (
        two.measurement.reference,
        two.measurement.candidate,
    )


_NUMBERS = Where(data=False)
_EVEN_IF_NOTHING = replace(_NUMBERS, compared=False)
HYPOTHESES = (
    Hypothesis("constant_sequence", _constant_sequence, _NUMBERS),
    Hypothesis("cut_short", _cut_short, _EVEN_IF_NOTHING),
    Hypothesis("flat_loss", _flat_loss, _NUMBERS),
    Hypothesis("hidden_by_the_mean", _hidden_by_the_mean, _NUMBERS),
    Hypothesis("identical_losses", _identical_losses, _NUMBERS),
    Hypothesis("identical_training", _identical_training, _NUMBERS),
    Hypothesis("limit_above_values", _limit_above_values, _NUMBERS),
    Hypothesis("nothing_at_stake", _nothing_at_stake, _NUMBERS),
    Hypothesis("odd_pass", _odd_pass, Where(data=False, floor=True, calibrated=True)),
    Hypothesis("other_length", _other_length, Where(compared=False)),
    Hypothesis("other_programs", _other_programs, Where(calibrated=True)),
    Hypothesis("posing", _posing),
    Hypothesis("rounding_or_defect", _rounding_or_defect, Where(data=False, calibrated=False)),
    Hypothesis("same_program", _same_program),
    Hypothesis("value_equals_input", _value_equals_input, _NUMBERS),
)
