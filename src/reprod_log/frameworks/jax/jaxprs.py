"""Jaxprs: a traced function run equation by equation inside another, with the values at its marks and their lines.

A call happens while a function is traced, when there are no values yet. A mark is an equation of its own that computes
nothing: it survives jit, grad, vmap, scan and remat, and its transpose marks the gradient. Whoever runs the jaxpr reads
the values at the marks; the compiled program is the unmarked one.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from reprod_log.errors import UsageError

Mark = tuple[str, str, int, str]
"""What a value is ("" for itself, "tangent", "gradient"), and its place."""
MARK = Primitive("reprod_mark")
MARK.def_impl(lambda x, *, name: x)
MARK.def_abstract_eval(lambda x, *, name: x)
mlir.register_lowering(MARK, lambda ctx, x, *, name: [x])


def _tangent(primals: Any, tangents: Any, *, name: Mark) -> Any:
    (value,), (tangent,) = primals, tangents
    given = MARK.bind(value, name=name)
    return given, tangent if isinstance(tangent, ad.Zero) else MARK.bind(tangent, name=("tangent", *name[1:]))


def _transposed(gradient: Any, *_: Any, name: Mark) -> Any:
    return [gradient if isinstance(gradient, ad.Zero) else MARK.bind(gradient, name=("gradient", *name[1:]))]


def _batched(values: Any, axes: Any, *, name: Mark) -> Any:
    # The batch goes to the front for the reader and back again, so that what follows finds the axes as they were.
    (value,), (axis,) = values, axes
    return jnp.moveaxis(MARK.bind(jnp.moveaxis(value, axis, 0), name=name), 0, axis), axis


ad.primitive_jvps[MARK] = _tangent
ad.primitive_transposes[MARK] = _transposed
batching.primitive_batchers[MARK] = _batched

_BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")
CALLS = ("jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_jvp_call",
          "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_lin")  # fmt: skip
"""Equations that only call a jaxpr."""
_UNOPTIMISED = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
_LIBRARIES = re.compile(
    r"-packages/(jax|jaxlib|flax|haiku|equinox|optax|jaxtyping)/|/reprod_log/|/(contextlib|functools)\.py$"
)
_SCOPE = re.compile(r"\[([^\]]*)\]")


@dataclass
class Evaluator:
    """Runs the equations of a jaxpr; what is `wide` runs in float64 wherever its author asked for less."""

    wide: bool = False
    found: dict[Mark, Any] = field(default_factory=dict)
    """Values by the name of the mark, in the order of execution; the first where a mark is met again."""
    looped: dict[Mark, tuple[Any, int]] = field(default_factory=dict)
    """Of marks inside of loops: which loop, and over how many of them the values are stacked."""

    def run(self, jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, map(self._wide, consts), strict=True))
        values.update(zip(jaxpr.invars, map(self._wide, args), strict=True))

        def read(one: Any) -> Any:
            return self._wide(one.val) if hasattr(one, "val") else values[one]

        for equation in jaxpr.eqns:
            values.update(zip(equation.outvars, self.equation(equation, list(map(read, equation.invars))), strict=True))
        return list(map(read, jaxpr.outvars))

    def equation(self, equation: Any, given: list[Any]) -> Sequence[Any]:
        name, params = equation.primitive.name, equation.params
        if equation.primitive is MARK:
            if params["name"][0] != "tangent":
                self.found.setdefault(params["name"], given[0])
            return given
        if name in CALLS:
            body = body_of(params)
            return self.run(*body, given)
        if name == "scan":
            return self.scan(equation, given)
        if self.wide and name in ("while", "cond"):
            return self._branching(name, params, given)
        if self.wide and name == "reduce_precision":
            return given
        return bound(equation, given, self.wide)

    def scan(self, equation: Any, given: list[Any]) -> list[Any]:
        params = equation.params
        body, consts, carry = params["jaxpr"], params["num_consts"], params["num_carry"]
        names: list[tuple[Mark, int]] = []

        def step(carried: Any, xs: Any) -> Any:
            inner = Evaluator(self.wide)
            outputs = inner.run(body.jaxpr, body.consts, [*given[:consts], *carried, *xs])
            names[:] = [(name, inner.looped.get(name, (0, 0))[1] + 1) for name in inner.found]
            return outputs[:carry], (outputs[carry:], list(inner.found.values()))

        start, over = given[consts : consts + carry], given[consts + carry :]
        last, (stacked, marked) = lax.scan(
            step, start, over, length=params["length"], reverse=params["reverse"], unroll=params["unroll"]
        )
        for (name, depth), value in zip(names, marked, strict=True):
            if name not in self.found:
                self.found[name], self.looped[name] = value, (id(equation), depth)
        return [*last, *stacked]

    def _branching(self, name: str, params: Mapping[str, Any], given: list[Any]) -> Sequence[Any]:
        """A loop or a choice whose parts run wide; what is marked inside of them has no place of its own outside."""

        def part(closed: Any) -> Callable[..., list[Any]]:
            return lambda *args: Evaluator(self.wide).run(closed.jaxpr, closed.consts, args)

        if name == "cond":
            return list(lax.switch(given[0], [part(one) for one in params["branches"]], *given[1:]))
        ends, steps = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        test, body = part(params["cond_jaxpr"]), part(params["body_jaxpr"])
        return list(
            lax.while_loop(
                lambda carry: test(*given[:ends], *carry)[0],
                lambda carry: body(*given[ends:steps], *carry),
                given[steps:],
            )
        )

    def _wide(self, value: Any) -> Any:
        if self.wide and jnp.issubdtype(jnp.result_type(value), jnp.floating):
            return jnp.asarray(value, jnp.float64)
        return value


def body_of(params: Mapping[str, Any]) -> tuple[Any, Sequence[Any]]:
    """What an equation calls: a jaxpr and its constants."""
    body = next(params[name] for name in _BODIES if name in params)
    return (body.jaxpr, body.consts) if hasattr(body, "consts") else (body, ())


def bound(equation: Any, given: Sequence[Any], wide: bool) -> Sequence[Any]:
    """The results of one equation; `wide`: of the type float64 where its author asked for a narrower one."""
    params = {name: _widened(one) for name, one in equation.params.items()} if wide else equation.params
    found = equation.primitive.get_bind_params(params)
    # Older versions of JAX give functions besides.
    functions, params = found if isinstance(found, tuple) else ((), found)
    results = equation.primitive.bind(*functions, *given, **params)
    return results if equation.primitive.multiple_results else [results]


def _widened(param: Any) -> Any:
    if isinstance(param, (np.dtype, type)) and jnp.issubdtype(param, jnp.floating):
        return np.dtype("float64")
    return param


def equations_in(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr and of what it calls."""
    for equation in jaxpr.eqns:
        yield equation
        for param in equation.params.values():
            for one in param if isinstance(param, (tuple, list)) else (param,):
                body = getattr(one, "jaxpr", one)
                if hasattr(body, "eqns"):
                    yield from equations_in(body)


class Traced:
    """A function traced once for arguments of these shapes; its results and what its marks have come in one run."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], *, wide: bool) -> None:
        self.jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        _refuse_randomness(self.jaxpr.jaxpr)
        tree = jax.tree.structure(shapes)
        self._names: list[Mark] = []
        self._looped: dict[Mark, tuple[Any, int]] = {}

        def run(leaves: list[Any]) -> Any:
            evaluator = Evaluator(wide)
            outputs = evaluator.run(self.jaxpr.jaxpr, self.jaxpr.consts, leaves)
            self._names, self._looped = list(evaluator.found), evaluator.looped
            return jax.tree.unflatten(tree, outputs), list(evaluator.found.values())

        # Whoever asks for float64 wants the truth, not the speed; what is compiled as it is keeps its bits.
        self._run = jax.jit(run, compiler_options=_UNOPTIMISED if wide else None)

    def __call__(self, *args: Any) -> tuple[Any, dict[Mark, Any]]:
        """What it returns, and values by mark in the order of execution."""
        result, values = self._run(jax.tree.leaves(args))
        return result, self._taken_apart(dict(zip(self._names, values, strict=True)))

    def _taken_apart(self, values: Mapping[Mark, Any]) -> dict[Mark, Any]:
        """One value for each turn of a loop, as if the calls had been written one after the other."""
        turns: dict[tuple[str, Any], list[int]] = {}
        for kind, path, call, role in values:
            if (kind, path, call, role) in self._looped and kind != "gradient":
                calls = turns.setdefault((path, self._looped[kind, path, call, role][0]), [])
                calls.extend([call] if call not in calls else [])
        later: dict[str, dict[int, int]] = {}
        found: dict[Mark, Any] = {}
        for name, value in values.items():
            kind, path, call, role = name
            if name not in self._looped:
                extra = sum(count for first, count in later.get(path, {}).items() if first < call)
                found[kind, path, call + extra, role] = value
                continue
            depth = self._looped[name][1]
            calls = next((calls for (one, _), calls in turns.items() if one == path and call in calls), [call])
            flat = value.reshape(-1, *value.shape[depth:])
            later.setdefault(path, {})[calls[-1]] = len(calls) * (len(flat) - 1)
            for turn, one in enumerate(flat):
                found[kind, path, calls[0] + turn * len(calls) + calls.index(call), role] = one
        return found


def _refuse_randomness(jaxpr: Any) -> None:
    for equation in equations_in(jaxpr):
        if equation.primitive.name in ("random_bits", "threefry2x32"):
            raise UsageError(
                f"the model draws random numbers of its own ({line_of(equation) or 'in its code'}), which the other "
                "side does not have: put it in evaluation mode, or set its rates of dropout to 0 on both sides"
            )


def line_of(equation: Any) -> str:
    """File, number and text of the innermost line outside of the libraries; '' when there is none."""
    trace = equation.source_info.traceback
    for frame in () if trace is None else trace.frames:
        if not _LIBRARIES.search(frame.file_name) and not frame.file_name.startswith("<"):
            text = linecache.getline(frame.file_name, frame.line_num).strip()
            place = f"{Path(frame.file_name).name}:{frame.line_num}"
            return f"{place}: {text}" if text else place
    return ""


def path_of(equation: Any, around: str) -> str:
    """The path of the module in whose call it stands; `around` where only what calls the jaxpr says so."""
    scopes = _SCOPE.findall(str(equation.source_info.name_stack))
    return scopes[-1] if scopes else around
