"""What `align_models` said of one pair, graded, kept, and made into the table of docs/real_models.md."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from real.cases import SAME, Case

_ROOT = Path(__file__).resolve().parents[2]
_PASSES = ("PASS", "SUSPECT")


@dataclass(frozen=True)
class Outcome:
    name: str
    half: str
    truth: str
    verdict: str
    """The verdict, or the name of an error."""
    right: bool
    placed: bool
    named: bool
    first: str
    causes: list[str]
    seconds: float
    megabytes: int

    def line(self) -> str:
        """One line for a terminal, and its causes."""
        mark = "ok   " if self.right else "WRONG"
        head = f"{mark} {self.name}: {self.verdict} {self.first[:300]} {self.seconds:.0f} s {self.megabytes} MB"
        return "\n        ".join([head, *(cause[:300] for cause in self.causes[:3])])


def outcome(case: Case, verdict: str, first: str, causes: list[str], seconds: float, megabytes: int) -> Outcome:
    """The verdict beside the truth. On the same function every cause is wrong, whatever the verdict."""
    right = (verdict in _PASSES and not causes) if case.truth == SAME else verdict == "FAIL"
    placed = case.truth != SAME and right and case.place in first
    named = case.truth != SAME and bool(causes) and case.cause in " ".join(causes)
    return Outcome(case.name, case.half, case.truth, verdict, right, placed, named, first, causes, seconds, megabytes)


def _file(environment: str) -> Path:
    return _ROOT / "build" / f"real-{environment}.json"


def kept(environment: str) -> dict[str, Outcome]:
    """The outcomes of earlier runs by the name of their case."""
    target = _file(environment)
    rows = json.loads(target.read_text()) if target.exists() else []
    return {row["name"]: Outcome(**row) for row in rows}


def write_kept(environment: str, one: Outcome) -> None:
    """After every case: a run may be interrupted."""
    rows = kept(environment) | {one.name: one}
    target = _file(environment)
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps([asdict(row) for row in rows.values()], indent=1, ensure_ascii=False) + "\n")


def totals(outcomes: Iterable[Outcome]) -> dict[str, tuple[str, str]]:
    """For each half: how many of the same pass, and how many of the others are found, placed and named."""
    made = {}
    for half in ("development", "scored"):
        own = [one for one in outcomes if one.half == half]
        same = [one for one in own if one.truth == SAME]
        wrong = [one for one in own if one.truth != SAME]
        found, placed, named = (sum(getattr(one, grade) for one in wrong) for grade in ("right", "placed", "named"))
        if own:
            made[half] = (
                f"{sum(one.right for one in same)} of {len(same)} that are the same pass",
                f"{found} of {len(wrong)} that differ are found, {placed} placed, {named} named",
            )
    return made
