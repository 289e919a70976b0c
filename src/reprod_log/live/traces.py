"""Traces: every operator of one layer in order, with what went in, what came out, and the line that called it."""

from __future__ import annotations

import inspect
import linecache
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.capture import flatten, to_numpy
from reprod_log.capture.outputs import canonical_output
from reprod_log.live.isolation import Call, as_leaves, backward_from
from reprod_log.live.masks import Masks, shared_masks
from reprod_log.live.program import Program
from reprod_log.record import Array

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
    trace = Trace()
    numbers: dict[int, int] = {}
    found: dict[int, list[Any]] = {}
    kept: list[Any] = []

    def number(tensor: Any) -> int:
        if id(tensor) not in numbers:
            # Kept alive, so that no other tensor gets the same identity.
            kept.append(tensor)
            numbers[id(tensor)] = len(trace.values)
            trace.arrays.append(to_numpy(tensor).astype(np.float64))
            trace.values.append(np.sort(trace.arrays[-1], axis=None))
            framework.on_gradient(tensor, found.setdefault(numbers[id(tensor)], []).append)
        return numbers[id(tensor)]

    def tensors(value: Any) -> list[Any]:
        return [leaf for _, leaf in flatten(value) if framework.is_tensor(leaf)]

    def hear(name: str, given: Any, result: Any, function: type | None = None) -> None:
        outputs = tensors(result)
        if outputs and name not in _SILENT:
            inputs = tuple(number(one) for one in tensors(given))
            # Results are always new: an operator in place gives the same object other values.
            for one in outputs:
                numbers.pop(id(one), None)
            results = tuple(number(one) for one in outputs)
            trace.operators.append(Operator(name, inputs, results, _line(), _given(given), _written_at(function)))

    state = framework.rng_state()
    try:
        with hands.precision(dtype):
            framework.seed(0)
            module = dict(program.modules(program.fresh(dtype)))[path]
            leaves: list[tuple[str, Any]] = []
            args = tuple(as_leaves(arg, "", dtype, hands, leaves) for arg in call.args)
            kwargs = {name: as_leaves(arg, name, dtype, hands, leaves) for name, arg in call.kwargs.items()}
            for one in tensors((args, kwargs)):
                # An input that one side does not use is there all the same.
                number(one)
            with shared_masks(program, module, Masks(seed=0)), hands.operators(hear):
                output = canonical_output(framework.kind(module), module(*args, **kwargs))
            trace.results = tuple(numbers[id(one)] for one in tensors(output) if id(one) in numbers)
            backward_from(program, call, output)
    finally:
        framework.set_rng_state(state)
    for place, parts in found.items():
        # A hook may hear of no gradient: nothing of what follows depends on the tensor.
        known = [part for part in parts if part is not None]
        if known:
            trace.gradients[place] = _sorted(sum(known))
    return trace


def _sorted(tensor: Any) -> Array:
    return np.sort(to_numpy(tensor).astype(np.float64), axis=None)


def _line() -> str:
    """The line of the model's own code that called an operator."""
    frame = sys._getframe(1)
    # Beyond the tracing function stands whoever asked for it, and not the model.
    while frame is not None and frame.f_code is not trace_layer.__code__:
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
