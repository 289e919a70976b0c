"""Curves: single numbers that come back at every step (losses, learning rates, metrics), both sides over the steps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from reprod_log.recording import Key
from reprod_log.report.view import ReportRow

KINDS = ("loss", "lr", "metric", "other")
_CURVE_PHASES = {"loss": "loss", "lr": "lr", "metric": "metric", "clip": "other"}
_WORDS = {
    "lr": re.compile(r"(?:^|[_\W])(lr|learning_?rate|scheduler?)(?:[_\W]|$)", re.IGNORECASE),
    "loss": re.compile(r"loss", re.IGNORECASE),
    "metric": re.compile(r"acc|metric|top\d|f1|auc|bleu|psnr|ssim|miou|map", re.IGNORECASE),
}
_NUMBER = re.compile(r"\d{1,18}")


@dataclass(frozen=True)
class Point:
    """One step of a curve."""

    step: int
    reference: float
    candidate: float
    difference: float
    """|candidate − reference|, as measured."""
    floor: float | None
    limit: float | None
    row: ReportRow


@dataclass(frozen=True)
class Curve:
    """The same number over the steps, at two or more of them."""

    name: str
    kind: str
    run: str
    points: tuple[Point, ...]

    @property
    def identical(self) -> bool:
        return all(point.difference == 0 for point in self.points)


def curves(rows: Iterable[ReportRow]) -> tuple[Curve, ...]:
    """All curves there are: losses first, then learning rates, metrics and others.

    Structured keys say their step (`step3/loss/loss`). In classic names it is the number that varies:
    `loss_0, loss_1` and `step_100_linear_lr, step_200_linear_lr` are one curve each.
    """
    scalars = [row for row in rows if row.measurement is not None and row.measurement.count == 1]
    found: dict[tuple[str, str, str], list[Point]] = {}
    for name, kind, step, place in named_steps([row.key for row in scalars]):
        point = _point(step, scalars[place])
        if point is not None:
            found.setdefault((name, kind, scalars[place].key.run), []).append(point)
    made = [
        Curve(name, kind, run, tuple(sorted(points, key=lambda point: point.step)))
        for (name, kind, run), points in found.items()
        if len(points) > 1
    ]
    return tuple(sorted(made, key=lambda curve: (KINDS.index(curve.kind), curve.run)))


def named_steps(keys: Sequence[Key]) -> Iterator[tuple[str, str, int, int]]:
    """The keys of single numbers that belong to a curve: the curve's name and kind, the step, the key's place."""
    for place, key in enumerate(keys):
        if key.phase in _CURVE_PHASES and key.step is not None:
            # With several values of one name in a step (calls, groups) each is its own curve.
            call = f"#{key.call}" if key.call else ""
            role = f":{key.role}" if key.role else ""
            yield f"{key.path}{call}{role}", _CURVE_PHASES[key.phase], key.step, place
    yield from _classic(keys)


def _classic(keys: Sequence[Key]) -> Iterator[tuple[str, str, int, int]]:
    """Group names that differ in one number; of several numbers in a name, the one that most names vary in."""
    templates = {place: _templates(key.path) for place, key in enumerate(keys) if not key.phase}
    members = Counter(template for found in templates.values() for template, _ in found)
    for place, found in templates.items():
        # The later number wins a tie: `epoch_0_step_3` varies in the step.
        best = max(enumerate(found), key=lambda one: (members[one[1][0]], one[0]), default=None)
        if best is not None and members[best[1][0]] > 1:
            template, step = best[1]
            yield template, _kind(template), step, place


def _templates(key: str) -> list[tuple[str, int]]:
    """The name with each of its numbers in turn replaced by a star, and that number."""
    return [(f"{key[: at.start()]}*{key[at.end() :]}", int(at.group())) for at in _NUMBER.finditer(key)]


def _kind(name: str) -> str:
    return next((kind for kind, pattern in _WORDS.items() if pattern.search(name)), "other")


def _point(step: int, row: ReportRow) -> Point | None:
    measured = row.measurement
    if measured is None or "complex" in measured.reference_dtype or row.dtype.startswith(("str", "object")):
        return None
    check = row.check
    absolute = check is not None and check.metric in ("mean_abs", "max_abs", "min_abs", "rmse", "rms", "max")
    return Point(
        step=step,
        # The mean of one number is that number; NaN when it is not finite.
        reference=measured.reference.mean,
        candidate=measured.candidate.mean,
        difference=measured.max_abs,
        floor=row.floor,
        limit=check.limit if check is not None and absolute else None,
        row=row,
    )
