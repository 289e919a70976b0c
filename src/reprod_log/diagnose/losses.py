"""Losses: which change of the loss turns one gradient of the outputs into the other?

For a cross entropy the gradient of the logits z is w (softmax(z) - y), for a binary one w (sigmoid(z) - y), so weights
and labels of each side follow from its own gradient. What is no plain cross entropy is predicted from the reference's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from reprod_log.diagnose.case import Both, Case, CaseData
from reprod_log.diagnose.engine import Hypothesis, Where
from reprod_log.diagnose.finding import Finding, What, side, told, what
from reprod_log.diagnose.fits import Fit, first_that_holds, holds, least, line, shown_ratio, sigmoid, slope_of, softmax
from reprod_log.messages import Message, Name, Number, message
from reprod_log.recording import Array, Key

_FURTHEST = 3
"""By how many places labels are tried as shifted."""
_FOCUS = (2.0, 1.0, 0.5, 1.5, 3.0, 5.0)
"""Exponents of a focal loss that are tried."""
_COUNTED = 1e-4
"""Relative: what a number read off gradients may be off and still be the number of samples, or another one's equal."""


def explain_loss(outputs: Array, gradients: Both, tokens: Iterable[Array] = (), *, near: float) -> What | None:
    """The change that predicts the candidate's gradient to `near`; labels may be taken from `tokens`, the inputs."""
    found = None
    if outputs.ndim >= 2 and outputs.shape[-1] > 1:
        found = _cross_entropy(outputs, gradients, tokens, near)
    found = found or _binary(outputs, gradients, near)
    ours, theirs = gradients
    found = found or first_that_holds(_cut_at_a_limit(ours, theirs, ("reference", "candidate")), theirs, near)
    return found or first_that_holds(_cut_at_a_limit(theirs, ours, ("candidate", "reference")), ours, near)


def _as_large(made: Array, like: Array) -> Array:
    """A gradient with the scale of another: how a loss is reduced is another question."""
    return slope_of(made, like) * made


def _focal(likely: Array) -> Iterator[tuple[What, Array]]:
    """By what focal losses multiply the gradient of a prediction whose label has this probability."""
    for power in _FOCUS:
        rest = (1 - likely) ** power
        whole = rest - power * likely * (1 - likely) ** (power - 1) * np.log(likely)
        yield what("word.loss.focal", power=Number(power, "g")), whole
        yield what("word.loss.focal_detached", power=Number(power, "g")), rest


# ---- cross entropy -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Labels:
    """What a cross entropy asks for, read off its gradient."""

    places: Array
    """The class of each row."""
    living: Array
    """Which rows count."""
    weights: Array
    """Of each row."""
    smooth: float = 0.0

    def gradient(self, soft: Array) -> Array:
        classes = soft.shape[-1]
        hot = np.eye(classes)[self.places] * (1 - self.smooth) + self.smooth / classes
        return np.asarray((soft - hot) * (self.weights * self.living)[:, None])


def _labels(soft: Array, gradient: Array, near: float) -> _Labels | None:
    """The labels whose cross entropy has this gradient; None when none has."""
    places, living = gradient.argmin(-1), np.asarray(gradient.any(-1))
    others = (np.arange(soft.shape[-1]) != places[:, None]) & living[:, None]
    if not living.any():
        return None
    known = []
    fitted = line(soft[others], gradient[others], near)
    if fitted is not None:
        scale, shift = fitted
        known.append(_Labels(places, living, np.full(len(soft), scale), 0.0 - shift * soft.shape[-1] / scale))
    plain = _Labels(places, living, np.ones(len(soft))).gradient(soft)
    weights = (plain * gradient).sum(-1) / np.maximum((plain * plain).sum(-1), np.finfo(np.float64).tiny)
    if soft.shape[-1] > 2:
        # Of two classes every gradient whose sum is zero has such weights.
        known.append(_Labels(places, living, weights))
    return next((one for one in known if holds(one.gradient(soft), gradient, near)), None)


def _cross_entropy(outputs: Array, gradients: Both, tokens: Iterable[Array], near: float) -> What | None:
    classes = outputs.shape[-1]
    z, ours, theirs = (one.reshape(-1, classes) for one in (outputs, *gradients))
    soft = softmax(z)
    here, there = (_labels(soft, one, near) for one in (ours, theirs))
    if here is None:
        return None
    if there is None:
        return first_that_holds(_entropies(z, soft, here, theirs), theirs, near)
    if abs(here.smooth - there.smooth) > _COUNTED:
        found, wanted = Number(there.smooth, ".4g"), Number(here.smooth, ".4g")
        return what("word.loss.smoothing", ours=wanted, theirs=found, classes=classes)
    labels = _other_labels(outputs.shape[:-1], here, there, tokens)
    weights = None if labels is not None else _other_weights(here, there)
    if weights is None:
        return labels
    return first_that_holds(_entropies(z, soft, here, theirs), theirs, near) or weights


def _entropies(z: Array, soft: Array, here: _Labels, theirs: Array) -> Iterator[Fit]:
    """Losses of the same labels that are no plain cross entropy of these logits."""
    plain = here.gradient(soft)
    likely = soft[np.arange(len(soft)), here.places]
    twice = here.gradient(softmax(soft))
    twice = soft * (twice - (twice * soft).sum(-1, keepdims=True))
    yield Fit(what("word.loss.softmax_twice"), _as_large(twice, theirs), free=1)
    yield Fit(what("word.loss.likelihood"), _as_large(plain * likely[:, None], theirs), free=1)
    for said, times in _focal(likely):
        yield Fit(said, _as_large(plain * times[:, None], theirs), free=1)

    def warmed(power: float) -> Array:
        return _as_large(here.gradient(softmax(z * np.exp(-power))), theirs)

    # Found by trying, since the gradient is no simple function of it.
    power = least(lambda one: float(np.linalg.norm(theirs - warmed(one))), np.linspace(-np.log(20), np.log(20), 241))
    yield Fit(what("word.loss.temperature", value=Number(float(np.exp(power)), ".4g")), warmed(power), free=2)


def _other_weights(here: _Labels, there: _Labels) -> What | None:
    ratios = there.weights[here.living] / here.weights[here.living]
    if np.ptp(ratios) <= _COUNTED * abs(float(ratios[0])):
        # All alike is another scale.
        return None
    return what("word.loss.sample_weights", values=", ".join(f"{ratio:.3g}" for ratio in ratios[:4]))


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


# ---- other losses --------------------------------------------------------------------------------------------------


def _binary(outputs: Array, gradients: Both, near: float) -> What | None:
    z, ours, theirs = (one.reshape(-1) for one in (outputs, *gradients))
    likely = sigmoid(z)
    labels = ours < 0
    plain = likely - labels

    def weighted(made: Array, like: Array) -> Array:
        return np.where(labels, _as_large(made * labels, like * labels), _as_large(made * ~labels, like * ~labels))

    if not 0 < labels.sum() < labels.size or not holds(weighted(plain, ours), ours, near):
        return None
    if holds(weighted(plain, theirs), theirs, near):
        weights = [slope_of(plain * some, one * some) for one in (theirs, ours) for some in (labels, ~labels)]
        times = weights[0] * weights[3] / (weights[1] * weights[2]) if all(weights) else 1.0
        other = abs(times - 1) > _COUNTED
        return what("word.loss.positive_weight", times=Number(times, ".4g")) if other else None
    slope = likely * (1 - likely)
    known = (
        (what("word.loss.sigmoid_twice"), slope * (sigmoid(likely) - labels)),
        (what("word.loss.squared_of_sigmoid"), slope * plain),
        (what("word.loss.squared_of_logits"), z - labels),
        *((said, plain * times) for said, times in _focal(np.where(labels, likely, 1 - likely))),
    )
    return first_that_holds((Fit(said, weighted(made, theirs), free=2) for said, made in known), theirs, near)


def _cut_at_a_limit(whole: Array, cut: Array, names: tuple[str, str]) -> Iterator[Fit]:
    """One side's gradient is the other's, cut at a limit: an absolute, smooth or Huber loss and a squared one."""
    most = float(np.abs(cut).max(initial=0.0))
    beyond = np.abs(cut) > most * (1 - _COUNTED)
    if most and beyond.sum() >= 2:
        kind = "word.loss.absolute" if beyond.all() else "word.loss.huber"
        made = np.sign(whole) if beyond.all() else np.clip(slope_of(whole[~beyond], cut[~beyond]) * whole / most, -1, 1)
        some = int(beyond.sum())
        yield Fit(what(kind, side=side(names[1]), other=side(names[0]), some=some, all=cut.size), most * made)


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
    ratio = _scale(case, first)
    if ratio is None:
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


def _scale(case: Case, step: int) -> float | None:
    """The ratio of all gradients; None when there is none, or it is 1.

    Where every part is fed with the reference's gradients, only those of the outputs differ.
    """
    data = case.data
    gradients = dict(data.each("gradient", step, "raw"))
    of_outputs = {key: both for key, both in data.each("backward", step) if key.path in data.roots}
    for least_known, found in ((2, gradients), (1, of_outputs)):
        # A gradient that is rounding only has no ratio.
        telling = {key: both for key, both in found.items() if np.abs(both[0]).max(initial=0.0) > case.room(key)[1]}
        if len(telling) < least_known:
            return None
        ratio = float(np.median([slope_of(*both) for both in telling.values()]))
        if any(key in case.failed for key in telling):
            # Gradients that vanish on one side are no multiple of the other's, whatever factor fits their rounding.
            near = {key: case.near(key, both) for key, both in telling.items()}
            fits = all(holds(ratio * b[0], b[1], near[key]) for key, b in telling.items())
            left = any(np.abs(b[1]).max(initial=0.0) > near[key] for key, b in telling.items())
            return ratio if fits and left else None
    return None


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
        if 0 < living < divisor <= rows and abs(living / value - divisor) < _COUNTED * divisor:
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
    return abs(value - count) < _COUNTED * count


def _advice_on_scale(data: CaseData, ratio: float, same_loss: bool) -> Message:
    passes = _passes(data)
    if passes > 1 and any(_is_number(value, passes) for value in (ratio, 1 / ratio)):
        return message("advice.loss.divide_every_loss", passes=passes)
    return message("advice.loss.divide_and_unscale" if same_loss else "advice.loss.same_reduction")


# Another loss function: the outputs agree, the loss and the gradient of the outputs do not.


def _loss_function(case: Case) -> Iterable[Finding]:
    data = case.data
    step = data.steps[0]
    here = [key for key in case.failed if key.step == step and not key.run]
    if any(key.phase in ("data", "forward") for key in case.failed if key.step == step):
        return
    if not any(key.phase == "loss" for key in here):
        return
    last = _last_output(case, step)
    if last is None:
        return
    key, outputs, gradients = last
    found = None
    if gradients is not None:
        near = case.near(key, gradients)
        ratio = slope_of(*gradients)
        if ratio and np.abs(gradients[1]).max() > near and holds(ratio * gradients[0], gradients[1], near):
            if _scale(case, step) is not None:
                # All gradients are scaled alike, which is what loss_scale is about.
                return
            term = Name(key.path) if key.path else message("word.the_output")
            found = what("word.loss.weight_of_term", path=term, ratio=shown_ratio(ratio))
        else:
            found = explain_loss(outputs[0], gradients, _tokens(data, step), near=near)
    yield told(
        "cause.loss_function",
        [key for key in here if key.phase == "loss"][:3],
        agreeing=tuple(one for one in case.rows if one.path == key.path and _is_output(one, step)),
        path=Name(key.path),
        what=found or what("word.loss.unknown"),
    )


def _is_output(key: Key, step: int) -> bool:
    return key.phase == "forward" and key.step == step and not key.run and key.role.startswith("output")


def _last_output(case: Case, step: int) -> tuple[Key, Both, Both | None] | None:
    """The output that the loss was computed from, with its gradient: the last one whose gradient differs."""
    data, last = case.data, None
    for key in reversed(data.keys("forward", step)):
        if not key.role.startswith("input") and (both := data.best(key)) is not None:
            back = Key(key.path, "backward", step, key.call, key.role)
            last = last or (back, both, data.best(back))
            if back in case.failed and (gradients := data.best(back)) is not None:
                return back, both, gradients
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
