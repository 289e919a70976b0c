"""Treatment: the rate and the decay that an optimizer gives each parameter of a model."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reprod_log.capture import to_numpy
from reprod_log.capture.tree import Root, Slot, Tree
from reprod_log.errors import UsageError
from reprod_log.live.runs import as_mapping
from reprod_log.record import Array, Entry, Key, entry_of
from reprod_log.steps.frameworks import tools_of
from reprod_log.steps.probe import excite
from reprod_log.steps.trainer import Trainer
from reprod_log.transfer import transfer_weights

DECAYS = ("l1", "l2", "decoupled")


@dataclass(frozen=True)
class Prepared:
    """A copy of a side's model with moved weights, its tree and its optimizers by name."""

    model: Any
    tree: Tree
    optimizers: Mapping[str, Any]


def check_trainer(side: Any) -> Trainer:
    """The side, if it says how its model is optimized."""
    if not isinstance(side, Trainer) or side.optimizer is None:
        raise UsageError(
            f"this step takes a Trainer with an optimizer on each side, not {type(side).__name__}: "
            "Trainer(model, optimizer=lambda model: …)"
        )
    return side


def prepare(side: Trainer, dtype: str | None) -> Prepared:
    """A copy of the side's model and new optimizers for it, in another precision if asked for."""
    with side.hands.precision(dtype) if dtype is not None else nullcontext():
        model = side.fresh()
        tree = _tree(side, model)
        # Moved in their own precision first, so that both precisions start from the same numbers.
        excite(tree)
        if dtype is not None:
            for one in side.models(model):
                side.framework.convert(one, dtype)
            tree = _tree(side, model)
        made = side.make_optimizer(model)[0]
    return Prepared(model, tree, _by_name(made))


def _tree(side: Trainer, model: Any) -> Tree:
    tree = Tree(side.framework)
    for name, one in as_mapping(model).items():
        tree.add(Root(name, one))
    return tree


def _by_name(made: Any) -> dict[str, Any]:
    if isinstance(made, Mapping):
        return dict(made)
    if isinstance(made, (list, tuple)):
        return {f"optimizer{place}": one for place, one in enumerate(made)}
    return {"optimizer": made}


def treatment_entries(side: Trainer, prepared: Prepared, kinds: tuple[str, ...], run: str = "") -> list[Entry]:
    """One entry per parameter and kind (lr, l1, l2, decoupled)."""
    return [
        entry_of(Key(slot.path, "optimizer", 0, role=kind, run=run), np.array(numbers[kind]), layer_type=slot.node.type)
        for slot, numbers in treatment(side, prepared).items()
        for kind in kinds
    ]


def treatment(side: Trainer, prepared: Prepared) -> dict[Slot, dict[str, float]]:
    """Rate and decay by parameter; one that no optimizer has is left out, for nothing moves it."""
    tools = tools_of(side.framework.NAME)
    found: dict[Slot, dict[str, float]] = {}
    for optimizer in prepared.optimizers.values():
        for pull in tools.pulls(optimizer):
            slot = prepared.tree.slot_of(pull.parameter)
            if slot is not None:
                found[slot] = {kind: float(getattr(pull, kind)) for kind in ("lr", *DECAYS)}
    if side.penalty is not None:
        slots = list(found)
        gradients = tools.penalty_gradients(side.penalty(prepared.model), [slot.tensor for slot in slots])
        for slot, gradient in zip(slots, gradients, strict=True):
            if gradient is not None:
                l1, l2 = _shares(to_numpy(slot.tensor), gradient, slot.path)
                found[slot]["l1"] += l1
                found[slot]["l2"] += l2
    return found


def _shares(weights: Array, gradient: Array, path: str) -> tuple[float, float]:
    """How much of sign(w) and of w is in the gradient of a penalty; together they must explain all of it."""
    w, g = weights.astype(np.float64).reshape(-1), gradient.astype(np.float64).reshape(-1)
    basis = np.stack([np.sign(w), w], axis=1)
    shares, *_ = np.linalg.lstsq(basis, g, rcond=None)
    left = np.linalg.norm(g - basis @ shares)
    if not left <= 1e-4 * np.linalg.norm(g):
        raise UsageError(
            f"the penalty on {path!r} is neither L1 nor L2: {left:.3g} of its gradient's norm "
            f"{np.linalg.norm(g):.3g} is left over. Compare it as a loss instead."
        )
    l1, l2 = (float(one) for one in shares)
    # Rounding of the fit is not a coefficient; a gradient of one value (a bias all alike) fits either.
    size = max(abs(l1), abs(l2))
    return (l1 if abs(l1) > 1e-5 * size else 0.0), (l2 if abs(l2) > 1e-5 * size else 0.0)


def with_weights_of(
    reference: Trainer, candidate: Trainer, *, rename: Mapping[str, str] | None, inputs: Any
) -> Trainer:
    """The candidate with a copy of its model that has the reference's weights; its own model is not touched."""
    candidate = replace(candidate, model=copy.deepcopy(candidate.model))
    there = as_mapping(candidate.model)
    for name, source in as_mapping(reference.model).items():
        if name not in there:
            raise UsageError(f"the candidate has no model {name!r}; it has {', '.join(map(repr, there))}")
        # Several models have inputs of each other's making, so only a single one can be run for proof.
        transfer_weights(
            source, there[name], rename=rename, inputs=inputs if name == "" else None, on_difference="report"
        )
    return candidate
