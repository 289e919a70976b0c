"""An output that is its own input: logging the fake data as `logits` on both sides passes whatever the model does."""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.measure.comparison import Compared
from reprod_log.recording import Key

_INPUT_WORDS = ("input", "data", "image", "img", "ids", "fake", "label", "mask")


def look(case: Case) -> Iterable[Finding]:
    inputs = [row for row in case.rows.values() if _is_input(row.key) and _telling(row)]
    for row in case.rows.values():
        if _is_input(row.key) or not _telling(row) or row.key.phase not in ("", "forward", "loss", "metric"):
            continue
        twin = next((one for one in inputs if _same(one, row)), None)
        if twin is not None and not row.key.phase:
            yield Finding(
                rule="value_equals_input",
                kind="suspicious pass",
                cause=f"{str(row.key)!r} has the values of the input {str(twin.key)!r}",
                evidence="same shape, range, mean and deviation on both sides",
                advice="log what the model returned, not what it was given",
                keys=(row.key, twin.key),
            )


def _is_input(key: Key) -> bool:
    if key.phase:
        return key.phase == "data"
    return any(word in key.path.lower() for word in _INPUT_WORDS)


def _telling(row: Compared) -> bool:
    """Whether a few statistics identify the tensor: more than a handful of values that are not all alike."""
    return row.measurement is not None and row.measurement.count >= 8 and row.measurement.reference.std > 0


def _same(one: Compared, two: Compared) -> bool:
    if one.measurement is None or two.measurement is None or one.reference_shape != two.reference_shape:
        return False
    return (one.measurement.reference, one.measurement.candidate) == (
        two.measurement.reference,
        two.measurement.candidate,
    )
