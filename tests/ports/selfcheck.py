"""Proof, in float64 and without the tool, that a formulation is the same function as its reference."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import torch

from ports.pair import batch, flat, make_pair, parts, precision, state_of, tensors_of
from ports.port import Formulation, Port, State

_STEP = 1e-6


@dataclass(frozen=True)
class Check:
    """The largest relative differences; None where there was nothing of the kind to compare."""

    outputs: float | None
    loss: float | None
    weights: float | None
    """The loss along a random direction of each weight of the reference, followed through the converter."""
    trained: float | None
    """Weights after the steps of the port's optimizer."""

    def passes(self, tolerance: float) -> bool:
        found = [one for one in (self.outputs, self.loss, self.trained) if one is not None]
        # The derivative goes through a difference quotient of the converter.
        gradients = self.weights is None or self.weights <= max(1e-6, 10 * tolerance)
        return bool(found) and all(one <= tolerance for one in found) and gradients


def check(port: Port, formulation: Formulation, seed: int = 0) -> Check:
    with warnings.catch_warnings(), precision("float64"):
        warnings.simplefilter("ignore")
        ours, theirs = make_pair(port, formulation, seed, loaded=True)
        start = state_of(ours)
        inputs, targets = batch(port, seed)
        outputs = loss = weights = trained = None
        if port.step is None:
            made = [
                (flat(model(**_tensors(inputs, side))), side) for side, model in (("torch", ours), ("paddle", theirs))
            ]
            assert len(made[0][0]) == len(made[1][0]), "another number of outputs"
            outputs = max(apart(a, b) for a, b in zip(made[0][0], made[1][0], strict=True))
            others = flat(ours(**_tensors(batch(port, seed + 9)[0], "torch")))
            # Dead units would make everything agree.
            assert all(apart(a, b) > 1e-2 for a, b in zip(made[0][0], others, strict=True)), "the output is constant"
            if port.loss is not None:
                lost = _losses(port, formulation, ours, theirs, inputs, targets)
                loss = apart(*lost)
                weights = _gradients(formulation, ours, theirs, start)
        if port.optimizer is not None:
            ours, theirs = make_pair(port, formulation, seed, loaded=True)
            _train(port, formulation, ours, theirs, seed)
            wanted, had = formulation.convert(state_of(ours)), state_of(theirs)
            trained = max(apart(array, had[name]) for name, array in wanted.items())
        return Check(outputs, loss, weights, trained)


def apart(one: Any, other: Any) -> float:
    """Largest difference over the largest magnitude."""
    a, b = (np.asarray(x.detach().numpy() if hasattr(x, "detach") else x, np.float64) for x in (one, other))
    if a.shape != b.shape:
        # A formulation may give its output channels last or with the sides of a square exchanged, never less.
        return float("inf")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    return float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30)) if a.size else 0.0


def _tensors(arrays: Any, side: str) -> Any:
    if arrays is None:
        return None
    if isinstance(arrays, Mapping):
        return {name: _tensors(one, side) for name, one in arrays.items()}
    wide = arrays.astype(np.float64) if arrays.dtype.kind == "f" else arrays
    return torch.from_numpy(wide.copy()) if side == "torch" else paddle.to_tensor(wide)


def _losses(port: Port, formulation: Formulation, ours: Any, theirs: Any, inputs: Any, targets: Any) -> list[Any]:
    assert port.loss is not None
    made = []
    sides = (("torch", ours, port.loss[0]), ("paddle", theirs, formulation.loss or port.loss[1]))
    for side, model, loss in sides:
        outputs = model(**_tensors(inputs, side))
        value = loss(outputs) if targets is None else loss(outputs, _tensors(targets, side))
        value.backward()
        made.append(value)
    return made


def _gradients(formulation: Formulation, ours: Any, theirs: Any, start: State) -> float:
    """For each weight of the reference: the loss's derivative along one random direction, on both sides."""
    generator = np.random.default_rng(5)
    reference = _gradients_of(ours)
    candidate = _gradients_of(theirs)
    pairs = []
    for name, gradient in reference.items():
        direction = generator.normal(size=gradient.shape)
        there, here = (formulation.convert({**start, name: start[name] + h * direction}) for h in (_STEP, -_STEP))
        along = sum(
            float((candidate[key] * (there[key] - here[key]).astype(np.float64)).sum()) / (2 * _STEP)
            for key in there
            if key in candidate
        )
        pairs.append((float((gradient * direction).sum()), along))
    largest = max(abs(a) for a, _ in pairs)
    return max(abs(a - b) for a, b in pairs) / max(largest, 1e-30)


def _gradients_of(model: Any) -> dict[str, np.ndarray]:
    found = {}
    for name, tensor in tensors_of(model).items():
        given = tensor.grad
        if given is not None:
            found[name] = given.numpy().astype(np.float64)
    return found


def _train(port: Port, formulation: Formulation, ours: Any, theirs: Any, seed: int) -> None:
    assert port.optimizer is not None
    losses = port.loss or (None, None)
    steps = port.step or (None, None)
    sides = (
        ("torch", ours, losses[0], port.optimizer[0], steps[0]),
        ("paddle", theirs, formulation.loss or losses[1], formulation.optimizer or port.optimizer[1],
         formulation.step or steps[1]),
    )  # fmt: skip
    for side, model, loss, make, step in sides:
        optimizer = make(model)
        for number in range(port.steps):
            inputs, targets = (_tensors(one, side) for one in batch(port, seed + 50 * number))
            if step is not None:
                step(model, optimizer, inputs, targets)
                continue
            outputs = model(**inputs)
            (loss(outputs) if targets is None else loss(outputs, targets)).backward()
            optimizer.step()
            for one in parts(model).values():
                one.zero_grad() if side == "torch" else one.clear_gradients()
