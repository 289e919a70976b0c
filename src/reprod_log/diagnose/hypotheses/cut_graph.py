"""A graph that is cut: outputs agree, but gradients are missing or zero before some place (detach, stop_gradient)."""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.shared_weights import shared_weights
from reprod_log.errors import counted, listed
from reprod_log.recording import Key, Recording


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None or not material.steps:
        return
    step = material.steps[0]
    failed = case.failed
    if any(key.phase in ("forward", "loss") and key.step == step for key in failed):
        return
    # A weight that the other side does not have as one of its own is no sign of a cut.
    shared = {one.separate for one in shared_weights(case)}
    for here, side in ((material.reference, "candidate"), (material.candidate, "reference")):
        there = material.candidate if side == "candidate" else material.reference
        partner = {str(a): str(b) for a, b in _keys(case, side)}
        lost = [
            entry.key.path
            for entry in here.of_run("")
            if entry.key.phase == "gradient" and entry.key.role == "raw" and entry.key.step == step
            and entry.key.path not in shared and not entry.is_zero() and not _has(there, partner.get(str(entry.key)))
        ]  # fmt: skip
        if lost:
            yield Finding(
                rule="cut_graph",
                cause=f"no gradient reaches {listed(lost, most=4)} in the {side}: the graph is cut behind it",
                evidence=(
                    f"the outputs agree and the other side has a gradient there ({counted(len(lost), 'parameter')})"
                ),
                confidence="consistent",
                advice="look for detach(), stop_gradient=True, no_grad, .numpy() or an integer cast between this layer "
                "and the loss",
                keys=tuple(map(Key, lost))[:5],
            )
            return
    partial = _partial(case, step)
    if partial is not None:
        yield partial


def _partial(case: Case, step: int) -> Finding | None:
    """Outputs agree, the loss agrees, and from some layer on (backwards) gradients do not: a branch is cut."""
    material = case.material
    wrong = {key for key in case.failed if key.step == step and key.phase == "backward" and not key.run}
    if material is None or not wrong:
        return None
    order = [pair.reference.key for pair in material.pairing.pairs if pair.reference.key in wrong]
    agreeing = [
        pair.reference.key
        for pair in material.pairing.pairs
        if pair.reference.key.phase == "backward" and pair.reference.key.step == step
        and not pair.reference.key.run and pair.reference.key not in case.failed
    ]  # fmt: skip
    if not order or not agreeing or "own" in case.states.values():
        return None
    last = agreeing[-1] if agreeing else None
    return Finding(
        rule="cut_graph",
        cause=f"the gradient of {order[0].path or 'the output'} differs in part: a branch behind it is cut or weighted "
        "differently, or its backward pass is wrong",
        evidence=f"all outputs and the loss agree; the gradient of {last.path if last else 'the loss'} still does, "
        f"{order[0].path}'s does not, and no layer alone is wrong",
        confidence="possible",
        advice=f"look at what is done with the output of {order[0].path}: is one of its uses detached?",
        keys=tuple(order)[:5],
    )


def _keys(case: Case, side: str) -> Iterable[tuple[Key, Key]]:
    assert case.material is not None
    for pair in case.material.pairing.pairs:
        both = pair.reference.key, pair.candidate.key
        yield both if side == "candidate" else (both[1], both[0])


def _has(recording: Recording, key: str | None) -> bool:
    return key is not None and key in recording and not recording[key].is_zero()
