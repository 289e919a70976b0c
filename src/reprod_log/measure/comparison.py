"""Comparison: the measurements of all pairs, and what could not be measured. Numbers, no opinion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from reprod_log.errors import RecordingError, near_names
from reprod_log.match import Pair, Pairing
from reprod_log.measure.elements import Samples, samples_of, worst_elements
from reprod_log.measure.fused import measure_arrays
from reprod_log.measure.measurement import Measurement, Worst

_SAMPLES_IN_ALL = 30_000
"""How many sampled elements all pairs share, so that a saved alignment stays small; a pair gets 4 to 200 of them."""
_MOST_SAMPLES, _FEWEST_SAMPLES = 200, 4
_WORST_ELEMENTS = 8
_WORTH_A_PICTURE = 1e-6
_SMALL = 1 << 16
"""Pairs of up to this many elements always tell their worst; larger ones only when something is beyond a limit."""


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
    samples: Samples = ()
    """Evenly spaced (reference, candidate) values; all of them when the pair is small. For pictures only."""
    worst_elements: tuple[Worst, ...] = ()
    """The elements that differ most, largest difference first."""

    def to_dict(self) -> dict[str, Any]:
        data = {item.name: getattr(self, item.name) for item in fields(self)}
        data["measurement"] = None if self.measurement is None else self.measurement.to_dict()
        data["worst_elements"] = [one.to_dict() for one in self.worst_elements]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Compared:
        known = {item.name for item in fields(cls)}
        values = {name: value for name, value in data.items() if name in known}
        values["reference_shape"] = tuple(values["reference_shape"])
        values["candidate_shape"] = tuple(values["candidate_shape"])
        if values["measurement"] is not None:
            values["measurement"] = Measurement.from_dict(values["measurement"])
        values["samples"] = tuple((float(ours), float(theirs)) for ours, theirs in values.get("samples", ()))
        values["worst_elements"] = tuple(Worst.from_dict(one) for one in values.get("worst_elements", ()))
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
    structural: tuple[str, ...] = ()
    """Modules without parameters that only one side has as modules; there was nothing to compare them with."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows": [row.to_dict() for row in self.rows],
            "unmatched": [asdict(one) for one in self.unmatched],
            "notes": list(self.notes),
            "structural": list(self.structural),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Comparison:
        return cls(
            rows=tuple(Compared.from_dict(row) for row in data["rows"]),
            unmatched=tuple(
                Unmatched(one["key"], one["side"], tuple(one.get("near", ()))) for one in data["unmatched"]
            ),
            notes=tuple(data.get("notes", ())),
            structural=tuple(data.get("structural", ())),
        )


def measure(
    pairing: Pairing,
    *,
    limit_for: Callable[[Pair], float | None] = lambda pair: None,
    progress: Callable[[int, int], None] | None = None,
    elements: bool = False,
) -> Comparison:
    """Measure every pair, reading one pair's data at a time.

    `limit_for` gives the absolute limit whose excess is counted; `progress` hears (bytes done, bytes in all).
    `elements` also keeps a few single elements of each pair for the pictures of a report.
    """
    total = sum(pair.reference.nbytes + pair.candidate.nbytes for pair in pairing.pairs)
    done = 0
    rows: list[Compared] = []
    usual = max(_FEWEST_SAMPLES, min(_MOST_SAMPLES, _SAMPLES_IN_ALL // max(len(pairing.pairs), 1)))
    # The pairs beyond their limit are the ones people look at: the first of them get a full picture.
    spare = _SAMPLES_IN_ALL
    for pair in pairing.pairs:
        beyond = _MOST_SAMPLES if spare >= _MOST_SAMPLES else usual
        row = (
            measure_pair(pair, limit=limit_for(pair), samples=usual, samples_beyond=beyond, worst=_WORST_ELEMENTS)
            if elements
            else measure_pair(pair, limit=limit_for(pair))
        )
        spare -= max(len(row.samples) - usual, 0)
        rows.append(row)
        done += pair.reference.nbytes + pair.candidate.nbytes
        if progress is not None:
            progress(done, total)
    structural = tuple(dict.fromkeys(entry.key.path for entry in pairing.structural))
    return Comparison(tuple(rows), _unmatched(pairing), pairing.notes, structural)


def measure_pair(
    pair: Pair, *, limit: float | None = None, samples: int = 0, samples_beyond: int = 0, worst: int = 0
) -> Compared:
    """One pair measured, or the reason why it cannot be.

    Keeps up to `samples` elements of both sides (`samples_beyond` when something is beyond the limit), and up to
    `worst` of those that differ most.
    """
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
    measurement = measure_arrays(ours, theirs, limit=limit)
    # Without a limit at hand a difference well above float32 rounding is the one that people will look at.
    far = measurement.beyond_limit if limit is not None else measurement.rel_l2 > _WORTH_A_PICTURE
    outside = bool(far or measurement.nonfinite_mismatched)
    look = not measurement.identical and (outside or measurement.count <= _SMALL)
    return Compared(
        **facts,
        measurement=measurement,
        samples=samples_of(ours, theirs, most=max(samples, samples_beyond) if outside else samples),
        worst_elements=worst_elements(ours, theirs, most=worst) if look else (),
    )


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
