"""Weights: what was loaded wrongly, what the script itself writes, averages, running statistics and shared weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from reprod_log.diagnose.case import Both, Case, CaseData, shared_weights
from reprod_log.diagnose.engine import Hypothesis, Where
from reprod_log.diagnose.finding import Finding, Fix, What, side, told, what
from reprod_log.diagnose.fits import by_channel, holds, relation, share_of
from reprod_log.layers.lookup import running_statistics
from reprod_log.layers.settings import shared_setting
from reprod_log.messages import Code, Message, Name, Number, message
from reprod_log.pairing.distance import relative
from reprod_log.recording import Array, Key, ModuleInfo

# Weights that are not the reference's: transposed, swapped, rounded, scaled, negated, missing, never loaded. The
# parameters before the first update are compared in the layout of their layer, so what differs was loaded wrongly.

_SAME = 1e-6
"""Loaded weights are copies; the arithmetic of `after - update` leaves less than this."""
_NOT_LOADED = "cause.weights.not_loaded"


def _weights(case: Case) -> Iterable[Finding]:
    data = case.data
    values = {
        path: both
        for path in data.parameters
        if not _was_right(case, path) and (both := data.initial(path)) is not None
    }
    wrong = {path: both for path, both in values.items() if relative(*both) > _SAME}
    every = len(wrong) > 3 and len(wrong) == sum(bool(both[0].any()) for both in values.values())
    # Where the largest was loaded in some way (rounded, say), so were the others.
    if every and _transformation(*max(wrong.values(), key=lambda both: both[0].size)).id == _NOT_LOADED:
        yield told("cause.weights.nothing_loaded", tuple(map(Key, wrong))[:5], count=len(wrong))
        return
    known: set[str] = set()
    for whole in _whole_parts(wrong, values):
        known.update(key.path for key in whole.keys)
        yield whole
    for path, both in wrong.items():
        if path not in known:
            yield _one_weight(data, path, both, values, known)


def _was_right(case: Case, path: str) -> bool:
    """Whether a parameter that no optimizer moves did what the reference's does in the first step.

    What stands at the end of a single step may have been written in it, after the layer was run.
    """
    data = case.data
    step = data.first
    if not data.stepped or Key(path, "update", step) in data.pairs:
        return False
    owner = path.rpartition(".")[0]
    if owner in case.states:
        return case.states[owner] in ("sound", "inherited")
    outputs = [key for key in case.judgements if _is_output(key, owner, step)]
    return bool(outputs) and not any(key in case.failed for key in outputs)


def _is_output(key: Key, owner: str, step: int) -> bool:
    in_step = key.path == owner and key.phase == "forward" and key.step == step
    return in_step and not key.run and not key.role.startswith("input")


def _whole_parts(wrong: Mapping[str, Both], values: Mapping[str, Both]) -> Iterable[Finding]:
    """Parts of the model that hold the values of another part, weight by weight: one mistake, reported once."""
    found: dict[tuple[str, str], list[str]] = {}
    for path, (_, theirs) in wrong.items():
        for other, (source, _) in values.items():
            parts = _counterparts(path, other)
            if parts is not None and source.shape == theirs.shape and relative(source, theirs) <= _SAME:
                found.setdefault(parts, []).append(path)
    whole = {
        parts: paths
        for parts, paths in found.items()
        if len(paths) > 1 and len(paths) == sum(path.startswith(f"{parts[0]}.") for path in wrong)
    }
    for (part, there), paths in whole.items():
        back = whole.get((there, part), [])
        if back and part > there:
            continue
        yield told(
            "cause.weights.parts_swapped" if back else "cause.weights.part_of_another",
            tuple(map(Key, (*paths, *back))),
            path=Name(part),
            other=Name(there),
            count=len(paths),
        )


def _counterparts(path: str, other: str) -> tuple[str, str] | None:
    """The two parts of the model in which the names stand, when one word in them is all that differs."""
    ours, theirs = path.split("."), other.split(".")
    differing = [place for place, words in enumerate(zip(ours, theirs, strict=False)) if words[0] != words[1]]
    if len(ours) != len(theirs) or len(differing) != 1 or differing[0] == len(ours) - 1:
        return None
    end = differing[0] + 1
    return ".".join(ours[:end]), ".".join(theirs[:end])


def _one_weight(data: CaseData, path: str, both: Both, values: Mapping[str, Both], known: set[str]) -> Finding:
    ours, theirs = both
    found = _transformation(ours, theirs)
    paths = [path]
    if found.id == _NOT_LOADED:
        for other, (their_source, _) in values.items():
            if other != path and their_source.shape == theirs.shape and relative(their_source, theirs) <= _SAME:
                back = relative(ours, values[other][1]) <= _SAME
                known.add(other if back else path)
                paths += [other] if back else []
                found = what("cause.weights.swapped" if back else "cause.weights.of_another", other=Name(other))
                break
    return told(
        found,
        map(Key, paths),
        path=Name(path),
        there=Name(data.partner(path)),
        fixes=tuple(Fix(one.rpartition(".")[0], weights=True) for one in paths),
    )


def _transformation(ours: Array, theirs: Array) -> What:
    """What was done to the weight."""
    if not theirs.any():
        return what("cause.weights.zero", value=Number(float(np.abs(ours).max()), ".3g"))
    if ours.ndim > 2 and relative(np.flip(ours, axis=tuple(range(2, ours.ndim))), theirs) <= _SAME:
        return what("cause.weights.flipped")
    found = relation(ours, theirs, near=_SAME * float(np.abs(theirs).max()), functions=False)
    if found is not None:
        return what("cause.weights.related", what=found)
    return what(_NOT_LOADED, share=Number(relative(ours, theirs), ".2g"))


# Parameters that the script itself writes, for example a teacher that follows a student as a moving average. On each
# side q' = q + s (p - q) is fitted, with q a parameter that no optimizer moves and p one of the same side at the same
# step, or at the one before when the average is taken before the update. Each side's own numbers give its share away,
# so an error elsewhere does not matter.


@dataclass(frozen=True)
class _AverageLaw:
    """How one side makes the next value of a parameter: by a share of another's; 0 when it stays as it is."""

    share: float
    source: str = ""
    before_update: bool = False
    made: Array | None = field(default=None, compare=False)
    """The parameter that it takes a share of."""


def _average_of_weights(case: Case) -> Iterable[Finding]:
    data = case.data
    first = case.verdict.first_divergence
    found = first.key if first is not None else None
    begins_here = found is not None and found.phase == "parameter" and not found.run
    for path in [path for path in data.parameters if _by_script_alone(data, path)]:
        keys = [Key(path, "parameter", step) for step in data.steps]
        wrong = next((key for key in keys if key in case.failed), None)
        if wrong is None:
            continue
        ours, theirs = (_law(case, path, place) for place in (0, 1))
        # One that is written before the first call only shows at the end of a step what it was at the start of it.
        telling = begins_here or (ours is not None and theirs is not None and ours.share and theirs.share)
        if telling and ours is not None and theirs is not None and _laws_differ(case, path, ours, theirs):
            yield _other_law(path, ours, theirs, wrong)
        elif begins_here and found is not None and wrong.step == found.step:
            yield told("cause.average_of_weights.unknown", (wrong,), path=Name(path), step=wrong.step)


def _by_script_alone(data: CaseData, path: str) -> bool:
    """Whether no optimizer moves a parameter that changes; of a single step it is enough that others are moved."""
    moved = any(Key(path, "update", step) in data.pairs for step in data.steps)
    return not moved and (path in data.written_by_hand or (len(data.steps) == 1 and data.stepped))


def _law(case: Case, path: str, place: int) -> _AverageLaw | None:
    """The law that a parameter follows on one side between the first two steps; None when it is none that we know."""
    data = case.data
    if len(data.steps) < 2:
        return None
    before, after = ({p: _parameter(data, p, step, place) for p in data.parameters} for step in data.steps[:2])
    old, new = before[path], after[path]
    if old is None or new is None:
        return None
    if np.array_equal(old, new):
        return _AverageLaw(0.0)
    near = _room_of_average(case, path, old, new)
    for values in (after, before):
        for source, value in values.items():
            if source != path and value is not None and value.shape == old.shape:
                share = share_of(old, new, value, near)
                if share is not None:
                    return _AverageLaw(share, source, values is before, value)
    return None


def _room_of_average(case: Case, path: str, old: Array, new: Array) -> float:
    return case.near(Key(path, "parameter", case.data.steps[1]), (old, new))


def _parameter(data: CaseData, path: str, step: int, place: int) -> Array | None:
    both = data.best(Key(path, "parameter", step))
    return None if both is None else both[place]


def _laws_differ(case: Case, path: str, ours: _AverageLaw, theirs: _AverageLaw) -> bool:
    """Whether the reference's law does not give what the candidate's does."""
    old, new = (_parameter(case.data, path, step, 1) for step in case.data.steps[:2])
    if not ours.share or theirs.made is None or old is None or new is None:
        return ours.share != theirs.share
    alike = (ours.source, ours.before_update) == (theirs.source, theirs.before_update)
    made = old + ours.share * (theirs.made - old)
    return not alike or not holds(made, new, _room_of_average(case, path, old, new))


def _other_law(path: str, ours: _AverageLaw, theirs: _AverageLaw, key: Key) -> Finding:
    sources = [one.source for one in (ours, theirs) if one.source]
    return told(
        "cause.average_of_weights",
        (key, *dict.fromkeys(Key(source, "parameter", key.step) for source in sources)),
        path=Name(path),
        ours=_described(ours),
        theirs=_described(theirs),
    )


def _described(law: _AverageLaw) -> Message:
    if not law.share:
        return message("word.stays_as_it_is")
    id = "word.takes_a_share_before" if law.before_update else "word.takes_a_share"
    return message(id, share=Number(law.share, ".4g"), source=Name(law.source))


# Weights that the script writes before the layer's first call: an average that is taken too early in the step. The
# layer alone, as it was given, agrees; in the program it gives other values for the same input.


def _changed_before_call(case: Case) -> Iterable[Finding]:
    first = case.verdict.first_divergence
    if first is None:
        return
    key = first.key
    written = [path for path in case.data.written_by_hand if path.rpartition(".")[0] == key.path]
    in_first_call = key.phase == "forward" and key.step in case.data.steps[:1] and not key.call and not key.run
    if not in_first_call or not written or case.states.get(key.path) != "inherited" or key.role.startswith("input"):
        return
    yield told("cause.changed_before_call", (key,), path=Name(key.path))


# A buffer that is a moving average with another share: teachers, centres and running values outside of batch norms.
# b' = (1 - s) b + s v with the same v on both sides makes the candidate's next value a sum of three known tensors,
# whose factors give the shares of both sides away.

_UNKNOWN = 3


def _moving_average(case: Case) -> Iterable[Finding]:
    data = case.data
    paths = dict.fromkeys(key.path for key in sorted(case.failed, key=str) if key.phase == "buffer" and not key.run)
    for path in paths:
        owner = data.layers.get(path.rpartition(".")[0])
        if owner is not None and running_statistics(owner[0]):
            # `statistics` knows more about those.
            continue
        shares = _shares(case, path)
        if shares is not None:
            ours, theirs, kept = (Number(one, ".4g") for one in (*shares, 1 - shares[0]))
            yield told(
                "cause.moving_average",
                (Key(path, "buffer", data.steps[0]),),
                path=Name(path),
                ours=ours,
                theirs=theirs,
                old=kept,
                new=ours,
            )


def _shares(case: Case, path: str) -> tuple[float, float] | None:
    """The share of the new value on both sides; None when the buffer is no such average."""
    data = case.data
    keys = [Key(path, "buffer", step) for step in data.steps]
    both = [found for key in keys if (found := data.best(key)) is not None]
    # More equations than unknown numbers, so that a fit means something.
    if len(both) != len(keys) or both[0][0].size * (len(both) - 1) < 2 * _UNKNOWN:
        return None
    left = np.concatenate(
        [np.stack([now[1].ravel(), after[0].ravel(), now[0].ravel()], -1) for now, after in pairwise(both)]
    )
    right = np.concatenate([pair[1].ravel() for pair in both[1:]])
    factors, _, rank, _ = np.linalg.lstsq(left, right, rcond=None)
    kept, taken, back = map(float, factors)
    theirs, ours = 1 - kept, 1 + back / taken if taken else 0.0
    if rank < _UNKNOWN or not (0 < ours < 1 and 0 < theirs < 1):
        return None
    # The shares alone, two numbers, must give every value that the candidate has, and the reference's must not.
    near = min(case.near(key, one) for key, one in zip(keys, both, strict=True) if key in case.failed)
    made = [left @ np.array([1 - share, share / ours, share * (ours - 1) / ours]) for share in (theirs, ours)]
    return (ours, theirs) if holds(made[0], right, near) and not holds(made[1], right, near) else None


# Running statistics of batch norm: another share of the old, the biased variance, or no update at all. What the layer
# was given and the reference's momentum say what its statistics were before the first step; what the candidate made of
# the same batch then shows which convention it has.


def _statistics(case: Case) -> Iterable[Finding]:
    data, step = case.data, case.data.steps[0]
    for path, (ours, theirs) in data.layers.items():
        statistics = running_statistics(ours)
        if not {"running_mean", "running_var"} <= statistics.keys():
            continue
        names = statistics["running_mean"], statistics["running_var"]
        keys = [Key(f"{path}.{name}", "buffer", step) for name in names]
        given = Key(path, "forward", step, 0, "input.0")
        # Another convention shows at once; what shows later comes from weights that have parted since. And what was
        # given other values must have other statistics.
        if given not in case.failed and any(key in case.failed for key in keys):
            found = [data.best(key) for key in (given, *keys)]
            both = [one for one in found if one is not None]
            if len(both) == 3:
                yield from _other_statistics(case, path, (ours, theirs), keys, *both)


def _other_statistics(
    case: Case,
    path: str,
    layers: tuple[ModuleInfo, ModuleInfo],
    keys: Sequence[Key],
    given: Both,
    means: Both,
    variances: Both,
) -> Iterable[Finding]:
    """From a batch, and mean and variance after it: what the candidate does differently."""
    ours, theirs = layers
    momentum = shared_setting(ours, "momentum")
    share = 0.1 if momentum is None else float(momentum)
    values = by_channel(given[0], means[0].size)
    if not 0 < share < 1 or values is None or values.shape[1] < 2:
        return
    count = values.shape[1]
    before = (means[0] - share * values.mean(1)) / (1 - share)
    near = [case.near(key, both) for key, both in zip(keys, (means, variances), strict=True)]
    if holds(before, means[1], near[0]) and not holds(before, means[0], near[0]):
        call = Code(f"{theirs.type}(use_global_stats=None)")
        advice = message("advice.train_mode", call=call, path=Name(theirs.path))
        yield told("cause.statistics.frozen", (Key(path),), advice=advice, path=Name(path))
        return
    if keys[0] in case.failed and (kept := _debiased(case, keys[0], share, values.mean(1))):
        yield told("cause.statistics.debiased", (Key(path),), path=Name(path), side=side(kept))
        return
    if keys[0] in case.failed:
        their_share = share_of(before, means[1], values.mean(1), near[0])
        if their_share is not None:
            found, wanted = Number(their_share, ".4g"), Number(share, ".4g")
            yield told("cause.statistics.share", (Key(path),), path=Name(path), theirs=found, ours=wanted)
        return
    # N or N - 1 below the sum of squares: the difference is known, but for which side has which.
    apart = share * values.var(1) / (count - 1)
    for sign, ratio in ((1, count / (count - 1)), (-1, (count - 1) / count)):
        if holds(variances[0] + sign * apart, variances[1], near[1]):
            times = Number(ratio, ".6g")
            yield told("cause.statistics.divisor", (Key(path),), path=Name(path), ratio=times, count=count)


def _debiased(case: Case, first: Key, share: float, mean: Array) -> str | None:
    """The side that divides its running mean by the share of the batches in it; None without a second step."""
    steps = [(step, data) for step in case.data.steps if (data := case.data.best(replace(first, step=step)))]
    for plain, kept, name in ((0, 1, "candidate"), (1, 0, "reference")):
        before = (steps[0][1][plain] - share * mean) / (1 - share) if steps else mean
        made = [
            holds((both[plain] - left * before) / (1 - left), both[kept], case.near(replace(first, step=step), both))
            for step, both in steps
            if (left := (1 - share) ** (step - steps[0][0] + 1)) < 1
        ]
        if len(made) > 1 and all(made):
            return name
    return None


# Weights that one side shares (an embedding and the head of a language model) and the other has twice. Outputs agree as
# long as both copies do; the gradient of a shared weight is the sum of those of its uses.


def _tied_weights(case: Case) -> Iterable[Finding]:
    for one in shared_weights(case):
        yield told(
            "cause.tied_weights",
            (Key(one.shared, "gradient", case.data.steps[0], role="raw"),),
            shared=Name(one.shared),
            separate=Name(one.separate),
            side=side(one.side),
            other=side("candidate" if one.side == "reference" else "reference"),
        )


HYPOTHESES = (
    Hypothesis("weights", _weights, Where(failures=True)),
    Hypothesis("average_of_weights", _average_of_weights, Where(failures=True)),
    Hypothesis("changed_before_call", _changed_before_call),
    Hypothesis("moving_average", _moving_average, Where(steps=2)),
    Hypothesis("statistics", _statistics, Where(steps=1)),
    Hypothesis("tied_weights", _tied_weights, Where(steps=1)),
)
