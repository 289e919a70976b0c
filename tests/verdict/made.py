"""Measurements and evidence made by hand, so that every branch of a rule can be asked for its exact word."""

from __future__ import annotations

from typing import Any

from reprod_log.measure.comparison import Compared, Comparison
from reprod_log.measure.measurement import Measurement, SideSummary, Worst
from reprod_log.messages import Message
from reprod_log.recording import Key
from reprod_log.verdict import CalibratedPolicy, FloorEvidence, Judgement, NoiseFloor, Verdict, judge_calibrated

EPS = 2.0**-24


def english(reason: Message | str | None) -> str:
    """The sentence of a reason; '' when there is none."""
    return "" if reason is None else str(reason)


def summary(size: float = 1.0, *, nan: int = 0, inf: int = 0) -> SideSummary:
    return SideSummary(min=-size, max=size, mean=0.0, std=size, rms=size, abs_max=2 * size, nan=nan, inf=inf)


def measured(error: float = 0.0, *, size: float = 1.0, **facts: Any) -> Measurement:
    """A measurement with this error (its largest element twice that), relative to values of this size."""
    plain = Measurement(
        count=100,
        reference_dtype="float32",
        candidate_dtype="float32",
        differing=100 if error else 0,
        max_abs=2 * error,
        mean_abs=error,
        min_abs=0.0,
        rmse=error,
        max_rel=error / size if size else 0.0,
        mean_rel=error / size if size else 0.0,
        rel_l2=error / size if size else 0.0,
        cosine_distance=0.0,
        max_ulp=1.0,
        mean_ulp=1.0,
        reference=summary(size),
        candidate=summary(size),
        worst=Worst((3,), 1.0, 1.5) if error else None,
    )
    return plain._replace(**facts)


def evidence(key: str, mode: str = "", **facts: Any) -> FloorEvidence:
    return FloorEvidence(Key.parse(f"{mode}@{key}" if mode else key), mode, **facts)


def row(key: str, measurement: Measurement | None = None, **facts: Any) -> Compared:
    plain = Compared(Key.parse(key), Key.parse(key), (100,), (100,), "float32", "float32", measurement)
    return plain._replace(**facts)


def judged(
    *given: FloorEvidence, rows: tuple[Compared, ...] = (), unmatched: tuple[Any, ...] = (), **policy: Any
) -> Verdict:
    """The calibrated verdict on this evidence."""
    return judge_calibrated(Comparison(rows, unmatched), NoiseFloor(given), CalibratedPolicy(**policy))


def only(verdict: Verdict) -> Judgement:
    (one,) = verdict.judgements
    return one


def told(one: Judgement) -> tuple[str, str, str, str]:
    """Everything a judgement says but its checks."""
    return one.key, str(one.status), english(one.reason), one.evidence


def numbers(one: Judgement) -> list[tuple[str, float, float, bool, float | None]]:
    return [(check.metric, check.value, check.limit, check.passed, check.floor) for check in one.checks]
