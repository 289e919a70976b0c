"""Treatment: the rate and the decay that an optimizer gives each parameter of a model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reprod_log.errors import UsageError
from reprod_log.experiments.runs import as_mapping
from reprod_log.frameworks.module_tree import Root, Slot, Tree
from reprod_log.recording import Array, Entry, Key, entry_of
from reprod_log.steps.frameworks import tools_of
from reprod_log.steps.probe import excite
from reprod_log.steps.trainer import Trainer
from reprod_log.transfer import transfer_weights
from reprod_log.transfer.frameworks import framework_of

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
        shares = _penalty_shares(side, side.penalty)
        for slot in found:
            found[slot]["l1"] += shares[slot.path][0]
            found[slot]["l2"] += shares[slot.path][1]
    return found


def _penalty_shares(side: Trainer, penalty: Callable[[Any], Any]) -> dict[str, tuple[float, float]]:
    """How much of sign(w) and of w is in a penalty's gradient, by parameter; together they must explain all of it."""
    tools = tools_of(side.framework.NAME)
    random = np.random.default_rng(0)
    points: dict[str, list[tuple[Array, Array]]] = {}
    # At two random points: at one, a bias of a single value could not tell the two apart.
    for _ in range(2):
        model = side.fresh()
        tree = _tree(side, model)
        weights = [random.standard_normal([int(size) for size in slot.tensor.shape]) for slot in tree.slots]
        for slot, drawn in zip(tree.slots, weights, strict=True):
            framework_of(slot.node.content).write(slot.tensor, drawn.astype(np.float32))
        gradients = tools.penalty_gradients(penalty(model), [slot.tensor for slot in tree.slots])
        for slot, drawn, gradient in zip(tree.slots, weights, gradients, strict=True):
            seen = np.zeros(drawn.shape) if gradient is None else gradient.astype(np.float64)
            points.setdefault(slot.path, []).append((drawn, seen))
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
