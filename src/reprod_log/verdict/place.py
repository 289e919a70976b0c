"""Place: where in the program two sides first part, and where they last agreed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from reprod_log.recording import PHASES, Key
from reprod_log.verdict.status import Status

if TYPE_CHECKING:
    from reprod_log.verdict.fixed import Judgement

_LOST = {"backward": "forward", "gradient": "parameter"}
"""What a gradient belongs to: it is lost when that has a partner and the gradient has none."""


def first_divergence(judgements: Sequence[Judgement]) -> Judgement | None:
    """The earliest entry that did not pass: compared, or a gradient that one side lacks."""
    compared = next((one for one in judgements if not one.status.passed and one.status is not Status.UNMATCHED), None)
    lost = _first_lost(judgements)
    if compared is None or lost is None:
        return compared or lost
    key = compared.key
    # A layer that is wrong alone is nearer to the mistake than anything in the free run.
    return lost if not key.run and _time(lost.key) < _time(key) else compared


def last_agreement(judgements: Sequence[Judgement]) -> Judgement | None:
    """The entry that passed last before the first divergence, in the order in which the program ran."""
    first = first_divergence(judgements)
    if first is None:
        return None
    key = first.key
    if key.run == "isolated" and key.phase in ("forward", "backward"):
        # Layers alone are judged before the program as it runs, whose order is meant.
        found = _last_before(judgements, lambda other: other.path == key.path and other.phase == "forward")
        if found is not None:
            return found
    if first.status is Status.UNMATCHED:
        earlier = [one for one in judgements if _agrees(one) and _is_before(one.key, key)]
        return max(reversed(earlier), key=lambda one: _time(one.key), default=None)
    return next((one for one in reversed(judgements[: judgements.index(first)]) if _agrees(one)), None)


def _agrees(one: Judgement) -> bool:
    return one.status.passed and one.status is not Status.ACCEPTED


def _is_before(one: Key, other: Key) -> bool:
    return not one.run and _time(one) < _time(other)


def _last_before(judgements: Sequence[Judgement], is_place: Callable[[Key], bool]) -> Judgement | None:
    """What passed last in the program as it runs before a place in it."""
    last = None
    for one in judgements:
        key = one.key
        if key.run or one.status is Status.UNMATCHED:
            continue
        if is_place(key):
            return last
        if _agrees(one):
            last = one
    return last


def _first_lost(judgements: Sequence[Judgement]) -> Judgement | None:
    """The first gradient that one side lacks although both have what it belongs to: the graph is cut behind it."""
    unmatched = [one for one in judgements if one.status is Status.UNMATCHED]
    if not unmatched:
        return None
    both = {
        (key.step, key.phase, key.path)
        for one in judgements
        if one.status is not Status.UNMATCHED and not (key := one.key).run
    }
    lost = [
        one
        for one in unmatched
        if (key := one.key).phase in _LOST and not key.run and (key.step, _LOST[key.phase], key.path) in both
    ]
    return min(lost, key=lambda one: _time(one.key), default=None)


def _time(key: Key) -> tuple[int, int]:
    return key.step or 0, PHASES.index(key.phase) if key.phase in PHASES else len(PHASES)
