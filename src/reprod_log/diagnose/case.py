"""Case: everything a rule may look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from reprod_log.calibrate import NoiseFloor
from reprod_log.judge import CalibratedPolicy, Judgement, Policy, Verdict
from reprod_log.measure.comparison import Compared, Comparison
from reprod_log.measure.measurement import Measurement
from reprod_log.record.series import series
from reprod_log.record.side import Side


@dataclass(frozen=True)
class Point:
    """One step of a series: what was measured for it and how it was judged."""

    step: int
    row: Compared
    measurement: Measurement
    judgement: Judgement


@dataclass(frozen=True)
class Case:
    """A judged comparison, as the rules see it."""

    reference: Side
    candidate: Side
    comparison: Comparison
    policy: Policy | CalibratedPolicy
    verdict: Verdict
    floor: NoiseFloor | None = None

    @cached_property
    def judgements(self) -> dict[str, Judgement]:
        return {one.key: one for one in self.verdict.judgements}

    @cached_property
    def rows(self) -> dict[str, Compared]:
        """The compared entries of the plain run, by key."""
        return {row.key: row for row in self.comparison.rows if row.key in self.judgements}

    def series(self) -> Iterator[tuple[str, tuple[Point, ...]]]:
        """Every quantity over the steps, with its name."""
        for name, members in series(self.rows).items():
            points = tuple(
                Point(step, row, row.measurement, self.judgements[key])
                for step, key in members
                if (row := self.rows[key]).measurement is not None
            )
            if points:
                yield name, points
