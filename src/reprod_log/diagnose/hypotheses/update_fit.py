"""What the numbers of the updates say: decay on more or fewer parameters, another rate for some, none for others.

The difference of the updates is held against the parameter itself (decay), the update (rate) and zero (not trained).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.material import Both, Material
from reprod_log.diagnose.updates import BadUpdates, first_bad_update
from reprod_log.errors import counted, listed
from reprod_log.layers.optimizers import group_settings
from reprod_log.pairing.values import factor
from reprod_log.recording import Array, Key

_SETTING = 0.05
"""How far a fitted decay may be from the one that was set."""


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    bad = first_bad_update(case)
    if material is None or bad is None:
        return
    rate = _rate(material, bad.step)
    updates = {key.path: both for key, both in material.each("update", bad.step)}
    untrained = [path for path in bad.paths if _untrained(material, path, bad.step, updates)]
    if untrained:
        yield _not_given(untrained, bad)
    if any(key.phase == "clip" and key.step == bad.step for key in case.failed):
        # What the optimizers were given differs, which the rule `clipping` says.
        return
    left = [path for path in bad.paths if path in updates and path not in untrained]
    telling = [path for path in left if _tells(material, path, bad.step)]
    decays = _fits(material, telling, updates, bad.step, rate)
    # A vector of equal numbers may fit by chance; a decay explains most of what differs.
    if 2 * len(decays) >= len(telling) and decays:
        if not _as_set(material, decays):
            yield _decay(material, decays, telling, bad, rate)
        return
    # In a warm-up from zero nothing moves at first; what the optimizer keeps for later tells.
    kept = _fits_of_state(material, left, bad.step)
    if not rate and kept and 2 * len(kept) >= len(left):
        yield _decay(material, kept, left, bad, rate)
        return
    ratios = {path: ratio for path in left if (ratio := _other_rate(*updates[path])) is not None}
    if left and len(ratios) == len(left) and bad.agreeing:
        shown = ", ".join(f"{path} {ratio:.4g}" for path, ratio in list(ratios.items())[:4])
        yield Finding(
            rule="update_fit",
            cause=f"{listed(list(ratios), most=4)} {'has' if len(ratios) == 1 else 'have'} a learning rate of "
            f"{'its' if len(ratios) == 1 else 'their'} own on one side: the update is the reference's times a constant",
            evidence=(
                f"ratio of the updates: {shown}; the other "
                f"{counted(len(bad.agreeing), 'parameter agrees', 'parameters agree')}"
            ),
            confidence="consistent",
            advice="look for a parameter group or a ParamAttr(learning_rate=…), which get_lr() does not show",
            keys=bad.keys,
        )


def _other_rate(ours: Array, theirs: Array) -> float | None:
    ratio = factor(ours, theirs, within=1e-3)
    return ratio if ratio is not None and abs(ratio - 1) > 1e-4 else None


def _rate(material: Material, step: int) -> float:
    rates = [float(abs(both[0]).max()) for _, both in material.each("lr", step)]
    return max(rates, default=0.0)


def _untrained(material: Material, path: str, step: int, updates: Mapping[str, Both]) -> bool:
    if path in updates:
        ours, theirs = updates[path]
        return bool(ours.any()) and not theirs.any() and not _only_decays(material, path, step, ours)
    key = Key(path, "update", step)
    if key in material.pairs:
        # Both have an update; its values were not kept (a sketch or summary).
        return False
    # The candidate's entry may have another name; without a pair there is none.
    return key in material.reference and not material.reference[key].is_zero()


def _only_decays(material: Material, path: str, step: int, update: Array) -> bool:
    """Whether an update is a decay alone: the gradient is zero, as before a batch norm, and nothing is trained."""
    before = material.before(path, step)
    return before is not None and update.size > 1 and factor(before[0], update, within=2e-2) is not None


def _tells(material: Material, path: str, step: int) -> bool:
    """Whether a decay of a parameter would show, and show as nothing else.

    One that began at zero is made of updates alone: after the first step another momentum is proportional to it.
    """
    before = material.before(path, step)
    if before is None or not before[0].any():
        return False
    initial = material.initial(path)
    return initial is None or bool(initial[0].any())


def _as_set(material: Material, decays: Mapping[str, float]) -> bool:
    """Whether the optimizers' settings say it all: both decay everything, by other amounts, and these fit."""
    for _, ours, theirs in material.optimizers():
        here, there = (
            {float(group.get("weight_decay", 0.0)) for group in group_settings(side)} for side in (ours, theirs)
        )
        if len(here) == len(there) == 1:
            expected = there.pop() - here.pop()
            if expected and all(abs(found - expected) <= _SETTING * abs(expected) for found in decays.values()):
                return True
    return False


def _fits(
    material: Material, paths: list[str], updates: Mapping[str, Both], step: int, rate: float
) -> dict[str, float]:
    """By parameter: the decay that the candidate has beyond the reference's, where that explains the difference."""
    found = {}
    for path in paths:
        before = material.before(path, step)
        if before is None or not rate:
            continue
        ours, theirs = updates[path]
        share = factor(before[0], theirs - ours, within=2e-2)
        if share is not None:
            found[path] = -share / rate
    return found


def _fits_of_state(material: Material, paths: list[str], step: int) -> dict[str, float]:
    """By parameter: the multiple of it by which a first moment of the candidate is larger than the reference's."""
    found: dict[str, float] = {}
    for key, (ours, theirs) in material.each("optimizer", step):
        before = material.before(key.path, step) if key.path in paths else None
        if before is None or before[0].shape != ours.shape:
            continue
        share = factor(before[0], theirs - ours, within=2e-2)
        if share is not None:
            found.setdefault(key.path, share)
    return found


def _decay(material: Material, decays: Mapping[str, float], left: list[str], bad: BadUpdates, rate: float) -> Finding:
    values = sorted(decays.values())
    typical = values[len(values) // 2]
    some = any(_tells(material, path, bad.step) for path in bad.agreeing)
    vectors = all("bias" in path or "norm" in path or "bn" in path for path in decays)
    if typical > 0:
        what = "weight decay is applied to " + (listed(list(decays), most=4) if some else "all parameters")
        what += " in the candidate only" + (" (biases and norms)" if vectors else "") if some else ", more than"
        cause = what if some else f"weight decay is larger in the candidate, by {typical:.4g}"
    elif some:
        cause = f"weight decay is missing on {listed(list(decays), most=4)} in the candidate"
    else:
        cause = f"weight decay is missing or smaller in the candidate, by {-typical:.4g}"
    return Finding(
        rule="update_fit",
        cause=cause,
        evidence=f"the difference of the updates is {typical:+.4g} × learning rate {rate:g} × the parameter "
        f"for {len(decays)} of {counted(len(left), 'parameter that differs', 'parameters that differ')}"
        if rate
        else f"the learning rate is 0, and the difference of what the optimizers keep is {typical:+.4g} × the "
        f"parameter for {len(decays)} of {counted(len(left), 'parameter that differs', 'parameters that differ')}",
        confidence="consistent",
        advice="give both optimizers the same weight decay for the same parameters (groups in torch, "
        "apply_decay_param_fun or ParamAttr(regularizer=…) in paddle)",
        keys=bad.keys,
    )


def _not_given(paths: list[str], bad: BadUpdates) -> Finding:
    return Finding(
        rule="update_fit",
        cause=f"the candidate does not train {listed(paths, most=4)}: not given to the optimizer, or frozen",
        evidence=f"no update at step {bad.step}, although the gradient is there and the reference's moves",
        confidence="consistent",
        advice="pass all parameters to the optimizer, and look for trainable=False or stop_gradient=True",
        keys=bad.keys,
    )
