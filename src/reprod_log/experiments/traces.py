"""Traces: every operator of a layer or of the loss in order: what went in, what came out, which line called it."""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.capture import flatten, to_numpy
from reprod_log.experiments.isolation import Call, as_leaves, backward_from
from reprod_log.experiments.masks import Masks, shared_masks
from reprod_log.experiments.program import Program
from reprod_log.frameworks.contract import Framework
from reprod_log.layers.arrangement import canonical_output
from reprod_log.recording import Array

_NOT_OURS = ("torch", "paddle", "reprod_log")
_SILENT = ("__set__", "full", "assign", "assign_value_", "full_", "detach", "requires_grad_")
_MOST_GIVEN = 5
"""Kernels with more plain arguments than this were called by a framework's function, and its user wrote few of them."""


@dataclass(frozen=True)
class Operator:
    """One call: its name, what went in and came out, and the line of the user's code that made it."""

    name: str
    inputs: tuple[int, ...]
    """Numbers of tensors in the trace."""
    outputs: tuple[int, ...]
    line: str
    given: str = ""
    """Its plain arguments."""
    written: str = ""
    """For a function with a backward pass written by hand: its class and where that is."""


@dataclass
class Trace:
    """Every operator of one forward pass of a layer, in order."""

    operators: list[Operator] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)
    """Every tensor in float64, by its number."""
    values: list[Array] = field(default_factory=list)
    """The same, sorted."""
    gradients: dict[int, Array] = field(default_factory=dict)
    """Sorted gradients of the tensors that have one, by their numbers."""
    results: tuple[int, ...] = ()
    """Numbers of what the layer gave in the end."""


def trace_layer(program: Program, call: Call, path: str, dtype: str) -> Trace:
    """The operators of one layer, run alone on the input of `call` and backward from the gradient that goes with it."""
    framework, hands = program.framework, program.hands
    listener = _Listener(framework)
    with _from_the_start(program, dtype):
        module = dict(program.modules(program.fresh(dtype)))[path]
        leaves: list[tuple[str, Any]] = []
        args = tuple(as_leaves(arg, "", dtype, hands, leaves) for arg in call.args)
        kwargs = {name: as_leaves(arg, name, dtype, hands, leaves) for name, arg in call.kwargs.items()}
        listener.given((args, kwargs))
        with shared_masks(program, module, Masks(seed=0)), hands.operators(listener.hear):
            output = canonical_output(framework.kind(module), module(*args, **kwargs))
        listener.gave(output)
        backward_from(program, call, output)
    return listener.trace()


def trace_loss(program: Program, inputs: Any, targets: Any, dtype: str) -> Trace:
    """The operators of the loss, on what the model makes of a batch, and back from the loss to the model's outputs."""
    assert program.loss is not None
    listener = _Listener(program.framework)
    with _from_the_start(program, dtype):
        model = program.fresh(dtype)
        wanted = None if targets is None else program.tensors(targets, dtype)
        with shared_masks(program, model, Masks(seed=0)):
            outputs = program.call(model, program.tensors(inputs, dtype))
        listener.given((outputs, wanted))
        with program.hands.operators(listener.hear):
            value = program.loss(outputs) if wanted is None else program.loss(outputs, wanted)
        listener.gave(value)
        value.backward()
    return listener.trace()


@contextmanager
def _from_the_start(program: Program, dtype: str) -> Iterator[None]:
    """The precision and seed that every trace begins with; random state is put back."""
    state = program.framework.rng_state()
    try:
        with program.hands.precision(dtype):
            program.framework.seed(0)
            yield
    finally:
        program.framework.set_rng_state(state)


class _Listener:
    """Hears operators and numbers their tensors."""

    def __init__(self, framework: Framework) -> None:
        self._framework, self._trace = framework, Trace()
        self._numbers: dict[int, int] = {}
        self._gradients: dict[int, list[Any]] = {}
        self._kept: list[Any] = []

    def given(self, value: Any) -> None:
        """What is there before the first operator: an input that one side does not use is there all the same."""
        for one in self._tensors(value):
            self._number(one)

    def gave(self, value: Any) -> None:
        """What came out in the end."""
        self._trace.results = tuple(self._numbers[id(one)] for one in self._tensors(value) if id(one) in self._numbers)

    def hear(self, name: str, given: Any, result: Any, function: type | None = None) -> None:
        outputs = self._tensors(result)
        if outputs and name not in _SILENT:
            inputs = tuple(self._number(one) for one in self._tensors(given))
            # Results are always new: an operator in place gives the same object other values.
            for one in outputs:
                self._numbers.pop(id(one), None)
            results = tuple(self._number(one) for one in outputs)
            operator = Operator(name, inputs, results, _line(), _given(given), _written_at(function))
            self._trace.operators.append(operator)

    def trace(self) -> Trace:
        """All that was heard, with the gradients that have come since."""
        for place, parts in self._gradients.items():
            # A hook may hear of no gradient: nothing of what follows depends on the tensor.
            known = [part for part in parts if part is not None]
            if known:
                self._trace.gradients[place] = _sorted(sum(known))
        return self._trace

    def _number(self, tensor: Any) -> int:
        if id(tensor) not in self._numbers:
            # Kept alive, so that no other tensor gets the same identity.
            self._kept.append(tensor)
            number = self._numbers[id(tensor)] = len(self._trace.values)
            self._trace.arrays.append(to_numpy(tensor).astype(np.float64))
            self._trace.values.append(np.sort(self._trace.arrays[-1], axis=None))
            self._framework.on_gradient(tensor, self._gradients.setdefault(number, []).append)
        return self._numbers[id(tensor)]

    def _tensors(self, value: Any) -> list[Any]:
        return [leaf for _, leaf in flatten(value) if self._framework.is_tensor(leaf)]


def _sorted(tensor: Any) -> Array:
    return np.sort(to_numpy(tensor).astype(np.float64), axis=None)


def _line() -> str:
    """The line of the model's own code that called an operator."""
    frame = sys._getframe(1)
    # Beyond the tracing function stands whoever asked for it, and not the model.
    while frame is not None and frame.f_code not in (trace_layer.__code__, trace_loss.__code__):
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _NOT_OURS:
            name, line = frame.f_code.co_filename, frame.f_lineno
            text = linecache.getline(name, line).strip()
            if not name.startswith("<") and "contextlib" not in name:
                return f"{Path(name).name}:{line}: {text}" if text else f"{Path(name).name}:{line}"
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return ""


def _given(value: Any) -> str:
    """The plain arguments of a call, as they would be written; nothing when there are none, or very many."""
    plain = [repr(one) for _, one in flatten(value) if isinstance(one, (bool, int, float, str))]
    return ", ".join(plain) if len(plain) <= _MOST_GIVEN else ""


def _written_at(function: type | None) -> str:
    """The name of a class whose backward pass is written by hand, and where that is."""
    if function is None:
        return ""
    try:
        lines = inspect.getsourcelines(function.backward)  # type: ignore[attr-defined]  # both frameworks ask for it
        return f"{function.__name__}, {Path(inspect.getfile(function.backward)).name}:{lines[1]}"  # type: ignore[attr-defined]
    except (OSError, TypeError):
        # Typed into a session, or compiled: there is no file to name.
        return function.__name__
