"""Schedules: which single change makes one learning rate curve out of the other?"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.engine import Hypothesis, Where
from reprod_log.diagnose.finding import Finding, What, told, what
from reprod_log.diagnose.fits import least, shown_ratio
from reprod_log.messages import Name, Number
from reprod_log.recording import Array

_FIT = 1e-6
"""Relative to the largest rate: schedules are formulas, so the right change fits to many digits."""
_TELLING = 3
"""Different rates that have to fit."""
_EXACT = 1e-9
"""Relative to the largest rate: what two lengths of a curve differ by is far more, their rounding less."""
_LONGEST = 2000
_POWERS = (1.0, 0.5, 0.9, 2.0, 3.0)


def explain(steps: Array, ours: Array, theirs: Array) -> What:
    """The first change that makes the curves meet at every step that was recorded."""
    for test in (
        _constant,
        _shifted,
        _scaled,
        _other_gamma,
        _other_length,
        _slower,
        _other_drops,
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
    return what("word.rate.unknown")


def _meets(ours: Array, theirs: Array) -> bool:
    return bool(np.abs(ours - theirs).max() <= _FIT * max(np.abs(ours).max(), np.abs(theirs).max()))


def _constant(steps: Array, ours: Array, theirs: Array) -> What | None:
    if len(ours) > 1 and np.ptp(theirs) <= _FIT * abs(theirs[0]) and np.ptp(ours) > _FIT * abs(ours[0]):
        return what("word.rate.never_stepped")
    return None


def _shifted(steps: Array, ours: Array, theirs: Array) -> What | None:
    if len(ours) < 3 or np.ptp(np.diff(steps)):
        return None
    for by, cause in ((1, "word.rate.ahead"), (-1, "word.rate.behind")):
        left, right = (ours[by:], theirs[:-by]) if by > 0 else (ours[:by], theirs[-by:])
        if _meets(left, right) and np.ptp(left) > _FIT * np.abs(left).max():
            return what(cause)
    return None


def _slower(steps: Array, ours: Array, theirs: Array) -> What | None:
    if len(ours) < 4 or steps[0] != 0 or np.ptp(np.diff(steps)):
        return None
    for times in (2, 3):
        for slow, fast, id in ((theirs, ours, "word.rate.slower"), (ours, theirs, "word.rate.faster")):
            part = slow[::times]
            # Two points lie on nearly any curve.
            if len(np.unique(part)) >= _TELLING and _meets(part, fast[: len(part)]):
                return what(id, times=times)
    return None


def _scaled(steps: Array, ours: Array, theirs: Array) -> What | None:
    ratio = float(theirs[np.argmax(np.abs(ours))] / ours[np.argmax(np.abs(ours))]) if np.abs(ours).max() else 0.0
    if ratio and _meets(ratio * ours, theirs):
        return what("word.rate.times", ratio=shown_ratio(ratio))
    return None


def _other_gamma(steps: Array, ours: Array, theirs: Array) -> What | None:
    """Both fall at the same steps, each time to the same share of what was: another factor per drop."""
    shares = [_share_per_drop(rates) for rates in (ours, theirs)]
    if shares[0] is None or shares[1] is None or not _meets(ours[:1], theirs[:1]):
        return None
    here, there = (np.flatnonzero(np.abs(np.diff(rates)) > _FIT * np.abs(rates).max()) for rates in (ours, theirs))
    if not np.array_equal(here, there):
        return None
    return what(
        "word.rate.other_gamma",
        theirs=Number(shares[1], ".4g"),
        ours=Number(shares[0], ".4g"),
        some=len(here),
        all=len(ours) - 1,
        value=Number(shares[0], ".4g"),
    )


def _other_drops(steps: Array, ours: Array, theirs: Array) -> What | None:
    """Both fall to the same share of what was, at other steps: milestones, or the size of a step."""
    shares = [_share_per_drop(rates) for rates in (ours, theirs)]
    if shares[0] is None or shares[1] is None or abs(shares[0] - shares[1]) > _FIT or not _meets(ours[:1], theirs[:1]):
        return None
    here, there = (
        ", ".join(str(int(steps[place + 1])) for place in np.flatnonzero(np.abs(np.diff(rates)) > _FIT * rates.max()))
        for rates in (ours, theirs)
    )
    return what("word.rate.other_drops", ours=here, theirs=there)


def _other_length(steps: Array, ours: Array, theirs: Array) -> What | None:
    """Both are the same formula, cosine or polynomial, over another number of steps."""
    here, there = (_length(steps, rates) for rates in (ours, theirs))
    if here is None or there is None or here == there:
        return None
    return what("word.rate.other_length", ours=here, theirs=there, count=here)


def _length(steps: Array, rates: Array) -> int | None:
    """Over how many steps a curve falls from its peak to its end; None when no formula, or more than one, gives it."""
    peak = int(np.argmax(rates))
    time, fall = steps[peak:] - steps[peak], rates[peak:]
    if len(np.unique(fall)) <= _TELLING:
        return None
    found = set()
    for length in range(2, _LONGEST):
        progress = np.minimum(time / length, 1.0)
        for shape in (0.5 * (1 + np.cos(np.pi * time / length)), *((1 - progress) ** power for power in _POWERS)):
            room = 1 - shape
            end = float(np.vdot(room, fall - fall[0] * shape) / max(float(np.vdot(room, room)), 1e-30))
            if np.abs(fall[0] * shape + end * room - fall).max() <= _EXACT * fall[0]:
                found.add(length)
    return found.pop() if len(found) == 1 else None


def _share_per_drop(rates: Array) -> float | None:
    """The one share to which the rate falls whenever it does; None when there is none, or when it never falls."""
    if len(rates) < 3 or (rates <= 0).any():
        return None
    shares = rates[1:] / rates[:-1]
    falls = shares[np.abs(shares - 1) > _FIT]
    return float(falls[0]) if falls.size and (falls < 1).all() and np.ptp(falls) <= _FIT else None


def _other_base(steps: Array, ours: Array, theirs: Array) -> What | None:
    """theirs - e = a (ours - e): the same schedule to the same end e, from another rate."""
    spread = ours - ours.mean()
    size = float(np.vdot(spread, spread))
    if len(ours) < 3 or len(np.unique(ours)) < 3 or not size:
        return None
    times = float(np.vdot(spread, theirs - theirs.mean())) / size
    end = float(theirs.mean() - times * ours.mean()) / (1 - times) if times != 1 else -1.0
    if times <= 0 or not 0 <= end <= ours.min() or not _meets(end + times * (ours - end), theirs):
        return None
    return what(
        "word.rate.other_base",
        theirs=Number(float(theirs.max()), ".6g"),
        ours=Number(float(ours.max()), ".6g"),
        end=Number(end, ".3g"),
        count=len(ours),
    )


def _other_end(steps: Array, ours: Array, theirs: Array) -> What | None:
    """theirs = ours + e (1 - ours / top): another final value, as eta_min, end_lr or end_learning_rate are."""
    top = float(max(ours.max(), theirs.max()))
    room = 1 - ours / top
    if len(ours) < 3 or not (room > 1e-9).sum() >= 2:
        return None
    end = float(np.vdot(room, theirs - ours) / np.vdot(room, room))
    if abs(end) > _FIT * top and _meets(ours + end * room, theirs):
        id = "word.rate.ends_higher" if end > 0 else "word.rate.ends_lower"
        return what(id, value=Number(abs(end), ".6g"), end=Number(end, ".6g"), count=len(ours))
    return None


def _other_cycles(steps: Array, ours: Array, theirs: Array) -> What | None:
    """Both cosines of the same progress, with another number of cycles; the peak need not be in the data."""
    falling = _after_warm_up(ours, theirs)
    left, right = ours[falling], theirs[falling]
    if len(left) < 3 or np.ptp(left) == 0:
        return None
    largest = float(max(left.max(), right.max()))
    for times in (2.0, 0.5, 3.0, 4.0, 1 / 3, 0.25):
        top = _best_top(left, right, largest, times)
        if top is not None:
            return what("word.rate.other_cycles", times=Number(times, "g"), top=Number(top, ".6g"), count=len(left))
    return None


def _after_warm_up(ours: Array, theirs: Array) -> Array:
    """Where the curves begin to differ: a warm-up before it is the same for both."""
    differs = np.flatnonzero(np.abs(ours - theirs) > 1e-9 * np.abs(ours).max())
    return np.arange(differs[0] if differs.size else 0, len(ours))


def _best_top(left: Array, right: Array, largest: float, times: float) -> float | None:
    def error(top: float) -> float:
        angle = np.arccos(np.clip(2 * left / top - 1, -1, 1))
        return float(np.abs(top * 0.5 * (1 + np.cos(times * angle)) - right).max())

    best = min(least(error, largest * np.linspace(1, 3, 400)), largest, key=error)
    return best if error(best) <= 1e-5 * largest else None


def _other_power(steps: Array, ours: Array, theirs: Array) -> What | None:
    """theirs / top = (ours / top) ** q: another power of a polynomial, another gamma."""
    top = float(max(ours.max(), theirs.max()))
    inside = (ours > 0) & (theirs > 0) & (ours < top * (1 - 1e-9))
    if inside.sum() < 2:
        return None
    logs = np.log(ours[inside] / top), np.log(theirs[inside] / top)
    power = float(np.vdot(logs[0], logs[1]) / np.vdot(logs[0], logs[0]))
    if abs(power - 1) < 1e-6 or not _meets(top * (np.clip(ours, 0, None) / top) ** power, theirs):
        return None
    return what("word.rate.other_power", power=Number(power, ".6g"), count=len(ours))


def _only_early(steps: Array, ours: Array, theirs: Array) -> What | None:
    bad = np.flatnonzero(np.abs(ours - theirs) > _FIT * np.abs(ours).max())
    if len(ours) < 3 or not bad.size or bad[-1] == len(ours) - 1:
        return None
    # Both may begin at zero, and rise.
    rising = all((np.diff(rates[: bad[-1] + 2]) >= 0).all() for rates in (ours, theirs))
    if bad[0] == 0 or (rising and bad[0] == 1):
        return what("word.rate.other_warm_up", count=int(bad[-1]) + 1)
    return None


def _only_late(steps: Array, ours: Array, theirs: Array) -> What | None:
    bad = np.flatnonzero(np.abs(ours - theirs) > _FIT * np.abs(ours).max())
    if len(ours) >= 4 and bad.size and bad[0] >= len(ours) // 2:
        return what("word.rate.curves_part", step=int(steps[bad[0]]))
    return None


# Learning rates that differ: never stepped, off by one, another base, and which parameter makes the curves meet.


def _learning_rate(case: Case) -> Iterable[Finding]:
    for name, points in case.series.items():
        if not is_rate(name) or not any(point.row.key in case.failed for point in points):
            continue
        one = points[0].measurement
        if len(points) == 1 and one.count > 2 and case.recorded is not None:
            both = case.recorded.values(points[0].row.key)
            if both is None:
                continue
            ours, theirs = both[0].reshape(-1), both[1].reshape(-1)
            steps = np.arange(ours.size)
        else:
            ours = np.array([point.measurement.reference.mean for point in points])
            theirs = np.array([point.measurement.candidate.mean for point in points])
            steps = np.array([point.step for point in points])
        far = np.flatnonzero(np.abs(ours - theirs) > 1e-9 * np.abs(ours).max())
        if not far.size:
            # Not finite, or beyond a limit by less than any schedule would explain.
            continue
        bad = int(far[0])
        yield told(
            "cause.learning_rate",
            [point.row.key for point in points if point.row.key in case.failed][:5],
            name=Name(name),
            what=explain(steps, ours, theirs),
            step=int(steps[bad]),
            ours=Number(float(ours[bad]), ".9g"),
            theirs=Number(float(theirs[bad]), ".9g"),
        )


def is_rate(name: str) -> bool:
    """Whether a quantity is a learning rate, by its name."""
    words = name.lower().replace("/", "_").replace(".", "_").split("_")
    return "lr" in words or "learning" in words


HYPOTHESES = (Hypothesis("learning_rate", _learning_rate, Where(data=False)),)
