"""view: the rows and sentences that every report format shows, computed once from an Alignment."""

from __future__ import annotations

from dataclasses import dataclass

from reprod_log.alignment import Alignment
from reprod_log.errors import listed
from reprod_log.judge import Judgement, Status
from reprod_log.measure.comparison import Compared


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    key: str
    status: Status
    judgement: Judgement
    compared: Compared | None

    def number(self, name: str) -> float | None:
        """A statistic of the measurement by its name; None when there is no measurement."""
        if self.compared is None or self.compared.measurement is None:
            return None
        value: float | None = getattr(self.compared.measurement, name)
        return value

    @property
    def shape(self) -> str:
        if self.compared is None:
            return ""
        reference, candidate = self.compared.reference_shape, self.compared.candidate_shape
        text = "×".join(map(str, reference)) or "scalar"
        return text if reference == candidate else f"{text} | {'×'.join(map(str, candidate)) or 'scalar'}"

    @property
    def dtype(self) -> str:
        if self.compared is None:
            return ""
        reference, candidate = self.compared.reference_dtype, self.compared.candidate_dtype
        return reference if reference == candidate else f"{reference} | {candidate}"


def rows(alignment: Alignment) -> tuple[Row, ...]:
    """Every judgement in execution order, with what was measured for it."""
    compared = {row.key: row for row in alignment.comparison.rows}
    return tuple(
        Row(one.key, one.status, one, None if one.status is Status.UNMATCHED else compared.get(one.key))
        for one in alignment.verdict.judgements
    )


def headline(alignment: Alignment) -> str:
    """The answer in one line."""
    verdict = alignment.verdict
    total = len(verdict.judgements)
    if verdict.status is Status.NOTHING:
        return "NOTHING COMPARED: the two sides have no entry in common"
    passed = verdict.counts.get(Status.PASS, 0)
    if verdict.passed:
        return f"ALIGNED: all {total} entries pass"
    parts = [f"{count} {status.value.lower()}" for status, count in verdict.counts.items() if status is not Status.PASS]
    return f"NOT ALIGNED: {', '.join(parts)}; {passed} of {total} entries pass"


def divergence_lines(alignment: Alignment) -> tuple[str, ...]:
    """Where it first goes wrong, and the last place where it was right."""
    first = alignment.first_divergence
    if first is None:
        return ()
    lines = [f"first divergence: {first.key}  {first.status}  {first.reason}"]
    last = alignment.verdict.last_agreement
    lines.append(f"last agreement before it: {last.key}" if last else "nothing before it passed")
    return tuple(lines)


def remarks(alignment: Alignment) -> tuple[str, ...]:
    """What a reader should know besides the verdict: views, mixed dtypes, what is incomplete or was let through."""
    lines: list[str] = []
    for name, side in (("reference", alignment.reference), ("candidate", alignment.candidate)):
        if not side.complete:
            lines.append(f"the {name} is incomplete: it is still growing or was cut short")
        lines += [f"{name}: {note}" for note in side.notes]
    views: dict[str, list[str]] = {}
    for row in alignment.comparison.rows:
        if row.view:
            views.setdefault(row.view, []).append(row.key)
        for note in row.measurement.notes if row.measurement else ():
            views.setdefault(note, []).append(row.key)
    lines += [f"{why}: {listed(keys, most=3)}" for why, keys in views.items()]
    if alignment.verdict.allowed:
        lines.append(f"allowed to be unmatched: {listed(alignment.verdict.allowed)}")
    if alignment.policy.equal_nan:
        lines.append("NaN on both sides counted as equal (equal_nan)")
    lines += list(alignment.comparison.notes)
    return tuple(lines)
