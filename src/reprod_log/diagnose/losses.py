"""Losses by their gradients: which change of the loss turns one gradient of the outputs into the other?

For a cross entropy the gradient of the logits z is (softmax(z) - y) / n, for a binary one (sigmoid(z) - y) / n, so the
labels y follow from the reference's and hypotheses about the candidate's can be computed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from reprod_log.diagnose.material import Both
from reprod_log.pairing.values import factor, relative
from reprod_log.recording import Array

_FIT = 1e-3
_FURTHEST = 3
"""By how many places labels are tried as shifted."""


@dataclass(frozen=True)
class Said:
    """What differs, the numbers that speak for it, and what to do."""

    cause: str
    evidence: str
    advice: str


def explain_loss(outputs: Array, gradients: Both, tokens: Iterable[Array] = ()) -> Said | None:
    """The change that fits the gradients; `tokens` are the integer inputs, which labels may be taken from."""
    if outputs.ndim >= 2 and outputs.shape[-1] > 1:
        said = _cross_entropy(outputs, gradients, tokens)
        if said is not None:
            return said
    return _binary(outputs, gradients) or _regression(gradients)


@dataclass(frozen=True)
class _Labels:
    """The labels of a cross entropy, read off its gradient."""

    places: Array
    """The class of each row."""
    living: Array
    """Which rows count."""
    scale: float

    def hot(self, classes: int) -> Array:
        found = np.zeros((len(self.places), classes))
        found[np.arange(len(self.places)), self.places] = 1
        return found * self.living[:, None]


def _cross_entropy(outputs: Array, gradients: Both, tokens: Iterable[Array]) -> Said | None:
    classes = outputs.shape[-1]
    z, ours, theirs = (one.reshape(-1, classes) for one in (outputs, *gradients))
    soft = _softmax(z)
    here = _labels(soft, ours)
    if here is None:
        return None
    there = _labels(soft, theirs)
    if there is not None:
        return _other_labels(outputs.shape[:-1], here, there, tokens)
    return (
        _smoothing(soft, here, ours, theirs)
        or _softmax_twice(soft, here, theirs)
        or _weighted_rows(ours, theirs)
        or _temperature(z, here, theirs)
    )


def _labels(soft: Array, gradients: Array) -> _Labels | None:
    """The labels y of s (softmax - y) with y of zeros and ones; None when it is no cross entropy."""
    places = gradients.argmin(-1)
    rows = np.arange(len(soft))
    living = np.abs(gradients).sum(-1) > 0
    if not living.any():
        return None
    ratios = gradients[rows, places][living] / (soft[rows, places][living] - 1)
    found = _Labels(places, living, float(np.median(ratios)))
    made = (soft * living[:, None] - found.hot(soft.shape[-1])) * found.scale
    return found if found.scale and relative(gradients, made) < _FIT else None


def _smoothing(soft: Array, here: _Labels, ours: Array, theirs: Array) -> Said | None:
    classes = soft.shape[-1]
    labels = soft - ours / here.scale
    moved = (ours - theirs) / here.scale
    smooth = float(np.vdot(labels - 1 / classes, moved) / np.vdot(labels - 1 / classes, labels - 1 / classes))
    if abs(smooth) <= 1e-6 or relative((labels - 1 / classes) * smooth, moved) >= _FIT:
        return None
    return Said(
        f"label smoothing of {abs(smooth):.4g} on one side",
        f"the gradients of the logits differ by {abs(smooth):.4g} × (label - 1/{classes})",
        "use the same label_smoothing on both sides",
    )


def _softmax_twice(soft: Array, here: _Labels, theirs: Array) -> Said | None:
    inner = _softmax(soft) - here.hot(soft.shape[-1])
    twice = soft * (inner - (inner * soft).sum(-1, keepdims=True)) * here.scale
    if relative(twice, theirs) >= _FIT:
        return None
    return Said(
        "softmax is applied twice (before a cross entropy that has its own)",
        "its gradient is that of cross entropy of softmax(logits)",
        "give the loss the logits, or use_softmax=False (NLL of log-probabilities)",
    )


def _temperature(z: Array, here: _Labels, theirs: Array) -> Said | None:
    """The logits divided by a number: found by trying, since the gradient is no simple function of it."""
    hot = here.hot(z.shape[-1])

    def error(power: float) -> float:
        made = _softmax(z * np.exp(-power)) * here.living[:, None] - hot
        scale = float(np.vdot(made, theirs)) / float(np.vdot(made, made) or 1.0)
        return float(np.linalg.norm(theirs - scale * made))

    powers = np.linspace(-np.log(20), np.log(20), 241)
    place = int(np.argmin([error(float(one)) for one in powers]))
    low, high = float(powers[max(place - 1, 0)]), float(powers[min(place + 1, len(powers) - 1)])
    for _ in range(60):
        third = (high - low) / 3
        low, high = (low, high - third) if error(low + third) < error(high - third) else (low + third, high)
    if error((low + high) / 2) >= _FIT * float(np.linalg.norm(theirs)):
        return None
    return Said(
        f"the logits are divided by {float(np.exp((low + high) / 2)):.4g} first (a temperature)",
        "with that temperature the gradient is that of a cross entropy of the same labels",
        "use the same temperature or logit scale on both sides",
    )


def _weighted_rows(ours: Array, theirs: Array) -> Said | None:
    rows = [factor(one, other, within=_FIT) for one, other in zip(ours, theirs, strict=True) if one.any()]
    if len(rows) < 2 or any(row is None for row in rows):
        return None
    return Said(
        "the samples have other weights (class weights, or labels ignored on one side)",
        f"the gradient of each sample has a ratio of its own: {', '.join(f'{row:.3g}' for row in rows[:4] if row)}",
        "use the same class weights and the same ignore_index",
    )


def _other_labels(shape: tuple[int, ...], here: _Labels, there: _Labels, tokens: Iterable[Array]) -> Said | None:
    """Both are plain cross entropies: of other labels, in other places, or of other rows."""
    both = here.living & there.living
    same = int((here.places[both] == there.places[both]).sum())
    if same == both.sum():
        extra = int((here.living != there.living).sum())
        if not extra:
            return None
        return Said(
            "some predictions count on one side only (ignored labels, a padding mask, a part that is cut off)",
            f"{extra} of {len(here.living)} do, and the others have the same labels",
            "use the same ignore_index and mask, and cut the same positions off",
        )
    ours, theirs = (np.where(one.living, one.places, -1).reshape(shape) for one in (here, there))
    shift = _shift(ours, theirs) if len(shape) > 1 else None
    if shift is None:
        return Said(
            "it is computed against other labels",
            f"by the gradients {int(both.sum()) - same} of {int(both.sum())} labels differ",
            "feed both losses the same labels in the same order",
        )
    places = [_ahead(one, tokens) for one in (ours, theirs)]
    known = places[0] is not None and places[1] is not None
    return Said(
        f"its labels are shifted by {abs(shift)} along the sequence, {'back' if shift > 0 else 'ahead'}",
        f"by the gradients the reference is asked for the token at t{places[0]:+d}, the candidate at t{places[1]:+d}"
        if known
        else f"by the gradients the labels are the same {abs(shift)} apart",
        "shift once, in the model or in the loss: logits[:, :-1] against labels[:, 1:]",
    )


def _shift(ours: Array, theirs: Array) -> int | None:
    """By how many places the candidate's labels come later along the last axis; None when they are no shift."""
    for by in sorted((one for one in range(-_FURTHEST, _FURTHEST + 1) if one), key=abs):
        left, right = (ours[..., :-by], theirs[..., by:]) if by > 0 else (ours[..., -by:], theirs[..., :by])
        both = (left >= 0) & (right >= 0)
        if both.sum() >= 4 and (left[both] == right[both]).all():
            return by
    return None


def _ahead(labels: Array, tokens: Iterable[Array]) -> int | None:
    """How many places ahead of its position each label stands in the model's own input."""
    for given in tokens:
        if given.shape == labels.shape:
            for by in sorted(range(-_FURTHEST, _FURTHEST + 1), key=abs):
                if by == 0:
                    left, right = labels, given
                else:
                    left, right = (
                        (labels[..., :-by], given[..., by:]) if by > 0 else (labels[..., -by:], given[..., :by])
                    )
                if (left >= 0).sum() >= 4 and (left == right)[left >= 0].all():
                    return by
    return None


def _binary(outputs: Array, gradients: Both) -> Said | None:
    z, ours, theirs = (one.reshape(-1) for one in (outputs, *gradients))
    likely = 1 / (1 + np.exp(-z))
    labels = (ours < 0).astype(np.float64)
    if not 0 < labels.sum() < labels.size or factor(likely - labels, ours, within=_FIT) is None:
        return None
    slope = likely * (1 - likely)
    for made, cause in (
        (slope * (1 / (1 + np.exp(-likely)) - labels), "sigmoid is applied twice (before a loss that has its own)"),
        (slope * (likely - labels), "a squared error of sigmoid(logits) in place of a binary cross entropy"),
        (z - labels, "a squared error of the logits in place of a binary cross entropy"),
    ):
        if factor(made, theirs, within=_FIT) is not None:
            return Said(
                cause, "the gradient of the logits is that of this loss", "use the same loss on the same values"
            )
    weights = [factor(ours[labels == one], theirs[labels == one], within=_FIT) for one in (0, 1)]
    if weights[0] and weights[1]:
        return Said(
            f"positive labels weigh {weights[1] / weights[0]:.4g} times as much as in the reference (pos_weight)",
            "the gradients of positive and of negative labels have one ratio each",
            "use the same pos_weight on both sides",
        )
    return None


def _regression(gradients: Both) -> Said | None:
    """One side's gradient is the other's, cut at a limit: an absolute, smooth or Huber loss and a squared one."""
    ours, theirs = (one.reshape(-1) for one in gradients)
    for whole, cut, names in ((ours, theirs, ("reference", "candidate")), (theirs, ours, ("candidate", "reference"))):
        most = float(np.abs(cut).max(initial=0.0))
        beyond = np.abs(cut) > most * (1 - 1e-6)
        if not most or beyond.sum() < 2 or (np.sign(whole[beyond]) != np.sign(cut[beyond])).any():
            continue
        if beyond.all():
            kind = "an absolute error"
        elif factor(whole[~beyond], cut[~beyond], within=_FIT) is not None:
            kind = "a smooth L1 or Huber loss"
        else:
            continue
        return Said(
            f"{kind} in the {names[1]}, a squared error or the like in the {names[0]}",
            f"{int(beyond.sum())} of {cut.size} gradients of the {names[1]} have the same size",
            "use the same loss with the same beta or delta",
        )
    return None


def _softmax(z: Array) -> Array:
    powers = np.exp(z - z.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))
