"""Program: one side's model with its loss and optimizer, to be run as often as needed from the same start."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from reprod_log.capture import framework_of
from reprod_log.errors import UsageError
from reprod_log.experiments.frameworks import Hands, hands_of
from reprod_log.frameworks.contract import Framework
from reprod_log.frameworks.nests import mapped
from reprod_log.recording import Array

Batch = Mapping[str, Any] | Sequence[Any]
"""What a model is called with: arrays by parameter name, or in order."""


@dataclass(frozen=True)
class Program:
    """One side: a model (or several by name), how it is trained, and who runs it."""

    model: Any
    loss: Callable[..., Any] | None = None
    """Called as loss(outputs, targets), or loss(outputs) when there are no targets."""
    optimizer: Callable[[Any], Any] | None = None
    """Given the model to train, makes its optimizer; or (optimizer, scheduler)."""
    step: Callable[..., Any] | None = None
    """Does one whole iteration: step(model, optimizer, inputs, targets). Instead of `loss`, for loops of one's own."""

    @cached_property
    def framework(self) -> Framework:
        model = next(iter(self.model.values())) if isinstance(self.model, Mapping) else self.model
        return framework_of(model)

    @property
    def hands(self) -> Hands:
        return hands_of(self.framework.NAME)

    def models(self, model: Any) -> list[Any]:
        return list(model.values()) if isinstance(model, Mapping) else [model]

    def fresh(self, dtype: str | None = None) -> Any:
        """A copy of the model as it was given, in another floating dtype if asked for."""
        for one in self.models(self.model):
            self.hands.make_copyable(one)
        model = copy.deepcopy(self.model)
        if dtype is not None:
            for one in self.models(model):
                self.framework.convert(one, dtype)
        return model

    def tensors(self, batch: Any, dtype: str | None) -> Any:
        """A batch with its arrays as this framework's tensors, the floating ones in `dtype`."""

        def tensor(_: str, leaf: Any) -> Any:
            is_array = isinstance(leaf, np.ndarray)
            return self.framework.from_numpy(cast_floating(leaf, dtype)) if is_array else leaf

        return mapped(batch, tensor)

    def call(self, model: Any, inputs: Any) -> Any:
        if isinstance(inputs, Mapping):
            return model(**inputs)
        return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)

    def iterate(self, model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
        """One iteration: forward, and what of loss, backward and update this program has."""
        if self.step is not None:
            self.step(model, optimizer, inputs, targets)
            return
        outputs = self.call(model, inputs)
        if self.loss is None:
            return
        value = self.loss(outputs) if targets is None else self.loss(outputs, targets)
        self._check_loss(value)
        value.backward()
        if optimizer is not None:
            optimizer.step()
            self.hands.clear(optimizer)

    def _check_loss(self, value: Any) -> None:
        name = self.framework.NAME
        if not self.framework.is_tensor(value):
            raise UsageError(
                f"the loss of the {name} side gave a {type(value).__name__}, not a tensor of {name}, so nothing could "
                "be trained by it. Return the tensor itself, not .item() or float() of it"
            )
        if prod(value.shape) != 1:
            raise UsageError(
                f"the loss of the {name} side has the shape {list(value.shape)}, and a backward pass begins at one "
                "number. Reduce it, e.g. with .mean()"
            )

    def make_optimizer(self, model: Any) -> tuple[Any, Any]:
        """The optimizer and, if there is one, the scheduler."""
        if self.optimizer is None:
            return None, None
        made = self.optimizer(model)
        if isinstance(made, tuple):
            if len(made) != 2 or not hasattr(made[1], "step"):
                raise UsageError("an optimizer factory must return an optimizer, or (optimizer, scheduler)")
            return made
        return made, None

    def modules(self, model: Any) -> Iterator[tuple[str, Any]]:
        """Every module by the path that recordings know it by."""
        roots = model.items() if isinstance(model, Mapping) else [("", model)]
        for name, root in roots:
            yield from self._below(root, name)

    def _below(self, module: Any, path: str) -> Iterator[tuple[str, Any]]:
        while (inner := self.framework.wrapped(module)) is not None:
            module = inner
        yield path, module
        for name, child in self.framework.children(module):
            yield from self._below(child, f"{path}.{name}" if path else name)


def cast_floating(array: Array, dtype: str | None) -> Array:
    """The array in `dtype` if it is floating."""
    return array.astype(dtype) if dtype is not None and array.dtype.kind == "f" else array
