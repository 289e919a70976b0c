"""Losses: which change of the loss turns one gradient of the outputs into the other?

For a cross entropy the gradient of the logits z is (softmax(z) - y) / n, for a binary one (sigmoid(z) - y) / n, so the
labels y follow from the reference's and hypotheses about the candidate's can be computed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from reprod_log.diagnose.case import Both, Case, CaseData
from reprod_log.diagnose.engine import Hypothesis, Where
from reprod_log.diagnose.finding import Finding, What, side, told, what
from reprod_log.diagnose.fits import ROUNDINGS, epsilon, least, other_factor, shown_ratio
from reprod_log.messages import Message, Name, Number, message
from reprod_log.pairing.distance import factor, relative
from reprod_log.recording import Array, Key

_FURTHEST = 3
"""By how many places labels are tried as shifted."""


def explain_loss(outputs: Array, gradients: Both, tokens: Iterable[Array] = (), *, fit: float) -> What | None:
    """The change that fits the gradients; `tokens` are the integer inputs, which labels may be taken from.

    `fit` is how far off a gradient may be that a change predicts, relative to its size.
    """
    if outputs.ndim >= 2 and outputs.shape[-1] > 1:
        said = _cross_entropy(outputs, gradients, tokens, fit)
        if said is not None:
            return said
    return _binary(outputs, gradients, fit) or _regression(gradients, fit)


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


def _cross_entropy(outputs: Array, gradients: Both, tokens: Iterable[Array], fit: float) -> What | None:
    classes = outputs.shape[-1]
    z, ours, theirs = (one.reshape(-1, classes) for one in (outputs, *gradients))
    soft = _softmax(z)
    here = _labels(soft, ours, fit)
    if here is None:
        return None
    there = _labels(soft, theirs, fit)
    if there is not None:
        return _other_labels(outputs.shape[:-1], here, there, tokens)
    return (
        _smoothing(soft, here, (ours, theirs), fit)
        or _softmax_twice(soft, here, theirs, fit)
        or _weighted_rows(ours, theirs, fit)
        or _temperature(z, here, theirs, fit)
    )


def _labels(soft: Array, gradients: Array, fit: float) -> _Labels | None:
    """The labels y of s (softmax - y) with y of zeros and ones; None when it is not a cross entropy."""
    places = gradients.argmin(-1)
    rows = np.arange(len(soft))
    living = np.abs(gradients).sum(-1) > 0
    if not living.any():
        return None
    ratios = gradients[rows, places][living] / (soft[rows, places][living] - 1)
    found = _Labels(places, living, float(np.median(ratios)))
    made = (soft * living[:, None] - found.hot(soft.shape[-1])) * found.scale
    return found if found.scale and relative(gradients, made) < fit else None


def _smoothing(soft: Array, here: _Labels, gradients: Both, fit: float) -> What | None:
    ours, theirs = gradients
    classes = soft.shape[-1]
    labels = soft - ours / here.scale
    moved = (ours - theirs) / here.scale
    smooth = float(np.vdot(labels - 1 / classes, moved) / np.vdot(labels - 1 / classes, labels - 1 / classes))
    if abs(smooth) <= 1e-6 or relative((labels - 1 / classes) * smooth, moved) >= fit:
        return None
    return what("word.loss.smoothing", value=Number(abs(smooth), ".4g"), classes=classes)


def _softmax_twice(soft: Array, here: _Labels, theirs: Array, fit: float) -> What | None:
    inner = _softmax(soft) - here.hot(soft.shape[-1])
    twice = soft * (inner - (inner * soft).sum(-1, keepdims=True)) * here.scale
    if relative(twice, theirs) >= fit:
        return None
    return what("word.loss.softmax_twice")


def _temperature(z: Array, here: _Labels, theirs: Array, fit: float) -> What | None:
    """The logits divided by a number: found by trying, since the gradient is no simple function of it."""
    hot = here.hot(z.shape[-1])

    def error(power: float) -> float:
        made = _softmax(z * np.exp(-power)) * here.living[:, None] - hot
        scale = float(np.vdot(made, theirs)) / float(np.vdot(made, made) or 1.0)
        return float(np.linalg.norm(theirs - scale * made))

    power = least(error, np.linspace(-np.log(20), np.log(20), 241))
    if error(power) >= fit * float(np.linalg.norm(theirs)):
        return None
    return what("word.loss.temperature", value=Number(float(np.exp(power)), ".4g"))


def _weighted_rows(ours: Array, theirs: Array, fit: float) -> What | None:
    rows = [factor(one, other, within=fit) for one, other in zip(ours, theirs, strict=True) if one.any()]
    if len(rows) < 2 or any(row is None for row in rows):
        return None
    return what("word.loss.sample_weights", values=", ".join(f"{row:.3g}" for row in rows[:4] if row))


def _other_labels(shape: tuple[int, ...], here: _Labels, there: _Labels, tokens: Iterable[Array]) -> What | None:
    """Both are plain cross entropies: of other labels, in other places, or of other rows."""
    both = here.living & there.living
    same = int((here.places[both] == there.places[both]).sum())
    if same == both.sum():
        extra = int((here.living != there.living).sum())
        if not extra:
            return None
        return what("word.loss.some_count", some=extra, all=len(here.living))
    ours, theirs = (np.where(one.living, one.places, -1).reshape(shape) for one in (here, there))
    shift = _shift(ours, theirs) if len(shape) > 1 else None
    if shift is None:
        return what("word.loss.other_labels", some=int(both.sum()) - same, all=int(both.sum()))
    left, right = (_ahead(one, tokens) for one in (ours, theirs))
    return What(
        "word.loss.shifted_back" if shift > 0 else "word.loss.shifted_ahead",
        {"by": abs(shift)},
        (message("evidence.loss.tokens_asked_for", ours=Number(left, "+d"), theirs=Number(right, "+d")),)
        if left is not None and right is not None
        else (message("evidence.loss.labels_apart", by=abs(shift)),),
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


def _binary(outputs: Array, gradients: Both, fit: float) -> What | None:
    z, ours, theirs = (one.reshape(-1) for one in (outputs, *gradients))
    likely = 1 / (1 + np.exp(-z))
    labels = (ours < 0).astype(np.float64)
    if not 0 < labels.sum() < labels.size or factor(likely - labels, ours, within=fit) is None:
        return None
    slope = likely * (1 - likely)
    for made, cause in (
        (slope * (1 / (1 + np.exp(-likely)) - labels), "word.loss.sigmoid_twice"),
        (slope * (likely - labels), "word.loss.squared_of_sigmoid"),
        (z - labels, "word.loss.squared_of_logits"),
    ):
        if factor(made, theirs, within=fit) is not None:
            return what(cause)
    weights = [factor(ours[labels == one], theirs[labels == one], within=fit) for one in (0, 1)]
    if weights[0] and weights[1]:
        return what("word.loss.positive_weight", times=Number(weights[1] / weights[0], ".4g"))
    return None


def _regression(gradients: Both, fit: float) -> What | None:
    """One side's gradient is the other's, cut at a limit: an absolute, smooth or Huber loss and a squared one."""
    ours, theirs = (one.reshape(-1) for one in gradients)
    for whole, cut, names in ((ours, theirs, ("reference", "candidate")), (theirs, ours, ("candidate", "reference"))):
        most = float(np.abs(cut).max(initial=0.0))
        beyond = np.abs(cut) > most * (1 - 1e-6)
        if not most or beyond.sum() < 2 or (np.sign(whole[beyond]) != np.sign(cut[beyond])).any():
            continue
        if beyond.all():
            kind = "word.loss.absolute"
        elif factor(whole[~beyond], cut[~beyond], within=fit) is not None:
            kind = "word.loss.huber"
        else:
            continue
        return what(kind, side=side(names[1]), other=side(names[0]), some=int(beyond.sum()), all=cut.size)
    return None


def _softmax(z: Array) -> Array:
    powers = np.exp(z - z.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


# A loss that is the reference's times a constant: a sum for a mean, ignored labels counted, accumulation. The outputs
# agree, and every gradient has the same ratio. With clipping by norm or with Adam the updates then agree, so nothing
# later in the training shows it.


def _loss_scale(case: Case) -> Iterable[Finding]:
    data = case.data
    first = data.steps[0]
    failed = case.failed
    if any(key.phase == "forward" and key.step == first for key in failed):
        return
    if not any(key.phase in ("loss", "gradient", "backward") and key.step == first and not key.run for key in failed):
        return
    ratio = _scale(data, first)
    if ratio is None or abs(ratio - 1) < _UNSCALED:
        return
    judged = [key for key in case.judgements if key.phase == "loss" and key.step == first and not key.run]
    same_loss = bool(judged) and all(case.judgements[key].status.passed for key in judged)
    known = _known_number(data, ratio)
    yield told(
        "cause.loss_scale" if known is None else "cause.loss_scale.known",
        [key for key in sorted(failed, key=str) if key.phase in ("loss", "backward", "gradient")][:3],
        evidence=(
            *((message("evidence.loss.itself_agrees"),) if same_loss else ()),
            *((message("evidence.loss.differs_too"),) if any(key in failed for key in judged) else ()),
        ),
        advice=_advice_on_scale(data, ratio, same_loss),
        ratio=shown_ratio(ratio),
        known=known,
    )


_UNSCALED = 1e-5
"""A ratio of gradients that is no nearer to 1 than this is another scale."""


def _scale(data: CaseData, step: int) -> float | None:
    """The ratio of all gradients. Where every part is fed with the reference's, only those of the outputs differ."""
    uniform = _uniform_ratio(data, step)
    if uniform is None or abs(uniform - 1) >= _UNSCALED:
        return uniform
    gradients = [both for key, both in data.each("backward", step) if key.path in data.roots and both[0].any()]
    ratios = [1.0 if relative(*both) <= _SAME else other_factor(*both, within=1e-4) for both in gradients]
    known = [ratio for ratio in ratios if ratio is not None]
    if not known or len(known) < len(ratios):
        return uniform
    # A term of the loss with another weight scales the gradients of its own outputs only.
    return known[0] if max(known) - min(known) <= 1e-3 * abs(known[0]) else None


def _uniform_ratio(data: CaseData, step: int) -> float | None:
    """The ratio of all gradients, if there is one; gradients that are rounding only have none and are left out."""
    found = []
    sizes = [float(abs(both[0]).max()) for _, both in data.each("gradient", step, "raw") if both[0].size]
    largest = max(sizes, default=0.0)
    for _, both in data.each("gradient", step, "raw"):
        if both[0].size and float(abs(both[0]).max()) > 1e-6 * largest:
            ratio = factor(*both, within=1e-3)
            if ratio is None:
                return None
            found.append(ratio)
    if len(found) < 2 or max(found) - min(found) > 1e-3 * abs(found[0]):
        return None
    return sorted(found)[len(found) // 2]


def _known_number(data: CaseData, ratio: float) -> Message | None:
    """What the number may be: backward passes that are added up, or what a mean divides by."""
    passes = _passes(data)
    if passes > 1 and _is_number(ratio, passes):
        return message("word.loss.passes_not_divided", passes=passes)
    if passes > 1 and _is_number(1 / ratio, passes):
        return message("word.loss.passes_divided", passes=passes)
    for key, (ours, _) in data.each("forward", data.steps[0]):
        if key.path == "" and key.role.startswith("output") and ours.ndim >= 1:
            return _counted_by(data, key, ours, ratio)
    return None


_WAYS = ("word.loss.sum_for_mean", "word.loss.mean_for_sum")
"""What a ratio that is a count means, and what its inverse."""


def _counted_by(data: CaseData, key: Key, outputs: Array, ratio: float) -> Message | None:
    rows = outputs.size // outputs.shape[-1]
    for count, noun, ways in (
        (_samples(data, outputs), "word.loss.samples", _WAYS),
        (outputs.size, "word.loss.elements_of_output", _WAYS),
        (outputs.shape[-1], "word.loss.elements_of_prediction", _WAYS),
        (rows, "word.loss.predictions", _WAYS[:1]),
    ):
        for value, way in zip((ratio, 1 / ratio), ways, strict=False):
            if count > 1 and _is_number(value, count):
                return message("word.loss.number_of", count=count, what=message(noun), way=message(way))
    gradients = data.best(Key(key.path, "backward", data.steps[0], key.call, key.role))
    living = 0 if gradients is None else int(gradients[0].reshape(rows, -1).any(-1).sum())
    for value in (ratio, 1 / ratio):
        divisor = round(living / value)
        if 0 < living < divisor <= rows and abs(living / value - divisor) < 1e-3:
            return message("word.loss.ignored_counted", some=living, all=divisor)
    return None


def _samples(data: CaseData, outputs: Array) -> int:
    """How many samples a batch has: outputs may have time first, data rarely does."""
    sizes = {int(both[0].shape[0]) for _, both in data.each("data", data.steps[0]) if both[0].ndim}
    return int(outputs.shape[0]) if len(sizes) != 1 or outputs.shape[0] in sizes else sizes.pop()


def _passes(data: CaseData) -> int:
    """How many losses a step goes back from."""
    return sum(both[0].size == 1 for _, both in data.each("loss", data.steps[0]))


def _is_number(value: float, count: int) -> bool:
    return abs(value - count) < 1e-3 * count


def _advice_on_scale(data: CaseData, ratio: float, same_loss: bool) -> Message:
    passes = _passes(data)
    if passes > 1 and any(_is_number(value, passes) for value in (ratio, 1 / ratio)):
        return message("advice.loss.divide_every_loss", passes=passes)
    return message("advice.loss.divide_and_unscale" if same_loss else "advice.loss.same_reduction")


# Another loss function: the outputs agree, the loss and the gradient of the outputs do not.

_SAME = 1e-6
"""Of its size, in float64: the gradient of a term that is the same on both sides."""


def _loss_function(case: Case) -> Iterable[Finding]:
    data = case.data
    step = data.steps[0]
    here = [key for key in case.failed if key.step == step and not key.run]
    if any(key.phase in ("data", "forward") for key in case.failed if key.step == step):
        return
    if not any(key.phase == "loss" for key in here):
        return
    last = _last_output(data, step)
    if last is None:
        return
    path, outputs, gradients = last
    ratio = None if gradients is None else other_factor(*gradients, within=1e-4)
    if ratio is not None and _scale(data, step) is not None:
        # All gradients are scaled alike, which is what loss_scale is about.
        return
    found = None
    if ratio is not None:
        term = Name(path) if path else message("word.the_output")
        found = what("word.loss.weight_of_term", path=term, ratio=shown_ratio(ratio))
    elif gradients is not None:
        size = float(np.sqrt(np.mean(gradients[1] ** 2))) or 1.0
        room = case.room(Key(path, "backward", step, 0, "output"))[0] or ROUNDINGS * epsilon("float32") * size
        found = explain_loss(outputs[0], gradients, _tokens(data, step), fit=room / size)
    yield told(
        "cause.loss_function",
        [key for key in here if key.phase == "loss"][:3],
        agreeing=tuple(key for key in case.rows if key.path == path and _is_output(key, step)),
        path=Name(path),
        what=found or what("word.loss.unknown"),
    )


def _is_output(key: Key, step: int) -> bool:
    return key.phase == "forward" and key.step == step and not key.run and key.role.startswith("output")


def _last_output(data: CaseData, step: int) -> tuple[str, Both, Both | None] | None:
    """The output that the loss was computed from, with its gradient: the last one whose gradient differs."""
    last = None
    for key in reversed(data.keys("forward", step)):
        if not key.role.startswith("input") and (both := data.best(key)) is not None:
            gradients = data.best(Key(key.path, "backward", step, key.call, key.role))
            last = last or (key.path, both, gradients)
            if gradients is not None and relative(*gradients) > _SAME:
                return key.path, both, gradients
    # No gradient of an output differs: the loss itself does.
    return last


def _tokens(data: CaseData, step: int) -> list[Array]:
    """The integer inputs of the model: a language model's labels are taken from them."""
    found = (data.values(key) for key in data.keys("data", step))
    return [both[0] for both in found if both is not None]


HYPOTHESES = (
    Hypothesis("loss_scale", _loss_scale, Where(steps=1)),
    Hypothesis("loss_function", _loss_function, Where(steps=1)),
)
