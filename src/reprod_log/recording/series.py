"""Series: the same quantity over the steps of a run, found by the names of its entries."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from reprod_log.recording.key import Key

# Longer ones are no counts, and Python refuses to read numbers of thousands of digits.
_NUMBER = re.compile(r"\d{1,18}")


def series(keys: Iterable[str]) -> dict[str, tuple[tuple[int, str], ...]]:
    """Keys that differ only in their step, under a common name, each with its step in ascending order.

    Structured keys (`step3/loss/loss`) have a step; in a classic name (`loss_3`, `step_100_linear_lr`) it is the number
    that changes while the rest stays, the last one if several do. A key like no other is a series of one.
    """
    groups: dict[tuple[str, str], dict[str, int]] = {}
    for text in keys:
        for front, step, back in _readings(text):
            groups.setdefault((front, back), {})[text] = step
    best: dict[str, tuple[str, str]] = {}
    for group, members in groups.items():
        for text in members:
            if text not in best or _rank(group, groups) > _rank(best[text], groups):
                best[text] = group
    found: dict[str, list[tuple[int, str]]] = {}
    for text, (front, back) in best.items():
        name = f"{front}*{back}" if (front, back) != (text, "") and not Key.parse(text).phase else front
        found.setdefault(name, []).append((groups[front, back][text], text))
    return {name: tuple(sorted(rows)) for name, rows in found.items()}


def _readings(text: str) -> Iterable[tuple[str, int, str]]:
    """Each way to read a key as something before, a step, and something after."""
    key = Key.parse(text)
    if key.phase:
        yield str(replace(key, step=0)).replace("step0/", "", 1), key.step or 0, ""
        return
    numbers = list(_NUMBER.finditer(text))
    for number in numbers:
        yield text[: number.start()], int(number.group()), text[number.end() :]
    if not numbers:
        yield text, 0, ""


def _rank(group: tuple[str, str], groups: dict[tuple[str, str], dict[str, int]]) -> tuple[int, int]:
    return len(groups[group]), len(group[0])
