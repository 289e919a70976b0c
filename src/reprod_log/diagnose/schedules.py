"""Two learning rate curves: which single change makes the one out of the other?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reprod_log.diagnose.material import shown_ratio
from reprod_log.errors import counted
from reprod_log.recording import Array

_FIT = 1e-6
"""Relative to the largest rate: schedules are formulas, so the right change fits to many digits."""


@dataclass(frozen=True)
class Explanation:
    cause: str
    advice: str
    evidence: str = ""
    found: bool = True


def explain(steps: Array, ours: Array, theirs: Array) -> Explanation:
    """The first change that makes the curves meet at every step that was recorded."""
    for test in (
        _constant,
        _shifted,
        _slower,
        _scaled,
        _other_gamma,
        _other_end,
        _other_base,
        _other_cycles,
        _other_power,
        _only_early,
        _only_late,
    ):
        found = test(steps, ours, theirs)
        if found is not None:
            return found
    return Explanation(
        "no single parameter of a known schedule makes the curves meet",
        "print both schedules' settings; record every step of the schedule without training for a better fit",
        found=False,
    )


def _meets(ours: Array, theirs: Array) -> bool:
    return bool(np.abs(ours - theirs).max() <= _FIT * max(np.abs(ours).max(), np.abs(theirs).max()))


def _constant(steps: Array, ours: Array, theirs: Array) -> Explanation | None:
    if len(ours) > 1 and np.ptp(theirs) <= _FIT * abs(theirs[0]) and np.ptp(ours) > _FIT * abs(ours[0]):
        return Explanation(
            "the candidate's scheduler is never stepped", "call scheduler.step() once after every optimizer step"
        )
    return None


def _shifted(steps: Array, ours: Array, theirs: Array) -> Explanation | None:
    if len(ours) < 3 or np.ptp(np.diff(steps)):
        return None
    for by, words in ((1, "one step ahead of"), (-1, "one step behind")):
        left, right = (ours[by:], theirs[:-by]) if by > 0 else (ours[:by], theirs[-by:])
        if _meets(left, right) and np.ptp(left) > _FIT * np.abs(left).max():
            return Explanation(
                f"the candidate is {words} the reference (off by one)",
                "step the scheduler at the same place, after optimizer.step(), and read the rate before it",
            )
    return None


def _slower(steps: Array, ours: Array, theirs: Array) -> Explanation | None:
    if len(ours) < 4 or steps[0] != 0 or np.ptp(np.diff(steps)):
        return None
    for times in (2, 3):
        if _meets(ours[::times], theirs[: len(ours[::times])]):
            return Explanation(
                f"the candidate's runs {times} times as fast: stepped {times} times per step, or {times} times shorter",
                "step the scheduler once per step; compare T_max, step_size and total steps",
            )
        if _meets(theirs[::times], ours[: len(theirs[::times])]):
            return Explanation(
                f"the candidate's is {times} times as slow: stepped at every {times}th step, or {times} times longer",
                "step the scheduler once per step; compare T_max, step_size and total steps",
            )
    return None


def _scaled(steps: Array, ours: Array, theirs: Array) -> Explanation | None:
    ratio = float(theirs[np.argmax(np.abs(ours))] / ours[np.argmax(np.abs(ours))]) if np.abs(ours).max() else 0.0
    if ratio and _meets(ratio * ours, theirs):
        return Explanation(
            f"the candidate's is {shown_ratio(ratio)} times the reference's at every step",
            "use the same base learning rate (and no multiplier: LambdaLR gives factors, some schedulers rates)",
        )
    return None


def _other_gamma(steps: Array, ours: Array, theirs: Array) -> Explanation | None:
    """Both fall at the same steps, each time to the same share of what was: another factor per drop."""
    shares = [_share_per_drop(rates) for rates in (ours, theirs)]
    if shares[0] is None or shares[1] is None or not _meets(ours[:1], theirs[:1]):
        return None
    here, there = (np.flatnonzero(np.abs(np.diff(rates)) > _FIT * np.abs(rates).max()) for rates in (ours, theirs))
    if not np.array_equal(here, there):
        return None
    return Explanation(
        f"every drop is to {shares[1]:.4g} of the rate instead of {shares[0]:.4g} (gamma)",
        f"set gamma={shares[0]:.4g} in the candidate's schedule",
        f"with these shares the curves fall alike at {len(here)} of {len(ours) - 1} steps",
    )


def _share_per_drop(rates: Array) -> float | None:
    """The one share to which the rate falls whenever it does; None when there is none, or when it never falls."""
    if len(rates) < 3 or (rates <= 0).any():
        return None
    shares = rates[1:] / rates[:-1]
    falls = shares[np.abs(shares - 1) > _FIT]
    return float(falls[0]) if falls.size and (falls < 1).all() and np.ptp(falls) <= _FIT else None


def _other_base(steps: Array, ours: Array, theirs: Array) -> Explanation | None:
    """theirs - e = a (ours - e): the same schedule to the same end e, from another rate."""
    spread = ours - ours.mean()
    size = float(np.vdot(spread, spread))
    if len(ours) < 3 or len(np.unique(ours)) < 3 or not size:
        return None
    times = float(np.vdot(spread, theirs - theirs.mean())) / size
    end = float(theirs.mean() - times * ours.mean()) / (1 - times) if times != 1 else -1.0
    if times <= 0 or not 0 <= end <= ours.min() or not _meets(end + times * (ours - end), theirs):
        return None
    return Explanation(
        f"the candidate's base rate is another: {theirs.max():.6g} where the reference has {ours.max():.6g}, with the "
        f"same end of {end:.3g}",
        "use the same base learning rate: only the final rate (eta_min, end_lr) is the same",
        f"with another base the curves meet at all {len(ours)} steps",
    )


def _other_end(steps: Array, ours: Array, theirs: Array) -> Explanation | None:
    """theirs = ours + e (1 - ours / top): another final value, as eta_min, end_lr or end_learning_rate are."""
    top = float(max(ours.max(), theirs.max()))
    room = 1 - ours / top
    if len(ours) < 3 or not (room > 1e-9).sum() >= 2:
        return None
    end = float(np.vdot(room, theirs - ours) / np.vdot(room, room))
    if abs(end) > _FIT * top and _meets(ours + end * room, theirs):
        return Explanation(
            f"the candidate's schedule ends about {abs(end):.3g} {'higher' if end > 0 else 'lower'}",
            "set the final rate (eta_min in torch; eta_min, end_lr or end_learning_rate in paddle) "
            f"{abs(end):.6g} {'lower' if end > 0 else 'higher'}",
            f"with another end by {end:.6g} the curves meet at all {len(ours)} steps",
        )
    return None


def _other_cycles(steps: Array, ours: Array, theirs: Array) -> Explanation | None:
    """Both cosines of the same progress, with another number of cycles; the peak need not be in the data."""
    falling = _after_warm_up(ours, theirs)
    left, right = ours[falling], theirs[falling]
    if len(left) < 3 or np.ptp(left) == 0:
        return None
    largest = float(max(left.max(), right.max()))
    for times in (2.0, 0.5, 3.0, 4.0, 1 / 3, 0.25):
        top = _best_top(left, right, largest, times)
        if top is not None:
            return Explanation(
                f"a cosine with {times:g} times the reference's number of cycles (num_cycles)",
                f"set num_cycles (or T_max) so that the candidate has the reference's: {times:g} times fewer cycles",
                f"with num_cycles × {times:g} and a peak of {top:.6g} the curves meet at all {len(left)} steps",
            )
    return None


def _after_warm_up(ours: Array, theirs: Array) -> Array:
    """Where the curves begin to differ: a warm-up before it is the same for both."""
    differs = np.flatnonzero(np.abs(ours - theirs) > 1e-9 * np.abs(ours).max())
    return np.arange(differs[0] if differs.size else 0, len(ours))


def _best_top(left: Array, right: Array, largest: float, times: float) -> float | None:
    def error(top: float) -> float:
        angle = np.arccos(np.clip(2 * left / top - 1, -1, 1))
        return float(np.abs(top * 0.5 * (1 + np.cos(times * angle)) - right).max())

    tops = largest * np.linspace(1, 3, 400)
    errors = [error(float(top)) for top in tops]
    place = int(np.argmin(errors))
    low, high = float(tops[max(place - 1, 0)]), float(tops[min(place + 1, len(tops) - 1)])
    for _ in range(80):
        third = (high - low) / 3
        if error(low + third) < error(high - third):
            high -= third
        else:
            low += third
    best = min((low + high) / 2, float(tops[0]), key=error)
    return best if error(best) <= 1e-5 * largest else None


def _other_power(steps: Array, ours: Array, theirs: Array) -> Explanation | None:
    """theirs / top = (ours / top) ** q: another power of a polynomial, another gamma."""
    top = float(max(ours.max(), theirs.max()))
    inside = (ours > 0) & (theirs > 0) & (ours < top * (1 - 1e-9))
    if inside.sum() < 2:
        return None
    logs = np.log(ours[inside] / top), np.log(theirs[inside] / top)
    power = float(np.vdot(logs[0], logs[1]) / np.vdot(logs[0], logs[0]))
    if abs(power - 1) < 1e-6 or not _meets(top * (np.clip(ours, 0, None) / top) ** power, theirs):
        return None
    return Explanation(
        f"the decay is the reference's to the power of {power:.6g}: another gamma or power",
        f"a gamma g of the reference must be g in the candidate, which has g ** {power:.4g}",
        f"with that exponent the curves meet at all {len(ours)} steps",
    )


def _only_early(steps: Array, ours: Array, theirs: Array) -> Explanation | None:
    bad = np.flatnonzero(np.abs(ours - theirs) > _FIT * np.abs(ours).max())
    if len(ours) < 3 or not bad.size or bad[-1] == len(ours) - 1:
        return None
    # Both may begin at zero, and rise.
    rising = all((np.diff(rates[: bad[-1] + 2]) >= 0).all() for rates in (ours, theirs))
    if bad[0] == 0 or (rising and bad[0] == 1):
        return Explanation(
            f"{counted(int(bad[-1]) + 1, 'only the first # step differs', 'only the first # steps differ')}: another "
            "warm-up (length or start)",
            "use the same warm-up steps and start factor (torch's LinearLR starts at 1/3 by default, paddle's "
            "LinearWarmup at start_lr)",
        )
    return None


def _only_late(steps: Array, ours: Array, theirs: Array) -> Explanation | None:
    bad = np.flatnonzero(np.abs(ours - theirs) > _FIT * np.abs(ours).max())
    if len(ours) >= 4 and bad.size and bad[0] >= len(ours) // 2:
        return Explanation(
            f"the curves part at step {steps[bad[0]]}: another milestone, length or final rate",
            "compare milestones, total steps and the final rate (paddle's OneCycleLR and PolynomialDecay end at 1e-4)",
            found=False,
        )
    return None
