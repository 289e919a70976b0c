"""Pairs by order and by structure: sequences of units laid side by side, units of one signature distinguished by names.

Order is that of registration or of execution, held by the pairs that were decided before. Shape alone never decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from reprod_log.messages import message
from reprod_log.pairing.names import affine_role, attention_role, closeness, numbers, plain
from reprod_log.pairing.units import BARE, PairedBy, Signature, Unit, UnitPair, single

# An anchor (a pair already decided by name) must outweigh any pairing across it in a model of realistic depth.
_ANCHOR = 16.0
_FITS = 1.0
_FITS_PARTLY = 0.3
# Wording decides only between otherwise equal pairings, so it must stay small beside _FITS.
_WORDING = 0.05
# Neighbours decide between pairings of equally many tensors, and say more than wording.
_NEIGHBOUR = 0.15

Ours = TypeVar("Ours")
Theirs = TypeVar("Theirs")


def best_alignment(
    ours: Sequence[Ours], theirs: Sequence[Theirs], score: Callable[[Ours, Theirs], float]
) -> list[tuple[Ours, Theirs]]:
    """The pairs, in order and none crossing another, with the largest sum of scores; a score of 0 is no pair."""
    table = [[0.0] * (len(theirs) + 1)]
    for one in ours:
        above, row = table[-1], [0.0]
        for place, other in enumerate(theirs):
            together = score(one, other)
            row.append(max(above[place + 1], row[place], above[place] + together if together else 0.0))
        table.append(row)
    pairs = []
    i, j = len(ours), len(theirs)
    while i and j:
        if table[i][j] == table[i - 1][j]:
            i -= 1
        elif table[i][j] == table[i][j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((ours[i], theirs[j]))
    return pairs[::-1]


def match_order(
    sources: Sequence[Unit], targets: Sequence[Unit], decided: Mapping[str, str], *, how: PairedBy
) -> list[UnitPair]:
    """New pairs from the best alignment of the two sequences; `decided` maps source to target paths paired before."""
    bound = set(decided.values())

    def score(unit: Unit, other: Unit) -> float:
        return _unit_score(unit, other, decided, bound)

    if len(sources) == len(targets):
        # One by one all fit: no other alignment has as many pairs, and a table of thousands would take minutes.
        straight = list(zip(sources, targets, strict=True))
        if all(score(*pair) >= _FITS for pair in straight):
            return roles_together([UnitPair(one, other, how) for one, other in straight if one.path not in decided])
    pairs = best_alignment(sources, targets, score)
    return roles_together([UnitPair(one, other, how) for one, other in pairs if one.path not in decided])


def _unit_score(unit: Unit, other: Unit, decided: Mapping[str, str], bound: set[str]) -> float:
    if unit.path in decided or other.path in bound:
        return _ANCHOR if decided.get(unit.path) == other.path else 0.0
    if unit.kind != other.kind or unit.kind == BARE:
        return 0.0
    if unit.fits(other):
        return _FITS + _WORDING * closeness(unit.path, other.path)
    return _FITS_PARTLY if unit.fits_partly(other) else 0.0


def roles_together(pairs: Sequence[UnitPair]) -> list[UnitPair]:
    """The pairs, those that make queries, keys and values one after the other put together by role.

    In which order these are called (or registered) is each author's own.
    """
    groups: list[list[UnitPair]] = []
    for pair in pairs:
        if groups and all(_tells_apart(pair, one) for one in groups[-1]):
            groups[-1].append(pair)
        else:
            groups.append([pair])
    return [pair for group in groups for pair in by_role(group)]


def _tells_apart(one: UnitPair, other: UnitPair) -> bool:
    """Whether the units of two pairs have one signature and, on both sides, roles that are not the same."""
    sides = (one.source, other.source), (one.target, other.target)
    roles = [{attention_role(unit.path) for unit in side} for side in sides]
    return one.source.signature == other.source.signature and all(len(two - {None}) == 2 for two in roles)


def by_role(pairs: Sequence[UnitPair]) -> list[UnitPair]:
    """The pairs with the same roles together, if names tell all of them apart on both sides; else as they are."""
    sources = {attention_role(pair.source.path): pair.source for pair in pairs}
    roles = [attention_role(pair.target.path) for pair in pairs]
    if None in sources or len(sources) < len(pairs) or set(roles) != set(sources):
        return list(pairs)
    return [replace(pair, source=sources[role]) for pair, role in zip(pairs, roles, strict=True)]


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
    source_ends = _numbered_ends(source_ends, (*sources, *(pair.source for pair in pairs)))
    target_ends = _numbered_ends(target_ends, (*targets, *(pair.target for pair in pairs)))
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


def _numbered_ends(ends: Mapping[str, int], units: Iterable[Unit]) -> dict[str, int]:
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
    pairs = best_alignment(ours, theirs, lambda one, other: _loose_score(one, other, windows[one.place], anchors))
    return [UnitPair(one.unit, other.unit, "execution order") for one, other in pairs]


def _window(span: Span, anchors: Collection[tuple[int, int]]) -> tuple[float, float]:
    """Where on the other side the partner may lie: after what ended before, before what ended after."""
    first = max((other for place, other in anchors if place < span.start), default=float("-inf"))
    last = min((other for place, other in anchors if place > span.end), default=float("inf"))
    return first, last


def _loose_score(
    one: _Loose, other: _Loose, window: tuple[float, float], anchors: Collection[tuple[int, int]]
) -> float:
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


@dataclass(frozen=True)
class Ambiguity:
    """Units that fit each other equally well, with nothing to tell them apart."""

    sources: tuple[Unit, ...]
    targets: tuple[Unit, ...]


def match_structure(sources: Iterable[Unit], targets: Iterable[Unit]) -> tuple[list[UnitPair], list[Ambiguity]]:
    """Pairs of units that only fit each other, or whose numbers and roles agree; and the groups left undecided."""
    here, there = by_signature(sources), by_signature(targets)
    pairs: list[UnitPair] = []
    open_groups: list[Ambiguity] = []
    for signature, group in here.items():
        partners = there.get(signature, [])
        if not partners:
            continue
        if signature[0] == BARE:
            pairs += _close_names(group, partners)
        elif len(group) == len(partners) == 1:
            pairs.append(UnitPair(group[0], partners[0], "only fit"))
        else:
            found = _by_numbers(group, partners)
            pairs += found
            if not found:
                open_groups.append(Ambiguity(tuple(group), tuple(partners)))
    return pairs, open_groups


def match_single_tensors(sources: Iterable[Unit], targets: Iterable[Unit]) -> list[UnitPair]:
    """Pairs of one bare tensor with one tensor of a layer: same words in the same order, same shape, one dimension.

    So a decoder's bias meets a parameter `decoder_bias` where the decoder's weight is tied to the embedding on one
    side and not a layer of its own on the other. More dimensions would leave the layout open.
    """
    here = [(unit, single(unit, part)) for unit in sources for part in unit.parts if len(part.shape) == 1]
    there = [(unit, single(unit, part)) for unit in targets for part in unit.parts if len(part.shape) == 1]
    return [
        UnitPair(one, other, "close name")
        for unit, one in here
        for partner, other in there
        if BARE in (unit.kind, partner.kind) and one.fits(other) and plain(one.path) == plain(other.path)
    ]


def lone_bare_units(sources: Iterable[Unit], targets: Iterable[Unit]) -> list[UnitPair]:
    """Bare tensors that are the only ones of their shape on either side: a guess that needs proof by values."""
    here, there = by_signature(sources), by_signature(targets)
    return [
        UnitPair(group[0], there[signature][0], "only fit", message("note.transfer.by_shape"))
        for signature, group in here.items()
        if signature[0] == BARE and len(group) == len(there.get(signature, [])) == 1
    ]


def by_signature(units: Iterable[Unit]) -> dict[Signature, list[Unit]]:
    """The units that fit each other, in their order."""
    groups: defaultdict[Signature, list[Unit]] = defaultdict(list)
    for unit in units:
        groups[unit.signature].append(unit)
    return groups


def _close_names(group: list[Unit], partners: list[Unit]) -> list[UnitPair]:
    """Bare tensors of one shape whose names share words, where no other pairing is as good."""
    pairs = []
    for unit in group:
        scores = {other.path: _name_score(unit, other) for other in partners}
        best = max(scores.values())
        winners = [other for other in partners if scores[other.path] == best]
        if best < 0.3 or len(winners) > 1:
            continue
        rivals = [one for one in group if _name_score(one, winners[0]) >= best]
        if len(rivals) == 1:
            pairs.append(UnitPair(unit, winners[0], "close name"))
    return pairs


def _name_score(one: Unit, other: Unit) -> float:
    if numbers(one.path) != numbers(other.path):
        return 0.0
    if plain(one.path) == plain(other.path):
        return 2.0
    last = [path.rpartition(".")[2] for path in (one.path, other.path)]
    return 1.5 if last[0] == last[1] else closeness(one.path, other.path)


def _by_numbers(group: list[Unit], partners: list[Unit]) -> list[UnitPair]:
    """Pairs in the order of the numbers in their paths, if that is also the order of registration on both sides."""
    if len(group) != len(partners):
        return []
    roles = {attention_role(unit.path) for unit in group}
    if roles != {attention_role(unit.path) for unit in partners}:
        return []
    pairs: list[UnitPair] = []
    for role in roles:
        ones = [unit for unit in group if attention_role(unit.path) == role]
        others = [unit for unit in partners if attention_role(unit.path) == role]
        if len(ones) != len(others) or not (_numbers_rise(ones) and _numbers_rise(others)):
            return []
        pairs += [UnitPair(one, other, "numbering") for one, other in zip(ones, others, strict=True)]
    return pairs


def _numbers_rise(units: list[Unit]) -> bool:
    """Whether the units' numbers rise strictly in the order of registration (a single unit needs none)."""
    keys = [numbers(unit.path) for unit in units]
    lengths = {len(key) for key in keys}
    return len(lengths) == 1 and all(one < other for one, other in pairwise(keys))
