"""Operators: the equations of a traced function run one by one in float64, to be read, and to be run again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from reprod_log.frameworks.contract import Operator, Program, Trace
from reprod_log.frameworks.jax.engine import ENGINE
from reprod_log.frameworks.jax.jaxprs import CALLS, MARK, Evaluator, Mark, bound, line_of, path_of
from reprod_log.frameworks.jax.model import to_array
from reprod_log.recording import Array

_PLAIN = ("convert_element_type", "copy", "copy_p", "stop_gradient", "optimization_barrier")
"""Equations that give what they are given, once everything is float64."""
_Again = Callable[[Sequence[Any]], Sequence[Any]]


@dataclass
class JaxProgram(Program):
    """Every equation of a forward pass, with what it was given and gave."""

    calls: list[tuple[_Again, tuple[int, ...]]] = field(default_factory=list)

    def again(self, place: int, tensors: Mapping[int, Any]) -> list[Any]:
        function, numbers = self.calls[place]
        with jax.enable_x64(True):
            given = [tensors[one] if one in tensors else jnp.asarray(self.arrays[one]) for one in numbers]
            return list(function(given))

    def tensor(self, array: Array) -> Any:
        with jax.enable_x64(True):
            return jnp.asarray(array)

    def array(self, tensor: Any) -> Array:
        return to_array(tensor)


class _Recorder(Evaluator):
    """Runs a jaxpr on values and keeps every equation; loops run turn by turn, choices take their branch."""

    def __init__(self, program: JaxProgram, layers: Mapping[str, str]) -> None:
        super().__init__(wide=True)
        self.program, self._layers = program, layers
        self._inside: tuple[str, int] | None = None
        """The path of the layer whose equations come now, and where they begin."""
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []
        self._path = ""

    def number(self, value: Any) -> int:
        if id(value) not in self._numbers:
            self._kept.append(value)
            self._numbers[id(value)] = len(self.program.arrays)
            self.program.arrays.append(to_array(jnp.asarray(value)))
        return self._numbers[id(value)]

    def equation(self, equation: Any, given: list[Any]) -> Sequence[Any]:
        name = equation.primitive.name
        if equation.primitive is MARK:
            self._marked(equation.params["name"])
            return given
        around, self._path = self._path, path_of(equation, self._path)
        try:
            if name == "scan":
                return self._unrolled(equation, given)
            if name == "cond":
                branch = equation.params["branches"][int(given[0])]
                return self.run(branch.jaxpr, branch.consts, given[1:])
            if name in _PLAIN and all(
                _same(one.aval, two.aval) for one, two in zip(equation.invars, equation.outvars, strict=True)
            ):
                return given
            results = super().equation(equation, given)
            if not all(any(one is other for other in given) for one in results) and name not in CALLS:
                self._keep(name, lambda values: bound(equation, values, wide=True), given, results, line_of(equation))
            return results
        finally:
            self._path = around

    def _marked(self, name: Mark) -> None:
        """A layer begins with what it is given and ends with what it gives: what is between is one kernel."""
        _, path, _, role = name
        if path not in self._layers:
            return
        if role.startswith("input"):
            self._inside = self._inside or (path, len(self.program.kernels))
        elif self._inside is not None:
            self._fuse(*self._inside)
            self._inside = None

    def _fuse(self, path: str, first: int) -> None:
        kernels, calls = self.program.kernels[first:], self.program.calls[first:]
        if len(kernels) < 2:
            return
        made = {number for one in kernels for number in one.outputs}
        inputs = tuple(dict.fromkeys(n for one in kernels for n in one.inputs if n not in made))
        outputs = tuple(dict.fromkeys(n for one in kernels for n in one.outputs))

        def again(values: Sequence[Any]) -> Sequence[Any]:
            known = dict(zip(inputs, values, strict=True))
            for kernel, (function, numbers) in zip(kernels, calls, strict=True):
                known.update(zip(kernel.outputs, function([known[one] for one in numbers]), strict=True))
            return [known[one] for one in outputs]

        line = next((one.line for one in kernels if one.line), "")
        self.program.kernels[first:] = [Operator(self._layers[path], inputs, outputs, line, path)]
        self.program.calls[first:] = [(again, inputs)]

    def _keep(self, name: str, again: _Again, given: Sequence[Any], results: Sequence[Any], line: str) -> None:
        inputs = tuple(map(self.number, given))
        outputs = tuple(map(self.number, results))
        self.program.kernels.append(Operator(name, inputs, outputs, line, self._path))
        self.program.calls.append((again, inputs))

    def _unrolled(self, equation: Any, given: list[Any]) -> list[Any]:
        params = equation.params
        body, consts, carry = params["jaxpr"], params["num_consts"], params["num_carry"]
        carried, over = given[consts : consts + carry], given[consts + carry :]
        turns: dict[int, list[Any]] = {}
        order = range(params["length"])
        for turn in reversed(order) if params["reverse"] else order:
            xs = [self._one("slice", partial(_turn, turn), [one], equation) for one in over]
            outputs = self.run(body.jaxpr, body.consts, [*given[:consts], *carried, *xs])
            carried, turns[turn] = outputs[:carry], outputs[carry:]
        columns = [[turns[turn][place] for turn in order] for place in range(len(body.jaxpr.outvars) - carry)]
        return [*carried, *(self._one("stack", lambda values: [jnp.stack(values)], one, equation) for one in columns)]

    def _one(self, name: str, function: _Again, given: list[Any], equation: Any) -> Any:
        results = function(given)
        self._keep(name, function, given, results, line_of(equation))
        return results[0]


def _turn(turn: int, values: Sequence[Any]) -> Sequence[Any]:
    return [values[0][turn]]


def _same(one: Any, other: Any) -> bool:
    """Whether two types differ by the width of floating numbers only."""
    floating = [jnp.issubdtype(aval.dtype, jnp.floating) for aval in (one, other)]
    return bool(one.shape == other.shape and (all(floating) or one.dtype == other.dtype))


def recorded(
    function: Callable[..., dict[str, Any]],
    arrays: Mapping[str, Any],
    batch: tuple[Any, Any],
    *,
    named: Collection[str],
    layers: Callable[[], Mapping[str, str]],
) -> JaxProgram:
    """The program function(arrays, inputs, targets) → results by role.

    `named` are the weights; `layers`, asked after the trace, are those of the library, by path with their type: each is
    one kernel, as it is in other frameworks.
    """
    traced, shapes = jax.make_jaxpr(function, return_shape=True)(arrays, *batch)
    program = JaxProgram()
    recorder = _Recorder(program, layers())
    copies = {path: jnp.copy(one) for path, one in arrays.items()}
    for path, one in copies.items():
        if path in named:
            program.weights[recorder.number(one)] = path
    for name, nest in zip(("input", "target"), batch, strict=True):
        program.given |= {role: recorder.number(one) for role, one in ENGINE.tensors_in(nest, name)}
    results = recorder.run(traced.jaxpr, traced.consts, jax.tree.leaves((copies, *batch)))
    # A dictionary's leaves come sorted by name; roles are wanted in the order of the program.
    found = dict(zip(sorted(shapes), results, strict=True))
    program.results = {role: recorder.number(found[role]) for role in shapes}
    return program


def trace(function: Callable[..., dict[str, Any]], args: tuple[Any, ...], weights: Mapping[str, Any] | None) -> Trace:
    """Every operator of a function that gives tensors by role, with gradients of the weighted sum of these."""
    jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    leaves = [jnp.copy(one) if ENGINE.is_tensor(one) else one for one in jax.tree.leaves(args)]
    program = JaxProgram()
    recorder = _Recorder(program, {})
    for one in leaves:
        recorder.number(one)
    results = dict(zip(sorted(shapes), recorder.run(jaxpr.jaxpr, jaxpr.consts, leaves), strict=True))
    found = Trace(list(program.kernels))
    found.arrays = [np.asarray(one, np.float64) for one in program.arrays]
    found.values = [np.sort(one, axis=None) for one in found.arrays]
    found.calls = [partial(_called_again, program, place) for place in range(len(program.kernels))]
    numbers = {role: recorder.number(results[role]) for role in shapes}
    found.results = tuple(numbers.values())
    full = {role: jnp.ones_like(one) for role, one in results.items()} if weights is None else weights
    found.gradients = _gradients(program, [(numbers[role], one) for role, one in full.items()])
    return found


def _called_again(program: JaxProgram, place: int, values: Mapping[int, Array]) -> list[Array]:
    tensors = {number: program.tensor(array) for number, array in values.items()}
    return [np.asarray(one, np.float64) for one in program.again(place, tensors)]


def _gradients(program: JaxProgram, weights: Sequence[tuple[int, Any]]) -> dict[int, Array]:
    """The sorted gradient of every floating tensor that what comes out depends on."""
    gradients: dict[int, Any] = {}
    for number, weight in weights:
        if program.arrays[number].dtype.kind == "f":
            gradients[number] = gradients.get(number, 0) + weight
    for kernel, (again, numbers) in zip(reversed(program.kernels), reversed(program.calls), strict=True):
        if not any(one in gradients for one in kernel.outputs):
            continue
        floating = [place for place, one in enumerate(numbers) if program.arrays[one].dtype.kind == "f"]
        given = [jnp.asarray(program.arrays[one]) for one in numbers]

        def run(*values: Any, again: _Again = again, given: list[Any] = given, floating: list[int] = floating) -> Any:
            full = list(given)
            for place, value in zip(floating, values, strict=True):
                full[place] = value
            return [one for one in again(full) if jnp.issubdtype(one.dtype, jnp.floating)]

        _, back = jax.vjp(run, *(given[place] for place in floating))
        outputs = [one for one in kernel.outputs if program.arrays[one].dtype.kind == "f"]
        arriving = [gradients.get(one, jnp.zeros_like(program.arrays[one])) for one in outputs]
        for place, one in zip(floating, back(arriving), strict=True):
            gradients[numbers[place]] = gradients.get(numbers[place], 0) + one
    return {number: np.sort(np.asarray(one, np.float64), axis=None) for number, one in gradients.items()}
