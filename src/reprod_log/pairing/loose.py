"""Pairs of tensors that belong to no known layer, by where in the run they are used.

A norm written by hand, a scale after a branch, a table of position biases: their names are the author's own and their
shapes are common, but they lie between known layers, and these have partners already. A tensor held by a block may be
used anywhere while the block runs; one held by a module of its own at one place only.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from reprod_log.pairing.alignment import best_alignment
from reprod_log.pairing.unit import BARE, Unit, single
from reprod_log.pairing.weight_map import UnitPair
from reprod_log.pairing.wording import affine_role, closeness

# Neighbours and wording only decide between pairings of equally many tensors; neighbours say more.
_NEIGHBOUR = 0.15
_WORDING = 0.05


@dataclass(frozen=True)
class Span:
    """The part of a run in which something may be used: places in the order in which calls end."""

    start: int
    end: int


@dataclass(frozen=True)
class _Loose:
    unit: Unit
    span: Span
    place: int
    """In the order of registration, gains before shifts of the same module."""

    @property
    def is_point(self) -> bool:
        return self.span.start == self.span.end


def match_loose(
    sources: Iterable[Unit],
    targets: Iterable[Unit],
    pairs: Sequence[UnitPair],
    source_ends: Mapping[str, int],
    target_ends: Mapping[str, int],
) -> list[UnitPair]:
    """New pairs of single tensors; `…_ends` has the place of every module's first call in the order of ends."""
    sources, targets = tuple(sources), tuple(targets)
    source_ends = _counted(source_ends, (*sources, *(pair.source for pair in pairs)))
    target_ends = _counted(target_ends, (*targets, *(pair.target for pair in pairs)))
    anchors = {
        (source_ends[pair.source.owner], target_ends[pair.target.owner])
        for pair in pairs
        if pair.source.owner in source_ends and pair.target.owner in target_ends and pair.source.kind != BARE
    }
    here, there = _loose(sources, source_ends), _loose(targets, target_ends)
    found: list[UnitPair] = []
    # What has one place only first: what a block holds would fit beside all of its norms.
    for chosen in (lambda one: one.is_point, lambda one: True):
        done = {unit.path for pair in found for unit in (pair.source, pair.target)}
        ours = [one for one in here if chosen(one) and one.unit.path not in done]
        theirs = [one for one in there if chosen(one) and one.unit.path not in done]
        found += _in_order(ours, theirs, anchors)
    return found


def _counted(ends: Mapping[str, int], units: Iterable[Unit]) -> dict[str, int]:
    """The places of the modules that hold tensors, counted through."""
    owners = {unit.owner for unit in units}
    called = sorted((path for path in ends if path in owners), key=lambda path: ends[path])
    return {path: place for place, path in enumerate(called)}


def _loose(units: Iterable[Unit], ends: Mapping[str, int]) -> list[_Loose]:
    taken_apart = [
        unit if unit.kind == BARE else single(unit, part)
        for unit in units
        # A known layer of vectors alone (a norm, a slope) may be written by hand on the other side.
        if unit.kind == BARE or all(len(part.shape) == 1 for part in unit.parts)
        for part in unit.parts
        if not part.optional
    ]
    placed = [(unit, _span(unit.owner, ends)) for unit in taken_apart]
    called = [(unit, span) for unit, span in placed if span is not None]
    called.sort(key=lambda one: (one[1].end, one[0].owner, affine_role(one[0].path) == "shift"))
    return [_Loose(unit, span, place) for place, (unit, span) in enumerate(called)]


def _span(owner: str, ends: Mapping[str, int]) -> Span | None:
    """From the first end of a call inside the owner to its own end; None when it was not called."""
    if owner not in ends:
        return None
    inside = [end for path, end in ends.items() if not owner or path.startswith(f"{owner}.")]
    return Span(min([ends[owner], *inside]), ends[owner])


def _in_order(ours: list[_Loose], theirs: list[_Loose], anchors: Collection[tuple[int, int]]) -> list[UnitPair]:
    """The alignment of both lists with the most pairs that may be partners."""
    windows = {one.place: _window(one.span, anchors) for one in ours}
    pairs = best_alignment(ours, theirs, lambda one, other: _score(one, other, windows[one.place], anchors))
    return [UnitPair(one.unit, other.unit, "execution order") for one, other in pairs]


def _window(span: Span, anchors: Collection[tuple[int, int]]) -> tuple[float, float]:
    """Where on the other side the partner may lie: after what ended before, before what ended after."""
    first = max((other for place, other in anchors if place < span.start), default=float("-inf"))
    last = min((other for place, other in anchors if place > span.end), default=float("inf"))
    return first, last


def _score(one: _Loose, other: _Loose, window: tuple[float, float], anchors: Collection[tuple[int, int]]) -> float:
    """0: no partners; more: more alike."""
    if not one.unit.fits(other.unit) or other.span.end < window[0] or other.span.start > window[1]:
        return 0.0
    roles = affine_role(one.unit.path), affine_role(other.unit.path)
    if None not in roles and roles[0] != roles[1]:
        return 0.0
    alike = _WORDING * closeness(one.unit.path, other.unit.path)
    if one.is_point and other.is_point:
        alike += _NEIGHBOUR * sum((one.span.end + step, other.span.end + step) in anchors for step in (-1, 1))
    return 1.0 + alike
