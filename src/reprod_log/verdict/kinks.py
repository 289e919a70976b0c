"""Kinks: an activation that rounding puts on the other side of one moves the gradients before it by far more.

In float64 that does not happen. In float32 it does, in a correct port too: what may be such a jump is excused, within
bounds, where signs changed or that is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from reprod_log.layers.lookup import layer_kind
from reprod_log.measure.sketch import has_values
from reprod_log.pairing import Pair
from reprod_log.recording import Key, ModuleInfo, Recording
from reprod_log.verdict.evidence import FloorEvidence

GRADIENTS = ("gradient", "backward")
BEHIND_GRADIENTS = (*GRADIENTS, "clip", "update", "optimizer", "parameter")
"""Phases that a jump of the gradients reaches."""
JUMP = 3.0
"""In floors: the gradient of an output that an activation on the other side of a kink has moved is beyond it."""
_KINKS_AT_ZERO = ("relu", "leaky_relu", "prelu")
_WORTH_A_LOOK = 2.0
"""Errors of gradients in units of the reference's own, above which it matters whether activations changed sides."""
_DRIFT = 1e-3
"""Relative error of a gradient of a later step from which it matters there."""


def moved_at_most(one: FloorEvidence, share: float) -> bool:
    """Whether the candidate in its own precision is off by no more than this share of the tensor."""
    assert one.float32 is not None
    return bool(one.float32.rmse <= share * one.float32.reference.rms)


def follows_a_jump(key: Key, jumps: Mapping[Key, bool]) -> bool:
    """Whether a kink can have moved this gradient of a weight: it moves what came into the layer, too.

    `jumps` has the entries of the pass and whether each is beyond JUMP. True where the gradient of the layer's output
    was not recorded.
    """
    if key.phase != "gradient":
        return True
    layer = key.path.rpartition(".")[0]
    into = [
        beyond
        for one, beyond in jumps.items()
        if one.phase == "backward" and one.path == layer and one.step == key.step and one.role.startswith("output")
    ]
    return not into or any(into)


def is_output(one: FloorEvidence) -> bool:
    return one.key.phase == "forward" and one.key.role.startswith("output")


def with_flips(
    evidence: tuple[FloorEvidence, ...], pairs: Sequence[tuple[Pair, ...]], reference: Recording
) -> tuple[FloorEvidence, ...]:
    """The evidence; of steps whose gradients jump, with the signs that changed in the outputs before them.

    `pairs` are, for each, the passes in either side's own precision beside the reference's float64 pass.
    """
    free = [one for one in evidence if not one.mode and one.key.step is not None]
    first = min((one.key.step or 0 for one in free), default=None)
    steps = {one.key.step for one in free if one.key.phase in GRADIENTS and _jumps(one, first=one.key.step == first)}
    if not steps:
        return evidence
    # These change sides without a sign that does: the largest of a window, a limit other than zero.
    elsewhere = {module.path for module in reference.modules if _has_kink_elsewhere(module)}
    return tuple(
        replace(one, flips=None if one.key.path in elsewhere else _flips(asked))
        if not one.mode and one.key.step in steps and is_output(one)
        else one
        for one, asked in zip(evidence, pairs, strict=True)
    )


def _has_kink_elsewhere(module: ModuleInfo) -> bool:
    row = layer_kind(module.kind)
    return row is not None and ((row.kinked and row.kind not in _KINKS_AT_ZERO) or "maxpool" in row.kind)


def _jumps(one: FloorEvidence, *, first: bool) -> bool:
    """Whether one side is much farther from the truth than the other.

    Later steps drift apart by chance, and kernels of the reference may be noisy: there a jump is what rounding does not
    reach.
    """
    if one.float32 is None or one.noise is None:
        return False
    noise, error, size = one.noise.rmse, one.float32.rmse, one.noise.reference.rms
    beyond = not error <= _WORTH_A_LOOK * noise
    return (first and beyond) or ((beyond or noise > _WORTH_A_LOOK * error) and max(noise, error) > _DRIFT * size)


def _flips(pairs: tuple[Pair, ...]) -> int | None:
    """How many elements have another sign in one of the passes; None where that is not known."""
    count = 0
    for pair in pairs:
        if not has_values(pair):
            return None
        ours, theirs = pair.reference.array(), pair.candidate.array()
        theirs = theirs if pair.view is None else pair.view.of(theirs)
        if ours.shape != theirs.shape or ours.dtype.kind != "f" or theirs.dtype.kind != "f":
            return None
        count += int(np.count_nonzero(np.sign(ours) != np.sign(theirs)))
    return count


def may_have_flipped(outputs: Iterable[FloorEvidence]) -> bool:
    """Whether an activation may stand on the other side of a kink: signs changed, or that is not known."""
    flips = [one.flips for one in outputs]
    return not flips or None in flips or any(flips)
