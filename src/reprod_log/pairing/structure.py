"""Structure: units that only fit each other, or that their names and numbers tell apart, with no run to show more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from reprod_log.pairing.names import attention_role, closeness, numbers, plain
from reprod_log.pairing.units import BARE, Signature, Unit, UnitPair, single


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
