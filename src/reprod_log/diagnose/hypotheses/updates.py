"""Updates: what optimizers do with the same gradients, and gradients that are not what they look like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from reprod_log.diagnose.case import Both, Case, CaseData
from reprod_log.diagnose.engine import Hypothesis, Where
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.fits import BadUpdates, first_bad_update
from reprod_log.layers.optimizers import group_settings, optimizer_kind
from reprod_log.messages import Name, Names, Number, message
from reprod_log.pairing.values import factor, relative
from reprod_log.recording import Array, Key
from reprod_log.verdict import CalibratedPolicy

# What the numbers of the updates show: decay on more or fewer parameters, another rate for some, none for others. The
# difference of the updates is held against the parameter itself (decay), the update (rate) and zero (not trained).

_SETTING = 0.05
"""How far a fitted decay may be from the one that was set."""
_SHOWN = 4


def _update_fit(case: Case) -> Iterable[Finding]:
    data = case.data
    bad = first_bad_update(case)
    if bad is None:
        return
    rate = _rate(data, bad.step)
    updates = {key.path: both for key, both in data.each("update", bad.step)}
    untrained = [path for path in bad.paths if _untrained(data, path, bad.step, updates)]
    if untrained:
        yield _not_given(untrained, bad)
    if any(key.phase == "clip" and key.step == bad.step for key in case.failed):
        # What the optimizers were given differs, which is what clipping is about.
        return
    left = [path for path in bad.paths if path in updates and path not in untrained]
    telling = [path for path in left if _tells(data, path, bad.step)]
    decays = _decays_of_updates(data, telling, updates, bad.step, rate)
    # A vector of equal numbers may fit by chance; a decay explains most of what differs.
    if 2 * len(decays) >= len(telling) and decays:
        if not _as_set(data, decays):
            yield _other_decay(data, decays, telling, bad, rate)
        return
    # In a warm-up from zero nothing moves at first; what the optimizer keeps for later tells.
    kept = _decays_of_state(data, left, bad.step)
    if rate == 0 and kept and 2 * len(kept) >= len(left):
        yield _other_decay(data, kept, left, bad, rate)
        return
    ratios = {path: ratio for path in left if (ratio := _other_rate(*updates[path])) is not None}
    if left and len(ratios) == len(left) and bad.agreeing:
        shown = ", ".join(f"{path} {ratio:.4g}" for path, ratio in list(ratios.items())[:_SHOWN])
        yield Finding(
            rule="update_fit",
            cause=message(
                "cause.update_fit.rate" if len(ratios) == 1 else "cause.update_fit.rates", paths=Names(ratios)
            ),
            evidence=(
                message("evidence.ratio_of_updates", values=shown),
                message("evidence.other_parameters_agree", count=len(bad.agreeing)),
            ),
            confidence="explained",
            advice=(message("advice.look_for_parameter_groups"),),
            keys=bad.keys,
        )


def _other_rate(ours: Array, theirs: Array) -> float | None:
    ratio = factor(ours, theirs, within=1e-3)
    return ratio if ratio is not None and abs(ratio - 1) > 1e-4 else None


def _rate(data: CaseData, step: int) -> float | None:
    """The learning rate of a step; None when it was not recorded, which is not a rate of zero."""
    return max((float(abs(both[0]).max()) for _, both in data.each("lr", step)), default=None)


def _untrained(data: CaseData, path: str, step: int, updates: Mapping[str, Both]) -> bool:
    if path in updates:
        ours, theirs = updates[path]
        return bool(ours.any()) and not theirs.any() and not _only_decays(data, path, step, ours)
    key = Key(path, "update", step)
    if key in data.pairs:
        # Both have an update; its values were not kept (a sketch or summary).
        return False
    # The candidate's entry may have another name; without a pair there is none.
    return key in data.reference and not data.reference[key].is_zero()


def _only_decays(data: CaseData, path: str, step: int, update: Array) -> bool:
    """Whether an update is a decay alone: the gradient is zero, as before a batch norm, and nothing is trained."""
    before = data.before(path, step)
    return before is not None and update.size > 1 and factor(before[0], update, within=2e-2) is not None


def _tells(data: CaseData, path: str, step: int) -> bool:
    """Whether a decay of a parameter would show, and show as nothing else.

    One that began at zero is made of updates alone: after the first step another momentum is proportional to it.
    """
    before = data.before(path, step)
    if before is None or not before[0].any():
        return False
    initial = data.initial(path)
    return initial is None or bool(initial[0].any())


def _as_set(data: CaseData, decays: Mapping[str, float]) -> bool:
    """Whether the optimizers' settings explain it all: both decay everything, by other amounts, and these fit."""
    for _, ours, theirs in data.optimizers():
        here, there = (
            {float(group.get("weight_decay", 0.0)) for group in group_settings(side)} for side in (ours, theirs)
        )
        if len(here) == len(there) == 1:
            expected = there.pop() - here.pop()
            if expected and all(abs(found - expected) <= _SETTING * abs(expected) for found in decays.values()):
                return True
    return False


def _decays_of_updates(
    data: CaseData, paths: list[str], updates: Mapping[str, Both], step: int, rate: float | None
) -> dict[str, float]:
    """By parameter: the decay that the candidate has beyond the reference's, where that explains the difference."""
    found = {}
    for path in paths:
        before = data.before(path, step)
        if before is None or not rate:
            continue
        ours, theirs = updates[path]
        share = factor(before[0], theirs - ours, within=2e-2)
        if share is not None:
            found[path] = -share / rate
    return found


def _decays_of_state(data: CaseData, paths: list[str], step: int) -> dict[str, float]:
    """By parameter: the multiple of it by which a first moment of the candidate is larger than the reference's."""
    found: dict[str, float] = {}
    for key, (ours, theirs) in data.each("optimizer", step):
        before = data.before(key.path, step) if key.path in paths else None
        if before is None or before[0].shape != ours.shape:
            continue
        share = factor(before[0], theirs - ours, within=2e-2)
        if share is not None:
            found.setdefault(key.path, share)
    return found


def _other_decay(
    data: CaseData, decays: Mapping[str, float], left: list[str], bad: BadUpdates, rate: float | None
) -> Finding:
    values = sorted(decays.values())
    typical = values[len(values) // 2]
    some = any(_tells(data, path, bad.step) for path in bad.agreeing)
    vectors = all("bias" in path or "norm" in path or "bn" in path for path in decays)
    if not some:
        id = "cause.update_fit.decay_larger" if typical > 0 else "cause.update_fit.decay_smaller"
        cause = message(id, value=Number(abs(typical), ".4g"))
    elif typical <= 0:
        cause = message("cause.update_fit.decay_missing", paths=Names(decays))
    else:
        id = "cause.update_fit.decay_on_vectors" if vectors else "cause.update_fit.decay_added"
        cause = message(id, paths=Names(decays))
    counts = {"value": Number(typical, "+.4g"), "some": len(decays), "all": len(left)}
    return Finding(
        rule="update_fit",
        cause=cause,
        evidence=(
            message("evidence.decay_of_updates", rate=Number(rate, "g"), **counts)
            if rate
            else message("evidence.decay_of_state", **counts),
        ),
        confidence="explained",
        advice=(message("advice.same_weight_decay"),),
        keys=bad.keys,
    )


def _not_given(paths: list[str], bad: BadUpdates) -> Finding:
    return Finding(
        rule="update_fit",
        cause=message("cause.update_fit.untrained", paths=Names(paths)),
        evidence=(message("evidence.no_update", step=bad.step),),
        confidence="explained",
        advice=(message("advice.pass_all_parameters"),),
        keys=bad.keys,
    )


# Adam's epsilon added before the bias correction on one side and after it on the other. The first update of Adam is
# -lr · g / (|g| + e), where e is epsilon when it is added to the corrected root, and epsilon / sqrt(1 - beta2), 32
# times as much with the usual beta2, when it is added before. Both sides' e is read off their updates.

_ENOUGH = 8
"""Elements whose gradient is near epsilon, from which it can be read off."""
_SPREAD = 0.1
_NEAR = 0.05


def _epsilon_place(case: Case) -> Iterable[Finding]:
    data = case.data
    bad = first_bad_update(case)
    if bad is None or bad.step != data.steps[0]:
        return
    for name, ours, theirs in data.optimizers():
        groups = group_settings(ours), group_settings(theirs)
        if not all(group and {"beta2", "eps"} <= group[0].keys() for group in groups):
            continue
        both = [_read_off(data, bad.paths, bad.step, side, groups[side]) for side in (0, 1)]
        here, there = (_place_by_correction(read, group[0]) for read, group in zip(both, groups, strict=True))
        if both[0] is None or both[1] is None or here is None or there is None or here == there:
            continue
        yield Finding(
            rule="epsilon_place",
            cause=message("cause.epsilon_place", name=Name(name), ours=message(here), theirs=message(there)),
            evidence=(
                message(
                    "evidence.epsilon_read_off",
                    ours=Number(both[0], ".3g"),
                    theirs=Number(both[1], ".3g"),
                    eps=Number(groups[0][0]["eps"], "g"),
                ),
            ),
            confidence="explained",
            advice=(message("advice.same_adam"),),
            keys=bad.keys,
        )


def _place_by_correction(read: float | None, group: Mapping[str, Any]) -> str | None:
    if read is None or not group["eps"]:
        return None
    before = group["eps"] / np.sqrt(1 - group["beta2"])
    for place, expected in (("word.after", group["eps"]), ("word.before", before)):
        if abs(read / expected - 1) < _NEAR:
            return place
    return None


def _read_off(data: CaseData, paths: Iterable[str], step: int, side: int, groups: list[dict[str, Any]]) -> float | None:
    """The epsilon that the first updates of one side were made with; None when they do not tell."""
    decays = {float(group.get("weight_decay", 0.0)) for group in groups} | {0.0}
    rates = [float(np.abs(both[side]).max()) for _, both in data.each("lr", step)]
    for path in paths:
        parts = [data.best(key) for key in (Key(path, "update", step), Key(path, "gradient", step, role="raw"))]
        before = data.before(path, step)
        if before is None or None in parts or not rates:
            continue
        update, gradient = (part[side] for part in parts if part is not None)
        for rate in set(rates):
            for decay in decays:
                # Decay taken off the weights, or added to the gradient.
                apart = _epsilon(update + rate * decay * before[side], gradient, rate)
                found = apart if apart is not None else _epsilon(update, gradient + decay * before[side], rate)
                if found is not None:
                    return found
    return None


def _epsilon(update: Array, gradient: Array, rate: float) -> float | None:
    size, steep = np.abs(gradient), np.abs(update) / rate
    # Far above epsilon an update shows nothing of it, far below it is lost in rounding.
    telling = (steep > 0.02) & (steep < 0.9)
    if int(telling.sum()) < _ENOUGH:
        return None
    read = size[telling] / steep[telling] - size[telling]
    low, middle, high = np.percentile(read, (25, 50, 75))
    return float(middle) if middle > 0 and high - low < _SPREAD * middle else None


# RMSprop's epsilon added to the root on one side and under it on the other. The first update is
# -lr · g / (sqrt((1 - alpha) g²) + epsilon) or -lr · g / sqrt((1 - alpha) g² + epsilon); the same number then means
# another thing, which shows where gradients are small.

_UPDATE_FIT = 1e-3


def _rmsprop_epsilon(case: Case) -> Iterable[Finding]:
    data = case.data
    bad = first_bad_update(case)
    if bad is None or bad.step != data.steps[0]:
        return
    for name, ours, theirs in data.optimizers():
        groups = group_settings(ours), group_settings(theirs)
        if {optimizer_kind(ours), optimizer_kind(theirs)} != {"rmsprop"} or not groups[0] or not groups[1]:
            continue
        here, there = (_place_by_root(data, bad, side, groups[side][0]) for side in (0, 1))
        if here is None or there is None or here == there:
            continue
        yield Finding(
            rule="rmsprop_epsilon",
            cause=message("cause.rmsprop_epsilon", name=Name(name), ours=message(here), theirs=message(there)),
            evidence=(message("evidence.update_of_its_formula"),),
            confidence="explained",
            advice=(message("advice.rmsprop_epsilon"),),
            keys=bad.keys,
        )


def _place_by_root(data: CaseData, bad: BadUpdates, side: int, group: Mapping[str, Any]) -> str | None:
    """Where epsilon stands in the updates of one side; None when they are neither."""
    rates = [float(np.abs(both[side]).max()) for _, both in data.each("lr", bad.step)]
    share, epsilon = 1 - float(group.get("rho", 0.99)), float(group.get("eps", 0.0))
    for path in bad.paths:
        update = data.best(Key(path, "update", bad.step))
        gradient = data.best(Key(path, "gradient", bad.step, role="raw"))
        if update is None or gradient is None or not rates or not epsilon:
            continue
        g, u = gradient[side], update[side]
        fits = {
            "word.outside": relative(-rates[0] * g / (np.sqrt(share * g * g) + epsilon), u),
            "word.under": relative(-rates[0] * g / np.sqrt(share * g * g + epsilon), u),
        }
        best = min(fits, key=lambda place: fits[place])
        if fits[best] < _UPDATE_FIT < max(fits.values()):
            return best
    return None


# Gradients that were not cleared: a later step's gradient is the sum of its own and those before it.


def _gradients_kept(case: Case) -> Iterable[Finding]:
    data = case.data
    for earlier, step in zip(data.steps, data.steps[1:], strict=False):
        failed = case.failed
        if any(key.step is not None and key.step <= earlier and key.phase in ("gradient", "forward") for key in failed):
            return
        if any(key.step == step and key.phase in ("forward", "loss", "data") for key in failed):
            return
        wrong = [key for key in failed if key.step == step and key.phase == "gradient" and not key.run]
        summed = []
        for key in wrong:
            now, before = data.best(key), data.best(Key(key.path, "gradient", earlier, role=key.role))
            clipped = data.best(Key(key.path, "clip", earlier, role="clipped"))
            for kept in (before, clipped):
                if now is not None and kept is not None and relative(now[0] + kept[1], now[1]) < 1e-3:
                    summed.append(key.path)
                    break
        if summed and len(summed) >= len(wrong) / 2:
            yield Finding(
                rule="gradients_kept",
                cause=message("cause.gradients_kept", paths=Names(summed), step=step, earlier=earlier),
                evidence=(message("evidence.gradient_plus_the_one_before", some=len(summed), all=len(wrong)),),
                confidence="explained",
                advice=(message("advice.clear_gradients"),),
                keys=tuple(wrong)[:5],
            )
        if wrong:
            return


# Parameters whose true gradient is zero (a bias before batch norm, a key bias): harmless. Their gradient is rounding
# only, so both sides have different numbers there, and Adam turns these into steps of the learning rate. Reported only
# when such a parameter's entries differ visibly.


def _zero_gradient(case: Case) -> Iterable[Finding]:
    assert case.floor is not None
    assert isinstance(case.policy, CalibratedPolicy)
    found: dict[str, float] = {}
    for one in case.floor.evidence:
        key = one.key
        if one.mode or key.phase != "gradient" or one.noise is None or one.float32 is None:
            continue
        noise, size = one.noise.rmse, one.noise.reference.rms
        passed = key in case.judgements and case.judgements[key].status.passed
        if noise > case.policy.noise_only * size and one.float32.rmse > 0 and passed:
            found[key.path] = one.float32.candidate.abs_max
    if found:
        yield Finding(
            rule="zero_gradient",
            kind="remark",
            cause=message("cause.zero_gradient", paths=Names(found)),
            evidence=(message("evidence.vanishes_in_float64", value=Number(max(found.values()), ".1e")),),
            confidence="explained",
            advice=(message("advice.zero_gradient_is_harmless"),),
            keys=tuple(map(Key, found))[:5],
        )


HYPOTHESES = (
    Hypothesis("update_fit", _update_fit),
    Hypothesis("epsilon_place", _epsilon_place),
    Hypothesis("rmsprop_epsilon", _rmsprop_epsilon),
    Hypothesis("gradients_kept", _gradients_kept),
    Hypothesis("zero_gradient", _zero_gradient, Where(data=False, floor=True, calibrated=True)),
)
