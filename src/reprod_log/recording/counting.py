"""Positions that count: a mask over the first axes of what a program computes, such as real tokens among padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reprod_log.errors import UsageError
from reprod_log.recording.entry import Array, Entry
from reprod_log.recording.recording import Recording

_PHASES = ("data", "forward", "backward")
"""What has positions: weights, their gradients and losses have none."""


@dataclass(frozen=True)
class Counted:
    """Reads an entry with zeros at the positions that do not count."""

    entry: Entry
    mask: Array

    def __call__(self) -> Array:
        array = self.entry.array()
        mask = self.mask.reshape(self.mask.shape + (1,) * (array.ndim - self.mask.ndim))
        return np.where(mask, array, np.zeros((), array.dtype))


def masks_of(given: Any) -> tuple[Array, ...]:
    """Masks as people give them: one for all steps, or a list with one per step."""
    masks = tuple(np.asarray(one) for one in (given if isinstance(given, list) else [given]))
    for mask in masks:
        if not mask.ndim or not np.isin(mask, (0, 1)).all():
            raise UsageError("counts is a mask of true and false (or 1 and 0), with the first axes of the tensors")
        if not mask.any():
            raise UsageError("no position counts: all of the mask is false, and nothing would be compared")
    return tuple(mask.astype(bool) for mask in masks)


def counting(recording: Recording, masks: Sequence[Array]) -> tuple[Recording, int]:
    """The recording with zeros where nothing counts, and how many of its entries have such positions.

    These are the entries whose first axes have the sizes of the mask.
    """
    entries = tuple(_counting(entry, masks) for entry in recording.entries)
    changed = sum(one is not before for one, before in zip(entries, recording.entries, strict=True))
    return replace(recording, entries=entries), changed


def _counting(entry: Entry, masks: Sequence[Array]) -> Entry:
    mask = masks[0] if len(masks) == 1 else masks[entry.key.step or 0] if (entry.key.step or 0) < len(masks) else None
    if mask is None or entry.key.phase not in _PHASES or entry.shape[: mask.ndim] != mask.shape or mask.all():
        return entry
    if entry.detail != "full":
        raise UsageError(f"{str(entry.key)!r} has no values that a mask could be laid on; record it with detail='full'")
    return replace(entry, read=Counted(entry, mask), hash="")
