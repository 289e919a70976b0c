"""Another loss function: the outputs agree, the loss and the gradient of the outputs do not."""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.hypotheses.loss_scale import uniform_ratio
from reprod_log.diagnose.losses import Said, explain_loss
from reprod_log.diagnose.material import Both, Material, other_factor, shown_ratio
from reprod_log.pairing.values import relative
from reprod_log.recording import Array, Key

_SAME = 1e-6
"""Of its size, in float64: the gradient of a term that is the same on both sides."""


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None or not material.steps:
        return
    step = material.steps[0]
    failed = case.failed
    here = [key for key in failed if key.step == step and not key.run]
    if any(key.phase in ("data", "forward") for key in failed if key.step == step):
        return
    if not any(key.phase == "loss" for key in here):
        return
    last = _last_output(material, step)
    if last is None:
        return
    path, outputs, gradients = last
    ratio = None if gradients is None else other_factor(*gradients, within=1e-4)
    if ratio is not None and uniform_ratio(material, step) is not None:
        # All gradients are scaled alike, which loss_scale says.
        return
    if ratio is not None:
        said: Said | None = Said(
            f"the term computed from {path or 'the output'} has another weight, {shown_ratio(ratio)} times the "
            "reference's",
            "its gradient is a constant times the reference's, those of other terms are not",
            "give the terms of the loss the same weights",
        )
    else:
        said = None if gradients is None else explain_loss(outputs[0], gradients, _tokens(material, step))
    yield Finding(
        rule="loss_function",
        cause=f"the candidate has another loss: {said.cause if said else 'same outputs, other value, other gradient'}",
        evidence=f"the outputs of {path or 'the model'} agree; "
        + (said.evidence if said else "no constant explains the loss"),
        confidence="consistent" if said else "possible",
        advice=said.advice
        if said
        else "compare reduction, weights of the terms, smoothing, ignored labels and beta or delta",
        keys=tuple(key for key in here if key.phase == "loss")[:3],
    )


def _last_output(material: Material, step: int) -> tuple[str, Both, Both | None] | None:
    """The output that the loss was computed from, with its gradient: the last one whose gradient differs."""
    last = None
    for pair in reversed(material.pairing.pairs):
        key = pair.reference.key
        if key.run or key.phase != "forward" or key.step != step or key.role.startswith("input"):
            continue
        if (both := material.best(key)) is not None:
            gradients = material.best(Key(key.path, "backward", step, key.call, key.role))
            last = last or (key.path, both, gradients)
            if gradients is not None and relative(*gradients) > _SAME:
                return key.path, both, gradients
    # No gradient of an output differs: the loss itself does.
    return last


def _tokens(material: Material, step: int) -> list[Array]:
    """The integer inputs of the model: a language model's labels are taken from them."""
    found = (
        material.values(pair.reference.key) for pair in material.pairing.pairs if _is_data(pair.reference.key, step)
    )
    return [both[0] for both in found if both is not None]


def _is_data(key: Key, step: int) -> bool:
    return key.phase == "data" and key.step == step and not key.run
