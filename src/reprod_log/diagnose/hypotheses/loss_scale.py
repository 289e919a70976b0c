"""A loss that is the reference's times a constant: a sum for a mean, ignored labels counted, accumulation.

The outputs agree, and every gradient has the same ratio. With clipping by norm or with Adam the updates then agree, so
nothing later in the training shows it.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.material import Material, shown_ratio
from reprod_log.pairing.values import factor
from reprod_log.recording import Array, Key


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None or not material.steps:
        return
    first = material.steps[0]
    failed = case.failed
    if any(key.phase == "forward" and key.step == first for key in failed):
        return
    if not any(key.phase in ("loss", "gradient", "backward") and key.step == first and not key.run for key in failed):
        return
    ratio = uniform_ratio(material, first)
    if ratio is None or abs(ratio - 1) < 1e-5:
        return
    losses = [both for key, both in material.each("loss", first)]
    with_loss = [factor(*both) for both in losses if both[0].size == 1]
    same_loss = any(one is not None and abs(one - 1) < 1e-5 for one in with_loss)
    known = _known(material, ratio)
    yield Finding(
        rule="loss_scale",
        cause=f"every gradient is {shown_ratio(ratio)} times the reference's: the loss is scaled by a constant"
        + (f" ({known})" if known else ""),
        evidence="the model's outputs agree and the ratio is the same for all parameters; "
        + ("the loss itself agrees, so only what is backpropagated is scaled" if same_loss else "the loss differs too"),
        confidence="consistent",
        advice=_advice(material, ratio, same_loss),
        keys=tuple(key for key in sorted(failed, key=str) if key.phase == "loss")[:3],
    )


def uniform_ratio(material: Material, step: int) -> float | None:
    """The ratio of all gradients, if there is one; gradients that are rounding only have none and are left out."""
    found = []
    sizes = [float(abs(both[0]).max()) for _, both in material.each("gradient", step, "raw") if both[0].size]
    largest = max(sizes, default=0.0)
    for _, both in material.each("gradient", step, "raw"):
        if both[0].size and float(abs(both[0]).max()) > 1e-6 * largest:
            ratio = factor(*both, within=1e-3)
            if ratio is None:
                return None
            found.append(ratio)
    if len(found) < 2 or max(found) - min(found) > 1e-3 * abs(found[0]):
        return None
    return sorted(found)[len(found) // 2]


def _known(material: Material, ratio: float) -> str:
    """What the number may be: backward passes that are added up, or what a mean divides by."""
    passes = _passes(material)
    if passes > 1 and _is_number(ratio, passes):
        return f"{passes} backward passes per step are added up: the candidate does not divide by their number"
    if passes > 1 and _is_number(1 / ratio, passes):
        return f"{passes} backward passes per step are added up: only the candidate divides by their number"
    for key, (ours, _) in material.each("forward", material.steps[0]):
        if key.path == "" and key.role.startswith("output") and ours.ndim >= 1:
            return _count(material, key, ours, ratio)
    return ""


def _count(material: Material, key: Key, outputs: Array, ratio: float) -> str:
    for count, what in (
        (_samples(material, outputs), "samples of a batch"),
        (outputs.size, "elements of the output"),
        (outputs.shape[-1], "elements of a prediction"),
    ):
        for value, way in ((ratio, "a sum for a mean"), (1 / ratio, "a mean for a sum")):
            if count > 1 and _is_number(value, count):
                return f"{count} is the number of {what}: {way}"
    rows = outputs.size // outputs.shape[-1]
    if rows > 1 and _is_number(ratio, rows):
        return f"{rows} is the number of predictions: a sum for a mean"
    gradients = material.best(Key(key.path, "backward", material.steps[0], key.call, key.role))
    living = 0 if gradients is None else int(gradients[0].reshape(rows, -1).any(-1).sum())
    for value in (ratio, 1 / ratio):
        divisor = round(living / value)
        if 0 < living < divisor <= rows and abs(living / value - divisor) < 1e-3:
            return f"{living} predictions count, and one side divides by {divisor}: by the ignored ones, too"
    return ""


def _samples(material: Material, outputs: Array) -> int:
    """How many samples a batch has: outputs may have time first, data rarely does."""
    sizes = {int(both[0].shape[0]) for _, both in material.each("data", material.steps[0]) if both[0].ndim}
    return int(outputs.shape[0]) if len(sizes) != 1 or outputs.shape[0] in sizes else sizes.pop()


def _passes(material: Material) -> int:
    """How many losses a step goes back from."""
    return sum(both[0].size == 1 for _, both in material.each("loss", material.steps[0]))


def _is_number(value: float, count: int) -> bool:
    return abs(value - count) < 1e-3 * count


def _advice(material: Material, ratio: float, same_loss: bool) -> str:
    passes = _passes(material)
    if passes > 1 and any(_is_number(value, passes) for value in (ratio, 1 / ratio)):
        return f"divide every loss before its backward pass, on both sides: (loss / {passes}).backward()"
    if same_loss:
        return "divide by the number of accumulation steps on both sides, and unscale what a GradScaler has scaled"
    return "use the same reduction on both sides (mean or sum), and the same count of labels that are not ignored"
