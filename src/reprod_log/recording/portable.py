"""Entries that can go to another process or machine: each knows where to read its data there.

What was opened from a file or URL is opened again at the other end, which must see it under the same name; what exists
only in this process goes by value.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from reprod_log.recording.entry import Array, Entry, no_values
from reprod_log.recording.recording import Recording
from reprod_log.recording.stores import load

Read = Callable[[], Array]


class _FromStore:
    """Reads an entry here as it always did, and elsewhere from the recording it belongs to."""

    def __init__(self, read: Read, place: tuple[str, bool, str, str]) -> None:
        self._read = read
        self._place = place

    def __call__(self) -> Array:
        return self._read()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopening, self._place


class _ByValue:
    """Reads an entry here as it always did; when it is sent away, its values go with it."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def __call__(self) -> Array:
        return self._read()

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy: a view of a mapped file would take the whole file with it.
        return _held, (np.array(self._read()),)


def portable(recording: Recording, *, trust: bool = False) -> Recording:
    """The same recording, whose entries can be sent away."""
    if not recording.source or not recording.reopens:
        return replace(recording, entries=tuple(map(portable_entry, recording.entries)))
    # Another name for every call: what lies at the same path later may be another recording.
    ticket = os.urandom(16).hex()
    return replace(
        recording,
        entries=tuple(
            replace(entry, read=_FromStore(entry.read, (recording.source, trust, ticket, str(entry.key))))
            for entry in recording.entries
        ),
    )


def portable_entry(entry: Entry) -> Entry:
    """The same entry, whose data goes by value unless it knows better."""
    if entry.stored_as is None:
        return replace(entry, read=no_values)
    return entry if isinstance(entry.read, (_FromStore, _ByValue)) else replace(entry, read=_ByValue(entry.read))


def _reopening(source: str, trust: bool, ticket: str, key: str) -> Read:
    place = (source, trust, ticket, key)
    return _FromStore(lambda: _opened(source, trust, ticket)[key].read(), place)


def _held(array: Array) -> Read:
    return _ByValue(lambda: array)


@lru_cache(maxsize=4)
def _opened(source: str, trust: bool, ticket: str) -> Recording:
    """The recording, opened once in this process for all entries that came with the same ticket."""
    return load(source, trust=trust)
