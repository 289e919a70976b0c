"""Pairs by order: the best alignment of two sequences of units, held by those that were decided before."""

from collections.abc import Mapping, Sequence

from reprod_log.pairing.alignment import best_alignment
from reprod_log.pairing.unit import BARE, Unit
from reprod_log.pairing.weight_map import UnitPair
from reprod_log.pairing.wording import closeness

# An anchor (a pair already decided by name) must outweigh any pairing across it in a model of realistic depth.
_ANCHOR = 16.0
_FITS = 1.0
_FITS_PARTLY = 0.3
# Wording decides only between otherwise equal pairings, so it must stay small beside _FITS.
_WORDING = 0.05


def match_order(
    sources: Sequence[Unit], targets: Sequence[Unit], decided: Mapping[str, str], *, how: str
) -> list[UnitPair]:
    """New pairs from the best alignment of the two sequences; `decided` maps source to target paths paired before."""
    bound = set(decided.values())
    pairs = best_alignment(sources, targets, lambda unit, other: _score(unit, other, decided, bound))
    return [UnitPair(unit, other, how) for unit, other in pairs if unit.path not in decided]


def _score(unit: Unit, other: Unit, decided: Mapping[str, str], bound: set[str]) -> float:
    if unit.path in decided or other.path in bound:
        return _ANCHOR if decided.get(unit.path) == other.path else 0.0
    if unit.kind != other.kind or unit.kind == BARE:
        return 0.0
    if unit.fits(other):
        return _FITS + _WORDING * closeness(unit.path, other.path)
    return _FITS_PARTLY if unit.fits_partly(other) else 0.0
