"""Side: one program (a model with what trains it), and Scope: how it is run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from reprod_log.errors import UsageError
from reprod_log.frameworks import Framework, framework_of
from reprod_log.frameworks.contract import Rounding, Scheme
from reprod_log.frameworks.module_tree import join, named_modules
from reprod_log.frameworks.nests import mapped
from reprod_log.frameworks.tensors import cast_floating, plain_batch, rounded, to_numpy
from reprod_log.recording import Array, Key
from reprod_log.recording.spool import Spool

Batch = tuple[Any, Any]
"""What a model is called with (arrays by parameter name, or in order), and what its loss is given besides."""
NARROW = ("bfloat16", "float16")
"""Floating types narrower than float32 that models are kept in."""
BRIEF = ("loss", "lr", "metric")
"""What is kept of the steps that are not recorded in full."""


@dataclass(frozen=True)
class Side:
    """One side: a model (or several by name) and how it is trained. No run changes it."""

    model: Any
    loss: Callable[..., Any] | None = None
    """Called as loss(outputs, targets), or loss(outputs) when there are no targets."""
    optimizer: Callable[[Any], Any] | None = None
    """Given the model to train, makes its optimizer; or (optimizer, scheduler)."""
    step: Callable[..., Any] | None = None
    """Does one whole iteration: step(model, optimizer, inputs, targets). Instead of `loss`, for custom loops."""
    training: Mapping[str, bool] = field(default_factory=dict)
    """Modules that are in training mode when the program calls them, and those that are not, as far as it is known."""

    @cached_property
    def framework(self) -> Framework:
        return framework_of(next(iter(as_mapping(self.model).values())))

    @cached_property
    def modules(self) -> Mapping[str, Any]:
        """Every module of the model itself by the path that recordings know it by."""
        return dict(named_modules(self.framework, self.model))

    @cached_property
    def precision(self) -> str:
        """The floating type that the model keeps its tensors in; "" where there are several."""
        if self.framework.parts is None:
            return ""
        tensors, modules = self.framework.tensors, self.framework.eager
        kinds = {tensors.facts(one.tensor).dtype for module in self.modules.values() for one in modules.own(module)}
        floating = {kind for kind in kinds if "float" in kind}
        return floating.pop() if len(floating) == 1 else ""

    @cached_property
    def narrow(self) -> str | None:
        """That type where it is narrower than float32: what goes in has to be of it, too."""
        return self.precision if self.precision in NARROW else None

    def rounded(self, dtype: str) -> Side:
        """The same side with the values of all its floating tensors rounded to `dtype`, and kept in their own."""
        model = self.fresh()
        eager = self.framework.eager
        for _, module in named_modules(self.framework, model):
            for one in eager.own(module):
                if "float" in self.framework.tensors.facts(one.tensor).dtype:
                    eager.write(one.tensor, rounded(to_numpy(one.tensor), dtype))
            eager.refresh(module)
        return replace(self, model=model)

    @property
    def weights(self) -> Mapping[str, Array]:
        """The values of its parameters and buffers by name."""
        if self.framework.programs is not None:
            return self.framework.programs.state(self.model)
        own = self.framework.eager.own
        return {
            join(path, one.name): to_numpy(one.tensor) for path, module in self.modules.items() for one in own(module)
        }

    @property
    def constants(self) -> Mapping[str, Array]:
        """The weights that are a part of its model, by name."""
        programs = self.framework.programs
        if programs is None:
            return {}
        return {
            join(name, one): array
            for name, model in as_mapping(self.model).items()
            for one, array in programs.constants(model).items()
        }

    def readable(self, inputs: Any, reference: Side) -> Side | None:
        """The same side with its quantised layers readable, run once on these inputs; None where it has none."""
        if isinstance(self.model, Mapping):
            return None
        if self.framework.programs is not None:
            found = self.framework.programs.readable(self.model, reference)
        else:
            found = self.framework.eager.readable(
                self.model, lambda model: self.call(model, self.tensors(inputs, self.narrow))
            )
        return None if found is None else replace(self, model=found)

    @property
    def schemes(self) -> Mapping[str, Scheme]:
        """How the layers of a readable model are quantised, by path."""
        return (self.framework.programs or self.framework.eager).schemes(self.model)

    def rounding(self, way: Rounding) -> Side:
        """The same side with a readable model that rounds in this way."""
        if self.framework.programs is not None:
            return replace(self, model=self.framework.programs.rounding(self.model, way))
        model = self.fresh()
        for one in as_mapping(model).values():
            self.framework.eager.set_rounding(one, way)
        return replace(self, model=model)

    @property
    def is_training(self) -> bool:
        """Whether a model of it is in training mode."""
        return any(map(self.framework.eager.is_training, as_mapping(self.model).values()))

    def fresh(self, dtype: str | None = None) -> Any:
        """A copy of the model as it was given, in another floating dtype if asked for."""
        return self.copied(self.model, dtype)

    def copied(self, model: Any, dtype: str | None = None) -> Any:
        """A copy of a model or of a part of it, in another floating dtype if asked for."""
        modules = self.framework.eager
        for one in as_mapping(model).values():
            modules.make_copyable(one)
        made = copy.deepcopy(model)
        if dtype is not None:
            for one in as_mapping(made).values():
                modules.convert(one, dtype)
        return made

    def tensors(self, batch: Any, dtype: str | None) -> Any:
        """A batch with its arrays as this framework's tensors, the floating ones in `dtype`."""
        tensors = self.framework.tensors

        def tensor(_: str, leaf: Any) -> Any:
            return tensors.tensor(cast_floating(leaf, dtype)) if isinstance(leaf, np.ndarray) else leaf

        return mapped(batch, tensor)

    def call(self, model: Any, inputs: Any) -> Any:
        if isinstance(inputs, Mapping):
            return model(**inputs)
        return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)

    def iterate(self, model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
        """One iteration: forward, and what of loss, backward and update this side has."""
        if self.step is not None:
            self.step(model, optimizer, inputs, targets)
            return
        if self.loss is None:
            self.call(model, inputs)
            return

        def objective() -> Any:
            value = self.objective(model, self.call(model, inputs), targets)
            self._check_loss(value)
            return value

        self.framework.eager.backward(objective)
        self.update(model, optimizer)

    def objective(self, model: Any, outputs: Any, targets: Any) -> Any:
        """The scalar that the backward pass begins at."""
        return self.loss_of(outputs, targets)

    def loss_of(self, outputs: Any, targets: Any) -> Any:
        """The loss of these outputs."""
        assert self.loss is not None
        return self.loss(outputs) if targets is None else self.loss(outputs, targets)

    def update(self, model: Any, optimizer: Any) -> None:
        """What comes after the backward pass."""
        if optimizer is not None:
            self.framework.eager.step(optimizer)
            self.framework.eager.clear(optimizer)

    def _check_loss(self, value: Any) -> None:
        name = self.framework.name
        if not self.framework.tensors.is_tensor(value):
            raise UsageError(
                f"the loss of the {name} side gave a {type(value).__name__}, not a tensor of {name}, so nothing could "
                "be trained by it. Return the tensor itself, not .item() or float() of it"
            )
        check_number(value, name)

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


@dataclass(frozen=True)
class Scope:
    """How a side is run."""

    run: str = ""
    """The name of the pass in keys."""
    dtype: str | None = None
    """A floating dtype instead of the model's own."""
    emulated: str = ""
    """A narrow type in which kernels compute as `Emulation` says: of the model as a whole where it is also `dtype`,
    of what the framework's autocast chooses otherwise."""
    seed: int = 0
    phases: Sequence[str] | None = None
    """What is recorded; None: everything."""
    full_steps: int | None = None
    """Everything of so many iterations, then only what `brief` names; None: everything of all."""
    brief: Sequence[str] = BRIEF
    gradients: Mapping[int, Mapping[str, Array]] = field(default_factory=dict)
    """Put in the place of the computed ones after each backward pass, by step and path."""
    record_given: bool = False
    """Whether the gradients that are put in are recorded as the raw ones, in the place of the computed."""
    state: Mapping[str, Array] = field(default_factory=dict)
    """Values that tensors of the model have in this run instead of their own, by path."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings that modules have in this run instead of their own, by path and native name."""
    counts: Array | None = None
    """The positions that count: a layer alone is given no gradient for the others."""
    spool: Spool | None = None
    """Where the arrays of the recording are kept; None: in memory."""
    evaluation: bool = False
    """In evaluation mode, without gradients, whatever mode the model is in."""
    stand_ins: StandIns | None = None
    """Values that take the place of what the run itself computes."""


@dataclass(frozen=True)
class StandIns:
    """Values that a run goes on with in the place of its own: what is recorded is what it computed from these.

    Each part of a program that is fed in this way is wrong only by itself, whatever is wrong before it.
    """

    outputs: Mapping[Key, Array]
    """What modules give, by plain keys (`step0/forward/fc#0:output`)."""
    gradients: Mapping[Key, Array]
    """The gradients that reach these, by plain keys (`step0/backward/fc#0:output`)."""
    parameters: Mapping[int, Mapping[str, Array]]
    """What parameters are when a step begins, by step and path."""


class Masks:
    """Shared dropout masks: no two frameworks draw the same random numbers, so all are given the same ones.

    Masks are drawn by numpy from the seed, the step and the place of the call in it; every run of every side, in any
    precision, gets the same. A mask of another shape at the same place is another program, and shows as a difference.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.step, self.call = seed, 0, 0

    def next_step(self) -> None:
        self.step, self.call = self.step + 1, 0

    def draw(self, shape: tuple[int, ...], rate: float) -> Array:
        generator = np.random.default_rng((self.seed, self.step, self.call))
        self.call += 1
        kept = generator.random(shape) >= rate
        mask: Array = kept / (1.0 - rate) if rate < 1 else np.zeros(shape)
        return mask


def check_number(loss: Any, framework: str) -> None:
    """Raise unless a backward pass can begin at this loss."""
    if prod(loss.shape) != 1:
        raise UsageError(
            f"the loss of the {framework} side has the shape {list(loss.shape)}, and a backward pass begins at one "
            "number. Reduce it, e.g. with .mean()"
        )


def batches_of(inputs: Any, targets: Any, steps: int) -> list[Batch]:
    """One (inputs, targets) per step: a list gives each step its own, anything else is used at every step."""
    inputs, targets = plain_batch(inputs), plain_batch(targets)
    listed_inputs = inputs if isinstance(inputs, list) else [inputs] * steps
    listed_targets = targets if isinstance(targets, list) else [targets] * len(listed_inputs)
    # A single array needs no tuple around it.
    batches = [(one,) if isinstance(one, np.ndarray) else one for one in listed_inputs[:steps]]
    return list(zip(batches, listed_targets[:steps], strict=True))


def as_mapping(model: Any) -> Mapping[str, Any]:
    """The models of a side by name; a single one has the empty name."""
    return model if isinstance(model, Mapping) else {"": model}
