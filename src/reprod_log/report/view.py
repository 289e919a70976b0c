"""view: the rows that every report format shows, put together once from an Alignment. Nothing is judged here."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reprod_log.alignment import Alignment
from reprod_log.diagnose.finding import without_places
from reprod_log.errors import listed
from reprod_log.measure.comparison import Compared
from reprod_log.measure.measurement import Measurement
from reprod_log.messages import Foreign, Message, Name, message
from reprod_log.recording import Key
from reprod_log.report.writing import number, times
from reprod_log.verdict import Check, FloorEvidence, Judgement, Status
from reprod_log.verdict.fixed import has_no_size

SEVERITY = (
    Status.PASS,
    Status.ACCEPTED,
    Status.SUSPECT,
    Status.PRECISION,
    Status.UNMATCHED,
    Status.INCOMPARABLE,
    Status.FAIL,
    Status.UNPROVEN,
    Status.INCOMPLETE,
    Status.NOTHING,
)
"""From nothing to say to the worst; a group of entries shows the worst of its members."""
MARKS = {
    Status.PASS: "✓",
    Status.ACCEPTED: "○",
    Status.SUSPECT: "?",
    Status.PRECISION: "≈",
    Status.FAIL: "✗",
    Status.UNMATCHED: "∅",
    Status.INCOMPARABLE: "≠",
    Status.UNPROVEN: "!",
    Status.INCOMPLETE: "…",
    Status.NOTHING: "∅",
}
"""A sign for each status, so that colour is never the only one."""
WHOLE = "(model)"
"""How the path of the whole model, which is empty, is shown."""


@dataclass(frozen=True)
class ReportRow:
    """One judged entry with everything known about it."""

    place: int
    """Its number in the report, from 0."""
    key: Key
    status: Status
    judgement: Judgement
    compared: Compared | None
    """What was measured; None for an entry without a partner."""
    evidence: FloorEvidence | None = None
    """The float64 runs, repeats and noise behind a calibrated judgement."""
    own: Measurement | None = None
    """The same layer run alone on the reference's input: its own error, apart from what it inherited."""

    @property
    def partner(self) -> Key | None:
        """The candidate's key where it has another one."""
        other = None if self.compared is None else self.compared.candidate_key
        return None if other == self.key else other

    @property
    def title(self) -> Message:
        """The entry in words, with the names that both sides have for it."""
        return entry_in_words(self.key, self.partner)

    @property
    def reason(self) -> Message | str:
        """Why it did not pass, or what else there is to know."""
        return self.judgement.reason or ""

    @property
    def size(self) -> Message | None:
        """How wrong it is, in words: 18 × rounding, 10 allowed; None where nothing was measured against a limit."""
        check = self.check
        if check is not None and check.ratio is not None and check.floor:
            return message("times.rounding", times=times(check.ratio), allowed=times(check.limit / check.floor))
        beyond = self.times_limit
        return None if beyond is None or not 1 < beyond < math.inf else message("times.limit", times=times(beyond))

    @property
    def measurement(self) -> Measurement | None:
        return None if self.compared is None else self.compared.measurement

    def number(self, name: str) -> float | None:
        """A statistic of the measurement by its name; None when there is no measurement, or an estimate without it.

        Texts and objects that differ have no statistics either.
        """
        if self.measurement is None or has_no_size(self.measurement):
            return None
        value: float | None = getattr(self.measurement, name)
        estimated = self.measurement.estimate is not None
        return None if estimated and value is not None and math.isnan(value) else value

    def text(self, name: str) -> str:
        """The same as a table shows it, with a sign before an estimate."""
        value = self.number(name)
        estimated = value is not None and self.measurement is not None and self.measurement.estimate is not None
        return f"≈{number(value)}" if estimated else number(value)

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

    @cached_property
    def check(self) -> Check | None:
        """The check that decided: the one that went furthest towards, or beyond, its limit."""
        return max(self.judgement.checks, key=lambda one: (not one.passed, _of_limit(one)), default=None)

    @cached_property
    def times_limit(self) -> float | None:
        """The deciding value in limits: beyond 1 it does not pass. Of an estimate only bounds are known."""
        measured = self.measurement
        if self.check is None or (measured is not None and (measured.estimate is not None or has_no_size(measured))):
            return None
        return _of_limit(self.check)

    @property
    def floor(self) -> float | None:
        """What rounding alone would give for the deciding check, when that is known."""
        return None if self.check is None else self.check.floor

    @property
    def times_floor(self) -> float | None:
        """The deciding value in noise floors."""
        return None if self.check is None else self.check.ratio

    @property
    def relative_floor(self) -> float | None:
        """The noise floor as a relative error, to stand beside `rel_l2`."""
        noise = None if self.evidence is None else self.evidence.noise
        return None if noise is None else noise.rel_l2

    @property
    def relative_float64(self) -> float | None:
        """The relative error of the two float64 runs: what is left when rounding is taken away."""
        wide = None if self.evidence is None else self.evidence.float64
        return None if wide is None else wide.rel_l2

    @property
    def relative_own(self) -> float | None:
        return None if self.own is None else self.own.rel_l2


def rows(alignment: Alignment) -> tuple[ReportRow, ...]:
    """Every judgement in the order in which the verdict looks at them, with what was measured for it."""
    compared = {row.key: row for row in alignment.comparison.rows}
    evidence = {} if alignment.floor is None else {one.key: one for one in alignment.floor.evidence}
    found = []
    for place, one in enumerate(alignment.verdict.judgements):
        found.append(
            ReportRow(
                place=place,
                key=one.key,
                status=one.status,
                judgement=one,
                compared=None if one.status is Status.UNMATCHED else compared.get(one.key),
                evidence=evidence.get(one.key),
                own=_own_error(one.key, evidence, compared),
            )
        )
    return tuple(found)


def entry_in_words(key: Key, partner: Key | None = None) -> Message:
    """step 0 · forward · layers.5.ln1 ↔ blocks.5.norm1 · output; a plain name stays as it is."""
    other = partner or key
    if not key.phase or not other.phase:
        return message("text", text=Name(both_names(str(key), str(other))))
    parts = (
        both_names(key.phase, other.phase),
        both_names(key.path or WHOLE, other.path or WHOLE),
        both_names(key.printed_role, other.printed_role),
    )
    place = message("place.step", step=key.step or 0, name=Name(" · ".join(part for part in parts if part)))
    if key.call:
        place = message("place.call", place=place, call=key.call + 1)
    return message("place.run", run=Name(key.run), place=place) if key.run else place


def first_in_words(alignment: Alignment) -> Message | None:
    """The first divergence in words; None where there is none."""
    first = alignment.first_divergence
    if first is None:
        return None
    partners = (row.candidate_key for row in alignment.comparison.rows if row.key == first.key)
    return entry_in_words(first.key, None if first.status is Status.UNMATCHED else next(partners, None))


def in_run(run: str, name: str) -> str:
    """float64@forward; only the name in the program as it is."""
    return f"{run}@{name}" if run else name


def both_names(reference: str, candidate: str) -> str:
    """One name where both sides have the same, else both."""
    return reference if reference == candidate else f"{reference} ↔ {candidate}"


def worst_status(statuses: Iterable[Status]) -> Status:
    """The most serious of several statuses."""
    return max(statuses, key=SEVERITY.index)


def accepted_keys(alignment: Alignment) -> tuple[Key, ...]:
    """The entries that pass only because the policy accepts their difference."""
    return tuple(one.key for one in alignment.verdict.judgements if one.status is Status.ACCEPTED)


def remarks(alignment: Alignment) -> tuple[Message, ...]:
    """What a reader should know besides the verdict: views, mixed dtypes, what is incomplete or was let through."""
    lines: list[Message] = []
    for name, side in (("reference", alignment.reference), ("candidate", alignment.candidate)):
        if not side.complete:
            lines.append(message(f"doubt.incomplete.{name}"))
        lines += [message("remark.side", side=message(name), note=_as_argument(note)) for note in side.notes]
    noted: dict[Message | str, list[Compared]] = {}
    views: dict[Message, list[Compared]] = {}
    for row in alignment.comparison.rows:
        if row.view is not None:
            # The same rearrangement of other layers is one remark.
            views.setdefault(without_places(row.view), []).append(row)
        for note in row.measurement.notes if row.measurement else ():
            noted.setdefault(note, []).append(row)
    lines += [message("remark.view", view=found[0].view, **_of(found)) for found in views.values()]
    lines += [message("remark.of", note=_as_argument(why), **_of(found)) for why, found in noted.items()]
    if alignment.verdict.allowed:
        lines.append(message("remark.allowed", keys=Foreign(listed(map(str, alignment.verdict.allowed)))))
    known = accepted_keys(alignment)
    if known:
        lines.append(message("remark.accepted", keys=Foreign(listed(map(str, known)))))
    if alignment.policy.equal_nan:
        lines.append(message("remark.equal_nan"))
    notes = (*(alignment.floor.notes if alignment.floor is not None else ()), *alignment.comparison.notes)
    lines += [message("reason", reason=_as_argument(note)) for note in notes]
    return tuple(lines)


def _of(found: list[Compared]) -> dict[str, Any]:
    """How many entries a remark is about, and the first of them."""
    return {"count": len(found), "first": entry_in_words(found[0].key, found[0].candidate_key)}


def _as_argument(note: Message | str) -> Message | Foreign:
    """A note as it stands in a message; text comes from a file of the first edition."""
    return note if isinstance(note, Message) else Foreign(note)


def _own_error(key: Key, evidence: dict[Key, FloorEvidence], compared: dict[Key, Compared]) -> Measurement | None:
    """How far the layer is off when it runs alone: in float64 if there is such a run, else as the user runs it."""
    alone = key.in_run("isolated")
    if alone == key:
        # A classic name knows no passes: this is the entry itself.
        return None
    found = evidence.get(alone)
    if found is not None:
        return found.float64 or found.float32
    row = compared.get(alone)
    return None if row is None else row.measurement


def _of_limit(check: Check) -> float:
    if math.isnan(check.value):
        return math.inf
    if check.limit == 0:
        return 0.0 if check.value == 0 else math.inf
    return check.value / check.limit
