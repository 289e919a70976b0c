"""Optimizers; subjects: optimizer and regularization.

What an optimizer does is shown by made weights and gradients, the same on both sides without any map of names: every
number is made from the element of the weight at its place. Sides with equal weights, in whatever layout and under
whatever names, therefore get equal numbers at equal places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reprod_log.capture.rehearsal import Rehearsal
from reprod_log.errors import UsageError
from reprod_log.frameworks.module_tree import Slot
from reprod_log.layers.optimizers import built_in_clip, hyperparameters
from reprod_log.messages import Code, message
from reprod_log.recording import Array, Entry, Key, Recording, entry_of
from reprod_log.steps.models import with_float64
from reprod_log.steps.subject import Subject
from reprod_log.steps.trainer import Trainer
from reprod_log.steps.values import origin

_DECAYS = ("l1", "l2", "decoupled")
_EXPONENTS = (-7.0, 1.0)
"""Gradients from 1e-7 to 10: small ones show where eps stands, large ones whether something is clipped."""


def _excited(weights: Array) -> Array:
    """Weights moved a little, so that none is zero: decay of a zero bias would not show."""
    moved = weights.astype(np.float32) + (0.05 + 0.1 * _uniform(weights, 0)).astype(np.float32)
    return moved.astype(weights.dtype)


def _made_gradient(weights: Array, step: int) -> Array:
    """A gradient for these weights: both signs, magnitudes spread evenly over eight powers of ten, new at each step."""
    low, high = _EXPONENTS
    exponent = low + (high - low) * _uniform(weights, 2 * step + 1)
    sign = np.where(_uniform(weights, 2 * step + 2) < 0.5, -1.0, 1.0)
    return (sign * 10.0**exponent).astype(np.float32)


def _uniform(weights: Array, stream: int) -> Array:
    """A number in [0, 1) for each element, from its bits in float32 (a mixing function of integers, not a copy)."""
    # + 0.0 turns -0.0 into 0.0, which has other bits.
    bits = (weights.astype(np.float32) + np.float32(0.0)).view(np.uint32).astype(np.uint64)
    mixed = bits + np.uint64((stream + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53


# ---- the rate and the decay that an optimizer gives each parameter of a model ----------------------------------------
def _check_optimizer(side: Any) -> Trainer:
    """The side, if it has an optimizer."""
    if not isinstance(side, Trainer) or side.optimizer is None:
        raise UsageError(
            f"this step takes a Trainer with an optimizer on each side, not {type(side).__name__}: "
            "Trainer(model, optimizer=lambda model: …)"
        )
    return side


def _treatment_entries(side: Trainer, prepared: Rehearsal, kinds: tuple[str, ...], run: str = "") -> list[Entry]:
    """One entry per parameter and kind (lr, l1, l2, decoupled)."""
    return [
        entry_of(Key(slot.path, "optimizer", 0, role=kind, run=run), np.array(numbers[kind]), layer_type=slot.node.type)
        for slot, numbers in _treatment(side, prepared).items()
        for kind in kinds
    ]


def _treatment(side: Trainer, prepared: Rehearsal) -> dict[Slot, dict[str, float]]:
    """Rate and decay by parameter; one that no optimizer has is omitted, because nothing updates it."""
    kinds = ("lr", *_DECAYS)
    found = {slot: {kind: float(getattr(one, kind)) for kind in kinds} for slot, one in prepared.treatments()}
    if side.penalty is not None:
        shares = _penalty_shares(side, side.penalty)
        for slot in found:
            found[slot]["l1"] += shares[slot.path][0]
            found[slot]["l2"] += shares[slot.path][1]
    return found


def _penalty_shares(side: Trainer, penalty: Callable[[Any], Any]) -> dict[str, tuple[float, float]]:
    """How much of sign(w) and of w is in a penalty's gradient, by parameter; together they must explain all of it."""
    random = np.random.default_rng(0)
    points: dict[str, list[tuple[Array, Array]]] = {}
    # At two random points: at one, a bias of a single value could not tell the two apart.
    for _ in range(2):
        drawn = Rehearsal(
            replace(side, optimizer=None), None, lambda old: random.standard_normal(old.shape).astype(np.float32)
        )
        gradients = drawn.gradients_of(penalty)
        for slot, weights in drawn.values().items():
            points.setdefault(slot.path, []).append((weights.astype(np.float64), gradients[slot].astype(np.float64)))
    return {path: _fitted(path, *zip(*seen, strict=True)) for path, seen in points.items()}


def _fitted(path: str, weights: Sequence[Array], gradients: Sequence[Array]) -> tuple[float, float]:
    w = np.concatenate([one.reshape(-1) for one in weights])
    g = np.concatenate([one.reshape(-1) for one in gradients])
    basis = np.stack([np.sign(w), w], axis=1)
    shares, *_ = np.linalg.lstsq(basis, g, rcond=None)
    left, size = float(np.linalg.norm(g - basis @ shares)), float(np.linalg.norm(g))
    if not left <= 1e-4 * size:
        raise UsageError(
            f"the penalty on {path!r} is neither L1 nor L2: {left:.3g} of its gradient's norm {size:.3g} is left over. "
            "Compare it as a loss instead."
        )
    l1, l2 = (float(one) for one in shares)
    # Rounding of the fit is not a coefficient.
    largest = max(abs(l1), abs(l2))
    return (l1 if abs(l1) > 1e-5 * largest else 0.0), (l2 if abs(l2) > 1e-5 * largest else 0.0)


# ---- optimizer: the same hyperparameters, and the same updates from the same weights and gradients -------------------
_WATCHED = ("forward", "gradient", "clip", "lr", "update")
"""What an optimizer keeps shows in its next update, and would double the size."""


def _record_optimizer(side: Trainer, *, steps: int = 2, inputs: Any = None, float64: bool = True) -> Recording:
    """Hyper-parameters, the rate and decay of every parameter, and `steps` updates from made gradients.

    Weights and gradients are made from the model's own weights, element by element, so that two sides with equal
    weights get equal gradients. 2 steps show momentum. With `inputs` the model is called once, which helps to line up
    layers of other names. The side's own model is not touched.
    """
    _check_optimizer(side)
    return with_float64(lambda dtype: _optimizer_pass(side, steps, inputs, dtype), float64=float64)


def _optimizer_pass(side: Trainer, steps: int, inputs: Any, dtype: str | None) -> Recording:
    run = dtype or ""
    prepared = Rehearsal(side, dtype, _excited)
    settings = _settings(side, prepared, run)
    start = prepared.values()
    with prepared.watched(run, _WATCHED, updates=True) as watched:
        for step in range(steps):
            with watched.step():
                if step == 0 and inputs is not None:
                    prepared.call(inputs)
                prepared.update({slot: _made_gradient(array, step) for slot, array in start.items()})
    clips = filter(None, map(built_in_clip, prepared.settings().values()))
    notes = [message("note.steps.clips", how=Code(how)) for how in clips]
    prepared.tree.forget()
    recording = watched.recording
    return replace(recording, entries=(*settings, *recording.entries), notes=(*recording.notes, *notes))


def _settings(side: Trainer, prepared: Rehearsal, run: str) -> list[Entry]:
    """The numbers that were set and the weights to start from: of the optimizer, then of each parameter."""
    entries = []
    for name, described in prepared.settings().items():
        for setting, value in hyperparameters(described).items():
            entries.append(entry_of(Key(f"{name}.{setting}", "optimizer", 0, role="setting", run=run), value))
    entries += _treatment_entries(side, prepared, ("lr", *_DECAYS), run)
    for slot, values in prepared.values().items():
        key = Key(slot.path, "parameter", 0, role="start", run=run)
        entries.append(entry_of(key, values, layer_type=slot.node.type))
    return entries


def _optimizers_together(
    reference: Any,
    candidate: Any,
    *,
    steps: int = 2,
    inputs: Any = None,
    transfer: bool = True,
    rename: Mapping[str, str] | None = None,
) -> tuple[Recording, Recording]:
    """Two Trainers. With `transfer` a copy of the candidate's model gets the reference's weights first: only the
    optimizers are compared here."""
    ours, theirs = _check_optimizer(reference), _check_optimizer(candidate)
    if transfer:
        theirs = theirs.with_weights_of(ours, rename=rename, inputs=inputs)
    return _record_optimizer(ours, steps=steps, inputs=inputs), _record_optimizer(theirs, steps=steps, inputs=inputs)


optimizer = Subject(
    name="optimizer",
    title="optimizer",
    words=("optimizer", "optim", "optimiser"),
    limits=("rel_l2:1e-6",),
    why=message("reason.limit.update"),
    record=_record_optimizer,
    together=_optimizers_together,
)


# ---- regularization: every parameter is pulled towards zero in the same way and with the same strength ---------------
def _record_regularization(side: Trainer, *, inputs: Any = None) -> Recording:
    """The coefficients of L1, L2 and decoupled decay of every parameter, whichever way they were set.

    They are read from the optimizer's groups, from attributes of the parameters, and from `side.penalty`, the term that
    a loop adds to its loss: its gradient is taken apart into shares of sign(w) and w. With `inputs` the model is called
    once, which lines up layers of other names; then both sides must have equal weights.
    """
    _check_optimizer(side)
    return with_float64(lambda dtype: _regularization_pass(side, inputs, dtype), float64=inputs is not None)


def _regularization_pass(side: Trainer, inputs: Any, dtype: str | None) -> Recording:
    run = dtype or ""
    prepared = Rehearsal(side, dtype, _excited)
    entries = _treatment_entries(side, prepared, _DECAYS, run)
    if inputs is None:
        found = Recording(tuple(entries), origin(side.framework), modules=prepared.tree.infos())
    else:
        with prepared.watched(run, ("forward",), updates=False) as watched:
            prepared.call(inputs)
        found = replace(watched.recording, entries=(*entries, *watched.recording.entries))
    prepared.tree.forget()
    return found


def _regularization_together(
    reference: Any, candidate: Any, *, inputs: Any = None, rename: Mapping[str, str] | None = None
) -> tuple[Recording, Recording]:
    """Two Trainers. With `inputs` a copy of the candidate's model gets the reference's weights first."""
    ours, theirs = _check_optimizer(reference), _check_optimizer(candidate)
    if inputs is not None:
        theirs = theirs.with_weights_of(ours, rename=rename, inputs=inputs)
    return _record_regularization(ours, inputs=inputs), _record_regularization(theirs, inputs=inputs)


regularization = Subject(
    name="regularization",
    title="regularization",
    words=("regularization", "regularizer", "regular", "decay"),
    limits=("max_rel:1e-6",),
    why=message("reason.limit.coefficients"),
    record=_record_regularization,
    together=_regularization_together,
)
