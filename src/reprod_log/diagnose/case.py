"""Case: everything a rule may look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from reprod_log.diagnose.layers import LayerState, layer_states
from reprod_log.diagnose.material import Material
from reprod_log.measure.comparison import Compared, Comparison
from reprod_log.measure.measurement import Measurement
from reprod_log.recording.key import Key
from reprod_log.recording.recording import Source, series
from reprod_log.verdict import CalibratedPolicy, Judgement, NoiseFloor, Policy, Status, Verdict


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

    reference: Source
    candidate: Source
    comparison: Comparison
    policy: Policy | CalibratedPolicy
    verdict: Verdict
    floor: NoiseFloor | None = None
    material: Material | None = None
    """The recordings themselves, for rules that need values; None when only the numbers were kept."""

    @cached_property
    def judgements(self) -> dict[Key, Judgement]:
        return {one.key: one for one in self.verdict.judgements}

    @cached_property
    def rows(self) -> dict[Key, Compared]:
        """The compared entries of the plain run, by key."""
        return {row.key: row for row in self.comparison.rows if row.key in self.judgements}

    @cached_property
    def failed(self) -> dict[Key, Judgement]:
        """The compared entries that did not pass, by their keys and in order: the first are named."""
        return {
            one.key: one
            for one in self.verdict.judgements
            if not one.status.passed and one.status is not Status.UNMATCHED
        }

    @cached_property
    def suspect(self) -> frozenset[Key]:
        return frozenset(one.key for one in self.verdict.judgements if one.status is Status.SUSPECT)

    @cached_property
    def states(self) -> dict[str, LayerState]:
        """For each layer of the reference that was run alone: is its error its own, inherited, or between layers?"""
        return layer_states(self.judgements.values())

    @property
    def own(self) -> tuple[str, ...]:
        """The layers whose error is their own, in execution order."""
        return tuple(path for path, state in self.states.items() if state == "own")

    @cached_property
    def series(self) -> dict[str, tuple[Point, ...]]:
        """Every quantity over the steps, by its name."""
        found = {
            name: tuple(
                Point(step, row, row.measurement, self.judgements[key])
                for step, key in members
                if (row := self.rows[key]).measurement is not None
            )
            for name, members in series(self.rows).items()
        }
        return {name: points for name, points in found.items() if points}
