"""Pairing: which entry of the reference belongs to which of the candidate, how that was found, and how sure it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from reprod_log.messages import Message
from reprod_log.recording import Array, Entry

if TYPE_CHECKING:
    from reprod_log.pairing.links import Crossing

How = Literal["name", "rename", "structure", "order", "value"]
CONFIDENCE: Mapping[How, float] = {"name": 1.0, "rename": 1.0, "structure": 0.9, "order": 0.8, "value": 1.0}


@dataclass(frozen=True)
class View:
    """A rearrangement of the candidate's axes that makes it comparable; never a change of values.

    `axes` is a transposition, `shape` a reshape after it; `reason` states what allowed it.
    """

    reason: Message
    axes: tuple[int, ...] | None = None
    shape: tuple[int, ...] | None = None

    def of(self, array: Array) -> Array:
        if self.axes is not None:
            array = np.transpose(array, self.axes)
        if self.shape is not None:
            array = array.reshape(self.shape)
        return array


@dataclass(frozen=True, init=False)
class Pair:
    """Two entries that should hold the same numbers."""

    reference: Entry
    candidate: Entry
    how: How = "name"
    confidence: float = 1.0
    view: View | None = None

    def __init__(
        self, reference: Entry, candidate: Entry, how: How = "name", confidence: float = 1.0, view: View | None = None
    ) -> None:
        # There are as many as entries: see Entry.
        values = self.__dict__
        values["reference"], values["candidate"] = reference, candidate
        values["how"], values["confidence"], values["view"] = how, confidence, view


@dataclass(frozen=True)
class Pairing:
    """All pairs in the reference's order, and what found no partner."""

    pairs: tuple[Pair, ...]
    only_in_reference: tuple[Entry, ...] = ()
    only_in_candidate: tuple[Entry, ...] = ()
    structural: tuple[Entry, ...] = ()
    """What only one author's way of writing has, with nothing to compare it with: outputs of modules that the
    other model does not have as modules and that hold no tensor of their own (or none that is not compared under
    another name), arguments and further outputs of inner modules, tables that are only looked up, gradients that are
    zero on one side and not there on the other. Not a failure; the report lists it."""
    notes: tuple[Message, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    """Layers that agree only against their names, where values decided."""
