"""Comparison: the measurements of all pairs, and what could not be measured. Numbers, no opinion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from reprod_log.errors import RecordingError
from reprod_log.match import Pair, Pairing, near_names
from reprod_log.measure.fused import measure_arrays
from reprod_log.measure.measurement import Measurement


@dataclass(frozen=True)
class Compared:
    """One pair as it was measured; holds no tensor, so it can be stored and judged again."""

    key: str
    """The reference's key."""
    candidate_key: str
    reference_shape: tuple[int, ...]
    candidate_shape: tuple[int, ...]
    reference_dtype: str
    candidate_dtype: str
    measurement: Measurement | None
    incomparable: str = ""
    """Why there is no measurement."""
    how: str = "name"
    confidence: float = 1.0
    view: str = ""
    """What was rearranged to compare them, and why that was allowed."""
    layer_type: str = ""

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        data["measurement"] = None if self.measurement is None else self.measurement.to_dict()
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Compared:
        values = dict(data)
        values["reference_shape"] = tuple(values["reference_shape"])
        values["candidate_shape"] = tuple(values["candidate_shape"])
        if values["measurement"] is not None:
            values["measurement"] = Measurement.from_dict(values["measurement"])
        return cls(**values)


@dataclass(frozen=True)
class Unmatched:
    """An entry of one side that has no partner, and names on the other side that look like it."""

    key: str
    side: str
    """'reference' or 'candidate': where it is."""
    near: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """Everything that was measured, in the reference's execution order."""

    rows: tuple[Compared, ...]
    unmatched: tuple[Unmatched, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows": [row.to_dict() for row in self.rows],
            "unmatched": [asdict(one) for one in self.unmatched],
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Comparison:
        return cls(
            rows=tuple(Compared.from_dict(row) for row in data["rows"]),
            unmatched=tuple(
                Unmatched(one["key"], one["side"], tuple(one.get("near", ()))) for one in data["unmatched"]
            ),
            notes=tuple(data.get("notes", ())),
        )


def measure(
    pairing: Pairing,
    *,
    limit_for: Callable[[Pair], float | None] = lambda pair: None,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Measure every pair, reading one pair's data at a time.

    `limit_for` gives the absolute limit whose excess is counted; `progress` hears (bytes done, bytes in all).
    """
    total = sum(pair.reference.nbytes + pair.candidate.nbytes for pair in pairing.pairs)
    done = 0
    rows = []
    for pair in pairing.pairs:
        rows.append(measure_pair(pair, limit=limit_for(pair)))
        done += pair.reference.nbytes + pair.candidate.nbytes
        if progress is not None:
            progress(done, total)
    return Comparison(tuple(rows), _unmatched(pairing), pairing.notes)


def measure_pair(pair: Pair, *, limit: float | None = None) -> Compared:
    """One pair measured, or the reason why it cannot be."""
    reference, candidate = pair.reference, pair.candidate
    facts: dict[str, Any] = {
        "key": str(reference.key),
        "candidate_key": str(candidate.key),
        "reference_shape": reference.shape,
        "candidate_shape": candidate.shape,
        "reference_dtype": reference.dtype,
        "candidate_dtype": candidate.dtype,
        "how": pair.how,
        "confidence": pair.confidence,
        "view": pair.view.reason if pair.view else "",
        "layer_type": reference.layer_type,
    }
    reason = _kinds_differ(reference.dtype, candidate.dtype)
    if reason:
        return Compared(**facts, measurement=None, incomparable=reason)
    try:
        ours, theirs = reference.array(), candidate.array()
        if pair.view is not None:
            theirs = pair.view.of(theirs)
    except RecordingError as error:
        return Compared(**facts, measurement=None, incomparable=str(error))
    if ours.shape != theirs.shape:
        reason = f"shapes differ: reference {list(reference.shape)}, candidate {list(candidate.shape)}"
        if candidate.shape == reference.shape[::-1]:
            reason += " (the reverse: a transposed weight or gradient?)"
        return Compared(**facts, measurement=None, incomparable=reason)
    return Compared(**facts, measurement=measure_arrays(ours, theirs, limit=limit))


def _kinds_differ(reference: str, candidate: str) -> str:
    """Text and objects compare only with their own kind."""
    special = {"str", "object"}
    if reference != candidate and (reference in special or candidate in special):
        return f"kinds differ: reference {reference}, candidate {candidate}"
    return ""


def _unmatched(pairing: Pairing) -> tuple[Unmatched, ...]:
    lonely = [str(entry.key) for entry in pairing.only_in_reference]
    extra = [str(entry.key) for entry in pairing.only_in_candidate]
    # Likeness is quadratic to find; a thousand missing names need no hints.
    hints = len(lonely) * len(extra) <= 100_000
    return (
        *(Unmatched(name, "reference", tuple(near_names(name, tuple(extra))) if hints else ()) for name in lonely),
        *(Unmatched(name, "candidate", tuple(near_names(name, tuple(lonely))) if hints else ()) for name in extra),
    )
