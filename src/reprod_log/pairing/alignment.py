"""Two sequences laid side by side so that what stands together fits as well as possible (an edit distance)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

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
