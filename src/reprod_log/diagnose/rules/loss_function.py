"""Another loss function: the outputs agree, the loss and the gradient of the outputs do not.

For a cross entropy the gradient of the logits z is (softmax(z) - y) / n, so the labels y follow from the reference's,
and hypotheses about the candidate's can be computed: smoothed labels, a softmax before the loss, ignored rows.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.material import Both, Material, factor, relative
from reprod_log.diagnose.rules.loss_scale import uniform_ratio
from reprod_log.record import Array, Key


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None or not material.steps:
        return
    step = material.steps[0]
    failed = {Key.parse(key) for key in case.failed}
    here = {key for key in failed if key.step == step and not key.run}
    if any(key.phase in ("data", "forward") for key in failed if key.step == step):
        return
    if not any(key.phase == "loss" for key in here):
        return
    last = _last_output(material, step)
    if last is None:
        return
    path, outputs, gradients = last
    ratio = None if gradients is None else factor(*gradients, within=1e-4)
    if ratio is not None and uniform_ratio(material, step) is not None:
        # All gradients are scaled alike, which loss_scale says.
        return
    if ratio is not None:
        said: tuple[str, str, str] | None = (
            f"the term computed from {path or 'the output'} has another weight, {ratio:.6g} times the reference's",
            "its gradient is a constant times the reference's, those of other terms are not",
            "give the terms of the loss the same weights",
        )
    else:
        said = None if gradients is None else _said(outputs[0], gradients)
    yield Finding(
        rule="loss_function",
        cause=f"the candidate has another loss: {said[0] if said else 'same outputs, other value, other gradient'}",
        evidence=f"the outputs of {path or 'the model'} agree; "
        + (said[1] if said else "no constant explains the loss"),
        confidence="consistent" if said else "possible",
        advice=said[2]
        if said
        else "compare reduction, weights of the terms, smoothing, ignored labels and beta or delta",
        keys=tuple(str(key) for key in here if key.phase == "loss")[:3],
    )


def _last_output(material: Material, step: int) -> tuple[str, Both, Both | None] | None:
    """The output that the loss was computed from: the last one, with its gradient."""
    for pair in reversed(material.pairing.pairs):
        key = pair.reference.key
        if key.run or key.phase != "forward" or key.step != step or key.role.startswith("input"):
            continue
        if (both := material.best(key)) is not None:
            return key.path, both, material.best(Key(key.path, "backward", step, key.call, key.role))
    return None


def _said(logits: Array, gradients: Both) -> tuple[str, str, str] | None:
    if logits.ndim < 2:
        return None
    classes = logits.shape[-1]
    z, ours, theirs = (one.reshape(-1, classes) for one in (logits, *gradients))
    soft = _softmax(z)
    scale = _scale(soft, ours)
    if scale is None:
        return None
    labels = soft - ours / scale
    moved = (ours - theirs) / scale
    smooth = float(np.vdot(labels - 1 / classes, moved) / np.vdot(labels - 1 / classes, labels - 1 / classes))
    if abs(smooth) > 1e-6 and relative((labels - 1 / classes) * smooth, moved) < 1e-3:
        return (
            f"label smoothing of {abs(smooth):.4g} on one side",
            f"the gradients of the logits differ by {abs(smooth):.4g} × (label - 1/{classes})",
            "use the same label_smoothing on both sides",
        )
    inner = _softmax(soft)
    twice = soft * ((inner - labels) - ((inner - labels) * soft).sum(-1, keepdims=True)) * scale
    if relative(twice, theirs) < 1e-3:
        return (
            "softmax is applied twice (before a cross entropy that has its own)",
            "its gradient is that of cross entropy of softmax(logits)",
            "give the loss the logits, or use_softmax=False (NLL of log-probabilities)",
        )
    rows = [factor(one, other, within=1e-3) for one, other in zip(ours, theirs, strict=True) if one.any()]
    if len(rows) > 1 and all(row is not None for row in rows):
        return (
            "the samples have other weights (class weights, or labels ignored on one side)",
            f"the gradient of each sample has a ratio of its own: {', '.join(f'{row:.3g}' for row in rows[:4] if row)}",
            "use the same class weights and the same ignore_index",
        )
    return None


def _scale(soft: Array, gradients: Array) -> float | None:
    """The factor s in s (softmax - y) with y of zeros and ones; None when it is no cross entropy."""
    negative = gradients.argmin(-1)
    rows = np.arange(len(soft))
    living = np.abs(gradients).sum(-1) > 0
    if not living.any():
        return None
    ratios = gradients[rows, negative][living] / (soft[rows, negative][living] - 1)
    scale = float(np.median(ratios))
    labels = np.zeros_like(soft)
    labels[rows, negative] = 1
    made = (soft - labels) * scale * living[:, None]
    return scale if scale and relative(gradients, made) < 1e-3 else None


def _softmax(z: Array) -> Array:
    powers = np.exp(z - z.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))
