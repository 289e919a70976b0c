"""Settings in which the two optimizers differ: kind, momentum, nesterov, decay, betas, epsilon.

It speaks when updates or the optimizer's state differ although the gradients that went in agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.updates import first_bad_update
from reprod_log.layers.optimizers import group_settings, optimizer_kind, optimizer_kinds
from reprod_log.layers.settings import same_setting
from reprod_log.recording import Key

_KINDS = {
    frozenset({"adam", "adamw"}): "Adam adds the decay to the gradient (L2, coupled), AdamW takes it off the weights "
    "(decoupled)",
}


def look(case: Case) -> Iterable[Finding]:
    if case.material is None:
        return
    bad = first_bad_update(case)
    if bad is None:
        return
    for name, ours, theirs in case.material.optimizers():
        kinds = optimizer_kind(ours), optimizer_kind(theirs)
        if kinds[0] != kinds[1]:
            extra = _KINDS.get(frozenset(kinds), "")
            yield _finding(
                f"the optimizers are of different kinds: {ours['type']} in the reference, {theirs['type']} in the "
                "candidate" + (f"; {extra}" if extra else ""),
                f"the gradients of step {bad.step} agree, the updates do not",
                f"use the same kind on both sides for {name!r}",
                bad.keys,
            )
            continue
        yield from _settings(name, kinds[0], (group_settings(ours), group_settings(theirs)), bad.step, bad.keys)


def _settings(
    name: str,
    kind: str,
    groups: tuple[list[dict[str, Any]], list[dict[str, Any]]],
    step: int,
    keys: tuple[Key, ...],
) -> Iterable[Finding]:
    ours, theirs = groups
    history = optimizer_kinds()[kind].history if kind in optimizer_kinds() else ()
    if not ours or not theirs:
        return
    for setting in sorted({key for group in (*ours, *theirs) for key in group}):
        here, there = _distinct(ours, setting), _distinct(theirs, setting)
        if not here or not there or all(any(same_setting(a, b) for b in there) for a in here):
            continue
        if setting == "weight_decay" and any(any(same_setting(a, b) for b in there) for a in here):
            # Groups with and without decay on one side and a function on the other: the values tell (update_fit).
            continue
        shown = [" and ".join(f"{value:g}" for value in values) for values in (here, there)]
        yield _finding(
            f"{setting.replace('_', ' ')} of the optimizer differs: {shown[0]} in the reference, {shown[1]} in the "
            "candidate",
            f"the gradients of step {step} agree, the updates do not"
            + (" (the first step agrees: it has no history)" if step and setting in history else ""),
            f"give the candidate's optimizer {name!r} {setting}={here[0]:g}",
            keys,
        )


def _distinct(groups: Iterable[Mapping[str, Any]], setting: str) -> list[Any]:
    return list(dict.fromkeys(group[setting] for group in groups if setting in group))


def _finding(cause: str, evidence: str, advice: str, keys: tuple[Key, ...]) -> Finding:
    return Finding(
        rule="optimizer_setting", cause=cause, evidence=evidence, confidence="consistent", advice=advice, keys=keys
    )
