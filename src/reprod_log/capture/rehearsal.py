"""Rehearsal: a copy of a side's model with optimizers of its own, whose weights and gradients are set by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from reprod_log.capture.run import Run
from reprod_log.capture.watching import named_optimizers, watch
from reprod_log.frameworks.contract import ParameterTreatment
from reprod_log.frameworks.module_tree import Root, Slot, Tree
from reprod_log.frameworks.side import Side, as_mapping
from reprod_log.frameworks.tensors import to_numpy
from reprod_log.recording import Array

Moved = Callable[[Array], Array]
"""The values to begin with, for those that a parameter has."""


class Rehearsal:
    """The copy and its optimizers by name; the side's own model is not touched. `dtype` is another precision."""

    def __init__(self, side: Side, dtype: str | None, moved: Moved) -> None:
        self._side, self._dtype = side, dtype
        self._parts = side.framework.eager
        with self._precision():
            self.model = side.fresh()
            self.tree = self._new_tree()
            # Moved in their own precision first, so that both precisions start from the same numbers.
            for slot in self.tree.slots:
                self._parts.write(slot.tensor, moved(to_numpy(slot.tensor)))
            if dtype is not None:
                for one in as_mapping(self.model).values():
                    self._parts.convert(one, dtype)
                self.tree = self._new_tree()
            self.optimizers = named_optimizers(side.make_optimizer(self.model)[0])

    def _precision(self) -> AbstractContextManager[None]:
        return nullcontext() if self._dtype is None else self._parts.precision(self._dtype)

    def _new_tree(self) -> Tree:
        tree = Tree(self._side.framework)
        for name, one in as_mapping(self.model).items():
            tree.add(Root(name, one))
        return tree

    def values(self) -> dict[Slot, Array]:
        """The values of every parameter now."""
        return {slot: to_numpy(slot.tensor) for slot in self.tree.slots}

    def settings(self) -> dict[str, Any]:
        """What each optimizer's framework tells of its settings, by the optimizer's name."""
        return {name: self._parts.describe(one) for name, one in self.optimizers.items()}

    def treatments(self) -> Iterator[tuple[Slot, ParameterTreatment]]:
        """The rate and decay of every parameter that an optimizer has."""
        for optimizer in self.optimizers.values():
            for one in self._parts.treatments(optimizer):
                slot = self.tree.slot_of(one.parameter)
                if slot is not None:
                    yield slot, one

    def gradients_of(self, scalar: Callable[[Any], Any]) -> dict[Slot, Array]:
        """The gradient of every parameter under a function of the model; zeros where it has none."""
        hooks = self._parts
        for slot in self.tree.slots:
            hooks.set_gradient(slot.tensor, None)
        hooks.backward(lambda: scalar(self.model))
        found = {slot: hooks.gradient(slot.tensor) for slot in self.tree.slots}
        return {
            slot: np.zeros([int(size) for size in slot.tensor.shape]) if one is None else to_numpy(one)
            for slot, one in found.items()
        }

    def call(self, inputs: Any) -> None:
        """Call the model once, which shows how its layers follow each other."""
        self._side.call(self.model, self._side.tensors(inputs, self._dtype))

    def update(self, gradients: Mapping[Slot, Array]) -> None:
        """One update of all optimizers from these gradients, clipped as the side clips them."""
        hooks = self._parts

        def total() -> Any:
            # The gradient of Σ p·g is g.
            trained = [(slot.tensor, wanted) for slot, wanted in gradients.items() if hooks.takes_gradient(slot.tensor)]
            return reduce(add, [hooks.multiply(parameter, wanted).sum() for parameter, wanted in trained])

        hooks.backward(total)
        first, *others = self.optimizers.values()
        self._side.update(self.model, first)
        for optimizer in others:
            Side.update(self._side, self.model, optimizer)

    @contextmanager
    def watched(self, run: str, phases: Sequence[str], *, updates: bool) -> Iterator[Run]:
        """What the model and, with `updates`, its optimizers do meanwhile is recorded."""
        optimizers = self.optimizers if updates else None
        with self._precision(), watch(self.model, optimizer=optimizers, run=run, phases=phases) as running:
            yield running
