"""Pairs by order: two sequences of units laid side by side so that as many as possible fit (an edit distance)."""

from collections.abc import Mapping, Sequence

from reprod_log.transfer.matching.wording import closeness
from reprod_log.transfer.plan import UnitPair
from reprod_log.transfer.unit import BARE, Unit

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
    scores = _alignment_scores(sources, targets, decided)
    pairs = []
    i, j = len(sources), len(targets)
    while i and j:
        here = scores[i][j]
        if here == scores[i - 1][j]:
            i -= 1
        elif here == scores[i][j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            if sources[i].path not in decided:
                pairs.append(UnitPair(sources[i], targets[j], how))
    return pairs[::-1]


def _alignment_scores(
    sources: Sequence[Unit], targets: Sequence[Unit], decided: Mapping[str, str]
) -> list[list[float]]:
    bound = set(decided.values())
    table = [[0.0] * (len(targets) + 1)]
    for unit in sources:
        above, row = table[-1], [0.0]
        for j, other in enumerate(targets):
            together = _score(unit, other, decided, bound)
            diagonal = above[j] + together if together else 0.0
            row.append(max(above[j + 1], row[j], diagonal))
        table.append(row)
    return table


def _score(unit: Unit, other: Unit, decided: Mapping[str, str], bound: set[str]) -> float:
    if unit.path in decided or other.path in bound:
        return _ANCHOR if decided.get(unit.path) == other.path else 0.0
    if unit.kind != other.kind or unit.kind == BARE:
        return 0.0
    if unit.fits(other):
        return _FITS + _WORDING * closeness(unit.path, other.path)
    return _FITS_PARTLY if unit.fits_partly(other) else 0.0
