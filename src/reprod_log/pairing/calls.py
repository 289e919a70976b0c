"""Which call of a layer is which call of its partner, when the two models call it in another order or another way.

A shared tower may be run on the second input first, or once on both inputs together; an embedding word by word or on
the whole sentence; an expert on its own rows or on all of them. The same numbers then come in other calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from reprod_log.pairing.values import ANOTHER, SAME, gap
from reprod_log.recording import Array, Entry, Recording

_MOST_PAIRS_OF_ROWS = 4_000_000
_DIRECTIONS = 8


@dataclass(frozen=True)
class CallOrder:
    """How the calls of paired modules go together; paths are the reference's."""

    exchanged: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """The candidate's call for each of the reference's, where the order is another one."""
    rearranged: frozenset[str] = frozenset()
    """Layers whose calls hold the same rows, or a part of them, in another number of calls or other shapes."""
    unlike: frozenset[str] = frozenset()
    """Layers called another number of times, or on other shapes, for which that could not be shown."""


def order_calls(reference: Recording, candidate: Recording, modules: Mapping[str, str]) -> CallOrder:
    """The order of calls, judged by what the modules (path to partner) gave in the first step."""
    ours, theirs = _outputs(reference), _outputs(candidate)
    exchanged: dict[str, Mapping[int, int]] = {}
    rearranged: set[str] = set()
    unlike: set[str] = set()
    for path, partner in modules.items():
        here, there = ours.get(path, []), theirs.get(partner, [])
        if not here or not there:
            continue
        if _sizes(here) != _sizes(there):
            (rearranged if _same_rows(here, there) else unlike).add(path)
        elif len(here) > 1 and (order := _order(here, there)) is not None:
            exchanged[path] = order
    return CallOrder(exchanged, frozenset(rearranged), frozenset(unlike))


def _sizes(entries: list[Entry]) -> list[list[int]]:
    """The shapes, whatever the order of axes: layers may keep channels or time in another place."""
    return sorted(sorted(entry.shape) for entry in entries)


def _outputs(recording: Recording) -> dict[str, list[Entry]]:
    """The first output of every call in the first step, by module."""
    step = min(recording.steps, default=None)
    found: dict[str, list[Entry]] = {}
    for entry in recording.entries:
        key = entry.key
        if key.phase == "forward" and not key.run and key.step == step and key.role in ("output", "output.0"):
            found.setdefault(key.path, []).append(entry)
    return found


def _order(ours: list[Entry], theirs: list[Entry]) -> Mapping[int, int] | None:
    """The other order in which all calls agree; None when they agree as they come, or in no order."""
    if any(entry.detail == "summary" for entry in (*ours, *theirs)):
        return None
    if all(gap(one, other) <= ANOTHER for one, other in zip(ours, theirs, strict=True)):
        return None
    left = list(theirs)
    order: dict[int, int] = {}
    for one in ours:
        partner = next((other for other in left if gap(one, other) < SAME), None)
        if partner is None or one.key.call is None or partner.key.call is None:
            return None
        left.remove(partner)
        order[one.key.call] = partner.key.call
    return order


def _same_rows(ours: list[Entry], theirs: list[Entry]) -> bool:
    """Whether the rows (along the last axis) of one side are all found among those of the other."""
    entries = (*ours, *theirs)
    if any(entry.detail != "full" or not entry.shape for entry in entries):
        return False
    if len({entry.shape[-1] for entry in entries}) > 1 or not all(entry.dtype.startswith("float") for entry in entries):
        return False
    few, many = sorted((_directions(ours), _directions(theirs)), key=len)
    if len(few) and len(few) == len(many):
        few, many = np.sort(few, axis=0), np.sort(many, axis=0)
        return bool(np.linalg.norm(few - many) <= SAME * np.linalg.norm(many))
    if not len(few) or len(few) * len(many) > _MOST_PAIRS_OF_ROWS:
        return False
    nearest = np.array([np.min(np.linalg.norm(many - row, axis=1)) for row in few])
    return bool(np.all(nearest <= SAME * np.sqrt(np.mean(np.square(many)))))


def _directions(entries: list[Entry]) -> Array:
    """Every row by its components along a few random directions, which tell rows apart as well as the rows do."""
    width = entries[0].shape[-1]
    towards = np.random.default_rng(0).standard_normal((width, min(width, _DIRECTIONS)))
    return np.concatenate([entry.array().astype(np.float64).reshape(-1, width) @ towards for entry in entries])
