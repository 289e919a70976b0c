"""Trainer: everything of one side that trains its model, in one value."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reprod_log.alignment.loading import transferred
from reprod_log.frameworks.side import Side


@dataclass(frozen=True)
class Trainer(Side):
    """One side's model with its loss, optimizer and what else its loop does.

    The fields of Side come first: model, loss(outputs, targets), optimizer (makes one for the model it is given) and
    step (a whole iteration, for custom loops).
    """

    clip: Callable[[Any], Any] | None = None
    """Called with the model between backward and update, e.g. to clip gradients; not for optimizers that clip."""
    penalty: Callable[[Any], Any] | None = None
    """Gives the term that the loop adds to the loss, for the model it is given."""
    evaluate: Callable[[Any], float | Mapping[str, Any]] | None = None
    """Gives the score, or scores by name, of the model it is given."""

    @classmethod
    def of(cls, side: Any) -> Trainer:
        """The side itself, or a Trainer around a bare model."""
        return side if isinstance(side, Trainer) else cls(side)

    def objective(self, model: Any, outputs: Any, targets: Any) -> Any:
        """The loss, and the penalty if there is one."""
        value = self.loss_of(outputs, targets)
        return value if self.penalty is None else value + self.penalty(model)

    def update(self, model: Any, optimizer: Any) -> None:
        """Clipping, if there is any, and the optimizer's step."""
        if self.clip is not None:
            self.clip(model)
        super().update(model, optimizer)

    @property
    def own_step(self) -> Callable[..., Any] | None:
        """A function for a whole iteration, when forward, loss and backward alone are not all of it."""
        if self.step is not None or (self.clip is None and self.penalty is None):
            return self.step
        return self.iterate

    def with_weights_of(self, reference: Trainer, *, rename: Mapping[str, str] | None, inputs: Any) -> Trainer:
        """This side with a copy of its model that has the reference's weights; its own model is not touched."""
        side = replace(self, model=copy.deepcopy(self.model))
        return replace(side, model=transferred(reference, side, inputs, rename or {})[0].side.model)
