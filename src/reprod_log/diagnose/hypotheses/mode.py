"""Train mode on one side and eval mode on the other: batch norms and dropouts of a model, or of a part of it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding, Mend
from reprod_log.diagnose.material import Material
from reprod_log.layers.lookup import layer_kind
from reprod_log.recording import Key

_ADVICE = "call train() (or eval()) on both models before comparing, and look for parts switched by hand"
_NAMES = {True: "train", False: "eval"}


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None or not material.steps:
        return
    for path, (ours, _) in material.layers.items():
        row = layer_kind(ours.kind)
        if row is None or not row.mode:
            continue
        what = "BatchNorm" if row.moving else "dropout"
        if not _at_fault(case, path, material.steps[0]):
            continue
        modes = _modes(material, path)
        if modes is not None and modes[0] != modes[1]:
            yield _in_another_mode(what, path, *modes)
        elif what == "dropout":
            yield from _idle(material, path)


def _at_fault(case: Case, path: str, step: int) -> bool:
    """Whether a layer is wrong by itself; without having been run alone, whether it gives other values for the same."""
    if path in case.states:
        return case.states[path] in ("own", "glue")
    given, made = (Key(path, "forward", step, 0, role) for role in ("input.0", "output"))
    return made in case.failed and given not in case.failed


def _modes(material: Material, path: str) -> tuple[bool, bool] | None:
    """Whether the layer trains, on both sides; None when that was not noted."""
    pair = material.pairs.get(Key(path, "forward", material.steps[0], 0, "output"))
    if pair is None:
        return None
    here, there = (entry.meta.get("training") for entry in (pair.reference, pair.candidate))
    return (here, there) if isinstance(here, bool) and isinstance(there, bool) else None


def _in_another_mode(what: str, path: str, ours: bool, theirs: bool) -> Finding:
    return Finding(
        rule="mode",
        cause=f"{what} {path} runs in {_NAMES[ours]} mode in the reference and in {_NAMES[theirs]} mode in the "
        "candidate",
        evidence="so the recordings note it, and its output differs for the same input",
        confidence="consistent",
        advice=_ADVICE,
        keys=(Key(path),),
        mends=(Mend(path, {"training": ours}),),
    )


def _idle(material: Material, path: str) -> Iterable[Finding]:
    given = material.values(Key(path, "forward", material.steps[0], 0, "input.0"))
    made = material.values(Key(path, "forward", material.steps[0], 0, "output"))
    if given is None or made is None:
        return
    idle = [np.array_equal(given[side], made[side]) for side in (0, 1)]
    if idle[0] != idle[1]:
        side = "candidate" if idle[1] else "reference"
        yield Finding(
            rule="mode",
            cause=f"dropout {path} does nothing in the {side}: it is in eval mode there, or its rate is 0",
            evidence="its output is its input, while the other side drops values",
            confidence="consistent",
            advice=_ADVICE,
            keys=(Key(path),),
        )
