"""Schedules: which single change makes one learning rate curve out of the other?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.engine import Hypothesis, Where
from reprod_log.diagnose.finding import Finding, What, told, what
from reprod_log.diagnose.fits import Fit, first_that_holds, least, shown_ratio, slope_of
from reprod_log.messages import Name, Number
from reprod_log.recording import Array

_FIT = 1e-6
"""Relative to the largest rate: rates are formulas in double precision, of which a framework may keep a float32."""
EXACT = 1e-9
"""Relative to the largest rate: what two lengths of a curve differ by is far more, their rounding less."""
_TELLING = 3
"""Different rates that have to fit."""
_LONGEST = 2000
_POWERS = (1.0, 0.5, 0.9, 2.0, 3.0)


def explain(steps: Array, ours: Array, theirs: Array) -> What:
    """The first change that makes the curves meet at every step that was recorded."""
    near = _FIT * float(max(np.abs(ours).max(), np.abs(theirs).max()))
    found = first_that_holds(_curves(steps, ours, theirs, near), theirs, near)
    return found or _only_there(steps, np.abs(ours - theirs) > near, (ours, theirs)) or what("word.rate.unknown")


def _curves(steps: Array, ours: Array, theirs: Array, near: float) -> Iterator[Fit]:
    """The reference's curve with one change: each predicts the candidate's rates."""
    top = float(max(ours.max(), theirs.max()))
    even = len(steps) < 2 or not np.ptp(np.diff(steps))
    if np.ptp(ours) > near:
        yield Fit(what("word.rate.never_stepped"), np.full_like(theirs, theirs[0]))
    if len(ours) >= _TELLING and even:
        for id, made, at in (
            ("word.rate.ahead", ours[1:], slice(None, -1)),
            ("word.rate.behind", ours[:-1], slice(1, None)),
        ):
            changes, here, there = (np.abs(np.diff(rates)) > near for rates in (made, ours, theirs))
            # A single drop that comes at another step is just that: nothing shows a shift of the whole.
            if changes.sum() > 1 or here.all() or (changes.any() and min(here.sum(), there.sum()) > 1):
                yield Fit(what(id), made, at=at)
    # Of a constant rate, too, the ratio is what was measured, so it is no free number.
    if (ratio := slope_of(ours, theirs)) > 0:
        yield Fit(what("word.rate.times", ratio=shown_ratio(ratio)), ratio * ours)
    if even:
        yield from _other_rise(ours, theirs)
    yield from _other_length(steps, ours, theirs)
    if len(ours) > _TELLING and steps[0] == 0 and even:
        yield from _other_pace(ours, theirs)
    yield from _other_drops(steps, ours, theirs, near)
    yield from _other_end(ours, theirs, top)
    yield from _other_base(ours, theirs)
    yield from _other_cycles(ours, theirs)
    yield from _other_power(ours, theirs, top)


def _other_rise(ours: Array, theirs: Array) -> Iterator[Fit]:
    """Both rise evenly to the same peak, from another rate or in another number of steps, and then do the same."""
    tops = [int(np.argmax(rates)) for rates in (ours, theirs)]
    rises = [np.linspace(rates[0], rates[top], top + 1) for rates, top in zip((ours, theirs), tops, strict=True)]
    near, unfinished = _FIT * ours[tops[0]], min(tops) == len(ours) - 1
    meet = unfinished or abs(ours[tops[0]] - theirs[tops[1]]) <= near
    if min(tops) and meet and np.abs(rises[0] - ours[: tops[0] + 1]).max() <= near:
        made = np.concatenate([rises[1], ours[tops[0] + 1 :]])[: len(theirs)]
        begins = [Number(float(rates[0]), ".6g") for rates in (ours, theirs)]
        said = what("word.rate.other_rise", ours=begins[0], theirs=begins[1], wanted=tops[0], found=tops[1])
        # The first rate and the length of the rise are free.
        yield Fit(said, made, free=2, at=slice(0, len(made)))


def _other_pace(ours: Array, theirs: Array) -> Iterator[Fit]:
    """Stepped only every so many steps, or so many times in each."""
    for times in (2, 3):
        slow = slice(0, None, times)
        made = ours[: len(theirs[slow])]
        # Two points lie on nearly any curve.
        if np.unique(made).size >= _TELLING:
            yield Fit(what("word.rate.slower", times=times), made, at=slow)
        made = ours[slow]
        if np.unique(made).size >= _TELLING:
            yield Fit(what("word.rate.faster", times=times), made, at=slice(0, len(made)))


def _other_drops(steps: Array, ours: Array, theirs: Array, near: float) -> Iterator[Fit]:
    """Both fall by one share of what was: another share (gamma), or at other steps (milestones, size of a step)."""
    here, there = (_drops(rates) for rates in (ours, theirs))
    if here is None or there is None or abs(ours[0] - theirs[0]) > near:
        return
    falls = [np.flatnonzero(fallen) for fallen, _ in (here, there)]
    made = theirs[0] * there[1] ** np.concatenate([[0], np.cumsum(there[0])])
    if np.array_equal(falls[0], falls[1]):
        found, wanted, some = Number(there[1], ".4g"), Number(here[1], ".4g"), len(falls[0])
        said = what("word.rate.other_gamma", theirs=found, ours=wanted, value=wanted, some=some, all=len(ours) - 1)
        yield Fit(said, made)
    elif abs(here[1] - there[1]) <= _FIT:
        places = [", ".join(str(int(steps[place + 1])) for place in one) for one in falls]
        yield Fit(what("word.rate.other_drops", ours=places[0], theirs=places[1]), made)


def _drops(rates: Array) -> tuple[Array, float] | None:
    """Where a rate falls and to which share, always the same; None when there is none, or when it never falls."""
    if len(rates) < _TELLING or (rates <= 0).any():
        return None
    shares = rates[1:] / rates[:-1]
    fallen = np.abs(shares - 1) > _FIT
    falls = shares[fallen]
    return (fallen, float(falls[0])) if falls.size and (falls < 1).all() and np.ptp(falls) <= _FIT else None


def _other_length(steps: Array, ours: Array, theirs: Array) -> Iterator[Fit]:
    """Both are the same formula, cosine or polynomial, over another number of steps."""
    here, there = (_length(steps, rates) for rates in (ours, theirs))
    if here is not None and there is not None and here != there:
        # Each side's formula gives its own curve to many digits.
        yield Fit(what("word.rate.other_length", ours=here, theirs=there, count=here), theirs)


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
            end = slope_of(1 - shape, fall - fall[0] * shape)
            if np.abs(fall[0] * shape + end * (1 - shape) - fall).max() <= EXACT * fall[0]:
                found.add(length)
    return found.pop() if len(found) == 1 else None


def _other_end(ours: Array, theirs: Array, top: float) -> Iterator[Fit]:
    """theirs = ours + e (1 - ours / top): another final value, as eta_min, end_lr or end_learning_rate are."""
    room = 1 - ours / top
    end = slope_of(room, theirs - ours)
    if len(ours) >= _TELLING and (room > EXACT).sum() >= 2 and abs(end) > _FIT * top:
        id = "word.rate.ends_higher" if end > 0 else "word.rate.ends_lower"
        said = what(id, value=Number(abs(end), ".6g"), end=Number(end, ".6g"), count=len(ours))
        yield Fit(said, ours + end * room, free=1)


def _other_base(ours: Array, theirs: Array) -> Iterator[Fit]:
    """theirs - e = a (ours - e): the same schedule to the same end e, from another rate."""
    times = slope_of(ours - ours.mean(), theirs - theirs.mean())
    end = float(theirs.mean() - times * ours.mean()) / (1 - times) if times != 1 else -1.0
    if times > 0 and 0 <= end <= ours.min():
        found, wanted = Number(float(theirs.max()), ".6g"), Number(float(ours.max()), ".6g")
        said = what("word.rate.other_base", theirs=found, ours=wanted, end=Number(end, ".3g"), count=len(ours))
        yield Fit(said, end + times * (ours - end), free=2)


def _other_cycles(ours: Array, theirs: Array) -> Iterator[Fit]:
    """Both cosines of the same progress, with another number of cycles; the peak need not be in the data."""
    # A warm-up before it is the same for both.
    apart = np.flatnonzero(np.abs(ours - theirs) > EXACT * np.abs(ours).max())
    falling = slice(int(apart[0]) if apart.size else 0, None)
    left, right = ours[falling], theirs[falling]
    if len(left) < _TELLING or np.ptp(left) == 0:
        return
    largest = float(max(left.max(), right.max()))
    for times in (2.0, 0.5, 3.0, 4.0, 1 / 3, 0.25):

        def cosine(top: float, times: float = times) -> Array:
            angle = np.arccos(np.clip(2 * left / top - 1, -1, 1))
            return np.asarray(top * 0.5 * (1 + np.cos(times * angle)))

        def error(top: float) -> float:
            return float(np.abs(cosine(top) - right).max())

        top = min(least(error, largest * np.linspace(1, 3, 400)), largest, key=error)
        said = what("word.rate.other_cycles", times=Number(times, "g"), top=Number(top, ".6g"), count=len(left))
        yield Fit(said, cosine(top), free=1, at=falling)


def _other_power(ours: Array, theirs: Array, top: float) -> Iterator[Fit]:
    """theirs / top = (ours / top) ** q: another power of a polynomial, another gamma."""
    inside = (ours > 0) & (theirs > 0) & (ours < top * (1 - EXACT))
    if inside.sum() >= 2:
        power = slope_of(np.log(ours[inside] / top), np.log(theirs[inside] / top))
        said = what("word.rate.other_power", power=Number(power, ".6g"), count=len(ours))
        yield Fit(said, top * (np.clip(ours, 0, None) / top) ** power, free=1)


def _only_there(steps: Array, apart: Array, rates: tuple[Array, Array]) -> What | None:
    """Curves that meet but for a part: another warm-up at the start; in the second half, where they part."""
    bad = np.flatnonzero(apart)
    if len(steps) < _TELLING or not bad.size:
        return None
    if bad[-1] < len(steps) - 1:
        # Both may begin at zero, and rise.
        rising = all((np.diff(one[: bad[-1] + 2]) >= 0).all() for one in rates)
        return what("word.rate.other_warm_up", count=int(bad[-1]) + 1) if bad[0] <= 1 and rising else None
    late = len(steps) > _TELLING and bad[0] >= len(steps) // 2
    return what("word.rate.curves_part", step=int(steps[bad[0]])) if late else None


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
        far = np.flatnonzero(np.abs(ours - theirs) > EXACT * np.abs(ours).max())
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
