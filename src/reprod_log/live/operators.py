"""Operators of a layer on both sides, matched by value: which one is the first that the other side does not have?

Layouts do not matter, since tensors are compared by their sorted values. Another formulation does not either: an
operator whose result is missing there is forgiven when something computed from it is found again. The backward pass is
looked at in the same way, from the outputs to the inputs: the operator at fault is given a gradient that the other side
knows and gives back one that it does not.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.capture import flatten, to_numpy
from reprod_log.capture.outputs import canonical_output
from reprod_log.errors import ReprodLogError
from reprod_log.live.isolation import Call, as_leaves, backward_from
from reprod_log.live.masks import Masks, shared_masks
from reprod_log.live.program import Program
from reprod_log.record import Array

_SAME = 1e-6
"""Relative to the largest value; above what kernels with float32 constants inside a float64 run differ by."""
_FILL = 1e5
"""Times the smaller values of a tensor: what is equal and larger than this is no score but a mask's fill."""
_NOT_OURS = ("torch", "paddle", "reprod_log")
_SILENT = ("__set__", "full", "assign", "assign_value_", "full_", "detach", "requires_grad_")


@dataclass(frozen=True)
class Operator:
    """One call: its name, what went in and came out, and the line of the user's code that made it."""

    name: str
    inputs: tuple[int, ...]
    """Numbers of tensors in the trace."""
    outputs: tuple[int, ...]
    line: str


@dataclass
class Trace:
    """Every operator of one forward pass of a layer, in order."""

    operators: list[Operator] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)
    """Sorted values of every tensor."""
    gradients: dict[int, Array] = field(default_factory=dict)
    """Sorted gradients of the tensors that have one, by their numbers."""
    results: tuple[int, ...] = ()
    """Numbers of what the layer gave in the end."""


@dataclass(frozen=True)
class Culprits:
    """The first operator of either side that the other one does not have; None when all are found."""

    reference: Operator | None
    candidate: Operator | None
    backward: bool = False
    """Whether it is the operators' backward pass that differs."""

    def __bool__(self) -> bool:
        return self.reference is not None or self.candidate is not None


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
            trace.values.append(_sorted(tensor))
            framework.on_gradient(tensor, found.setdefault(numbers[id(tensor)], []).append)
        return numbers[id(tensor)]

    def tensors(value: Any) -> list[Any]:
        return [leaf for _, leaf in flatten(value) if framework.is_tensor(leaf)]

    def hear(name: str, given: Any, result: Any) -> None:
        outputs = tensors(result)
        if outputs and name not in _SILENT:
            inputs = tuple(number(one) for one in tensors(given))
            # Results are always new: an operator in place gives the same object other values.
            for one in outputs:
                numbers.pop(id(one), None)
            trace.operators.append(Operator(name, inputs, tuple(number(one) for one in outputs), _line()))

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
    trace.gradients.update({number: _sorted(sum(parts)) for number, parts in found.items() if parts})
    return trace


def _sorted(tensor: Any) -> Array:
    return np.sort(to_numpy(tensor).astype(np.float64), axis=None)


def find_culprits(reference: Trace, candidate: Trace) -> Culprits:
    """The operators at fault in the forward pass; those of the backward pass when there are none."""
    ours, theirs = _forward(reference), _forward(candidate)
    forward = Culprits(_culprit(ours, theirs), _culprit(theirs, ours))
    if forward:
        return forward
    ours, theirs = _backward(reference), _backward(candidate)
    return Culprits(_culprit(ours, theirs), _culprit(theirs, ours), backward=True)


@dataclass(frozen=True)
class _Flow:
    """Tensors on their way through operators, in either direction."""

    steps: tuple[tuple[Operator, tuple[int, ...], tuple[int, ...]], ...]
    """Each operator with the numbers of what it is given and what it gives."""
    values: Mapping[int, Array]
    ends: frozenset[int]
    """Numbers of what comes out at the end, or is used on the way: all else has no consequence."""


def _forward(trace: Trace) -> _Flow:
    steps = tuple((one, one.inputs, one.outputs) for one in trace.operators)
    # A dropout whose result is replaced by the shared mask is computed, and used by nobody.
    used = {number for _, given, _ in steps for number in given} | set(trace.results)
    return _Flow(steps, dict(enumerate(trace.values)), frozenset(used))


def _backward(trace: Trace) -> _Flow:
    """The gradients: every operator takes those of its outputs and gives those of its inputs."""
    known = trace.gradients
    steps = [
        (one, tuple(n for n in one.outputs if n in known), tuple(n for n in one.inputs if n in known))
        for one in reversed(trace.operators)
    ]
    return _Flow(tuple(step for step in steps if step[1]), known, frozenset(known))


def _culprit(flow: _Flow, other: _Flow) -> Operator | None:
    by_size: dict[int, list[Array]] = {}
    for values in other.values.values():
        by_size.setdefault(values.size, []).append(values)
    there = {
        number: any(_same(values, one) for one in by_size.get(values.size, ()))
        for number, values in flow.values.items()
    }
    for place, (operator, given, gives) in enumerate(flow.steps):
        lost = any(not there[number] for number in gives if number in flow.ends)
        if lost and all(there[number] for number in given) and not _healed(flow, place, there):
            return operator
    return None


def _healed(flow: _Flow, place: int, there: Mapping[int, bool]) -> bool:
    """Whether something computed from the operator's result is found again on the other side."""
    reached = {number for number in flow.steps[place][2] if not there[number]}
    for _, given, gives in flow.steps[place + 1 :]:
        if not reached.isdisjoint(given):
            telling = [number for number in gives if _tells(flow.values[number])]
            if telling and all(there[number] for number in telling):
                return True
            reached.update(gives)
    return False


def _tells(values: Array) -> bool:
    return values.size > 3 and bool(values[0] != values[-1])


def _same(one: Array, other: Array) -> bool:
    equal = one == other
    with np.errstate(invalid="ignore"):
        sizes = np.abs(one)
        # A mask's fill (-inf, -1e9) is equal on both sides and must not set the scale for the scores beside it.
        small = np.percentile(sizes[sizes > 0], 25) if (sizes > 0).any() else 0.0
        counted = sizes[~(equal & (sizes > _FILL * small))]
        largest = float(counted[np.isfinite(counted)].max(initial=0.0))
        return bool((equal | (np.abs(one - other) <= _SAME * largest)).all())


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


def culprits_in(ours: Program, theirs: Program, call: Call, partner: str, dtype: str) -> Culprits | None:
    """The operators at fault inside one layer; None when a side cannot be traced."""
    try:
        return find_culprits(trace_layer(ours, call, call.path, dtype), trace_layer(theirs, call, partner, dtype))
    except ReprodLogError:
        raise
    except Exception:  # a framework may raise anything; without a trace there is no finding
        return None
