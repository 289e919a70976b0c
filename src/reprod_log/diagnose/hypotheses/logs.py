"""Logs: tensors that were logged by hand, of which nothing is known but their names and their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import NamedTuple

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.engine import Hypothesis
from reprod_log.diagnose.finding import Finding, told
from reprod_log.diagnose.fits import ROUNDINGS, epsilon, nearness, relation
from reprod_log.errors import RecordingError
from reprod_log.messages import Name
from reprod_log.recording import Array, Entry, Key, Recording

_MOST_ENTRIES = 50
_MOST_ELEMENTS = 4_000_000
"""Larger tensors are not read for a guess at the cause."""
_GLANCE = 1_000
"""Elements that usually show whether a tensor has several values, without sorting all of it."""
_NUMERIC = "fiub"


class _Logged(NamedTuple):
    """A tensor as it was logged, in float64."""

    key: Key
    values: Array
    dtype: str


# What is under one name on the one side is under another on the other: keys that were exchanged, an input that was
# logged as an output. Or the candidate's tensor is the reference's, scaled, shifted, in another order, rounded, or with
# a function applied.


def _logs(case: Case) -> Iterable[Finding]:
    data = case.data
    failed = _failed(case)
    alone = [one.key for one in case.comparison.unmatched if one.side == "candidate" and _is_logged(one.key)]
    # Nothing is read of two logs that agree, however large they are.
    ours = list(_all_logged(data.reference)) if failed or alone else []
    for key in failed:
        pair = data.pairs.get(key)
        theirs = None if pair is None else _array(pair.candidate)
        if pair is None or theirs is None:
            continue
        twin = _twin(theirs, (one for one in ours if one.key != key))
        one = _array(pair.reference)
        if twin is not None:
            yield _under_other_key(theirs.key, twin.key)
        elif one is not None:
            yield from _related(one, theirs)
    for key in alone[:_MOST_ENTRIES]:
        found = _array(data.candidate[key])
        twin = None if found is None else _twin(found, ours)
        if twin is not None:
            yield _under_other_key(key, twin.key)


def _related(ours: _Logged, theirs: _Logged) -> Iterator[Finding]:
    dtype = max(ours.dtype, theirs.dtype, key=epsilon)
    found = relation(ours.values, theirs.values, near=nearness(ours.values, theirs.values, dtype))
    if found is not None:
        yield told("cause.logged_values", (ours.key,), key=Name(ours.key), what=found)


def _under_other_key(key: Key, twin: Key) -> Finding:
    return told("cause.logged_under_other_key", (key, twin), key=Name(key), twin=Name(twin))


def _twin(theirs: _Logged, ours: Iterable[_Logged]) -> _Logged | None:
    """The reference's tensor with the very values of one of the candidate's."""
    return next((one for one in ours if _same(one, theirs)), None) if _identifies(theirs.values) else None


def _is_logged(key: Key) -> bool:
    return not key.phase and not key.run


def _failed(case: Case) -> list[Key]:
    return [key for key in case.failed if _is_logged(key)][:_MOST_ENTRIES]


def _all_logged(recording: Recording) -> Iterator[_Logged]:
    for entry in recording.entries[:_MOST_ENTRIES]:
        if _is_logged(entry.key) and (found := _array(entry)) is not None and _identifies(found.values):
            yield found


def _array(entry: Entry) -> _Logged | None:
    if entry.detail != "full" or prod(entry.shape) > _MOST_ELEMENTS:
        return None
    try:
        array = entry.array()
    except RecordingError:
        return None
    # The narrow dtypes are not numpy's own.
    numeric = array.dtype.kind in _NUMERIC or array.dtype.isbuiltin == 2
    return _Logged(entry.key, array.astype(np.float64), entry.dtype) if numeric else None


def _identifies(values: Array) -> bool:
    """Whether two tensors with these values are hardly equal by accident."""
    return values.size >= 8 and any(np.unique(some).size > 4 for some in (values.ravel()[:_GLANCE], values))


def _same(ours: _Logged, theirs: _Logged) -> bool:
    if ours.values.size != theirs.values.size:
        return False
    size = float(np.abs(ours.values).max(initial=0.0))
    near = ROUNDINGS * epsilon(max(ours.dtype, theirs.dtype, key=epsilon)) * size
    return bool(np.allclose(ours.values.ravel(), theirs.values.ravel(), rtol=0, atol=near))


HYPOTHESES = (Hypothesis("logs", _logs),)
