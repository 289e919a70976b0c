"""Taps: what every module is given and gives, marked inside a traced function and read from its jaxpr.

A call happens while a function is traced, when there are no values yet. A mark is an equation of its own that computes
nothing: it survives jit, grad, vmap, scan and remat, and its transpose marks the gradient. Whoever runs the jaxpr
(jaxprs.py) reads the values at the marks; the compiled program is the unmarked one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from reprod_log.frameworks.nests import flatten, mapped
from reprod_log.frameworks.values import name_of

MARK = Primitive("reprod_mark")
MARK.def_impl(lambda x, *, name: x)
MARK.def_abstract_eval(lambda x, *, name: x)
mlir.register_lowering(MARK, lambda ctx, x, *, name: [x])


def _tangent(primals: Any, tangents: Any, *, name: str) -> Any:
    (value,), (tangent,) = primals, tangents
    given = MARK.bind(value, name=name)
    return given, tangent if isinstance(tangent, ad.Zero) else MARK.bind(tangent, name=f"tangent {name}")


def _transposed(gradient: Any, *_: Any, name: str) -> Any:
    named = name.removeprefix("tangent ")
    return [gradient if isinstance(gradient, ad.Zero) else MARK.bind(gradient, name=f"gradient {named}")]


def _batched(values: Any, axes: Any, *, name: str) -> Any:
    # The batch goes to the front for the reader and back again, so that what follows finds the axes as they were.
    (value,), (axis,) = values, axes
    return jnp.moveaxis(MARK.bind(jnp.moveaxis(value, axis, 0), name=name), 0, axis), axis


ad.primitive_jvps[MARK] = _tangent
ad.primitive_transposes[MARK] = _transposed
batching.primitive_batchers[MARK] = _batched


_with_gradient = jax.custom_vjp(lambda value, gradient: value)
"""The value; what goes on backwards from here is `gradient`."""
_with_gradient.defvjp(lambda value, gradient: (value, gradient), lambda gradient, _: (gradient, None))


@dataclass
class Taps:
    """What the calls of one traced function give; a new one for every trace."""

    masks: list[Any] | Callable[[tuple[int, ...], float], Any] | None = None
    """Of dropout, in the order of the calls, or what draws one; None: they are only asked for."""
    dropout: bool = True
    """False: nothing is dropped."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """What stands in for what modules give, by place."""
    gradients: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings that modules have instead of their own, by path and native name."""
    set_setting: Callable[[Any, str, Any], None] = setattr
    asked: list[tuple[tuple[int, ...], float]] = field(default_factory=list)
    """Shapes and rates of the masks."""
    modules: dict[str, Any] = field(default_factory=dict)
    """By path, in the order of their first calls."""
    arguments: dict[str, tuple[Any, Any, Any]] = field(default_factory=dict)
    """Of the first call of every module, in the order of their ends: what it was given and what it returned."""
    _calls: dict[str, int] = field(default_factory=dict)
    _running: list[tuple[int, str]] = field(default_factory=list)

    def call(
        self,
        module: Any,
        path: str,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        rate: float = 0.0,
    ) -> Any:
        """The call of a module; `rate` is that of a dropout which is on."""
        if self._running and self._running[-1] == (id(module), path):
            # A class calls the method of the one that it descends from.
            return original(*args, **kwargs)
        number = self._calls[path] = self._calls.get(path, -1) + 1
        self.modules.setdefault(path, module)
        for name, value in self.settings.get(path, {}).items():
            self.set_setting(module, name, value)
        same: dict[int, Any] = {}

        def given(role: str, leaf: Any) -> Any:
            if is_array(leaf) and id(leaf) not in same:
                same[id(leaf)] = self.mark(leaf, name_of((path, number, role)))
            return same.get(id(leaf), leaf)

        args, kwargs = mapped(args, given, "input"), mapped(kwargs, given, "input")
        self._running.append((id(module), path))
        try:
            with jax.named_scope(f"[{path}]"):
                output = original(*args, **kwargs) if not rate else self._dropped(args, kwargs, rate)
        finally:
            self._running.pop()
        shown = mapped(output, lambda role, leaf: self._given(name_of((path, number, role)), leaf), "output")
        if number == 0:
            self.arguments[path] = (args, kwargs, output)
        return shown

    def mark(self, leaf: Any, name: str) -> Any:
        """The same array, known by its name from here on."""
        return MARK.bind(leaf, name=name)

    def _given(self, name: str, leaf: Any) -> Any:
        if not is_array(leaf):
            return leaf
        floating = is_floating(leaf)
        if name in self.gradients and floating:
            leaf = _with_gradient(leaf, jnp.asarray(self.gradients[name], leaf.dtype))
        leaf = self.mark(leaf, name)
        if name in self.outputs and floating and self.outputs[name].shape == leaf.shape:
            # What is recorded is what was computed, and so is the gradient; what goes on is what was given.
            leaf = jnp.asarray(self.outputs[name], leaf.dtype) + (leaf - jax.lax.stop_gradient(leaf))
        return leaf

    def _dropped(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], rate: float) -> Any:
        value = next(iter((*args, *kwargs.values())))
        if not self.dropout:
            return value
        shape = tuple(value.shape)
        self.asked.append((shape, rate))
        if self.masks is None:
            return value
        mask = self.masks(shape, rate) if callable(self.masks) else self.masks[len(self.asked) - 1]
        return value * jnp.asarray(mask, value.dtype)


def is_array(leaf: object) -> bool:
    return isinstance(leaf, jax.Array) and not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def is_floating(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def arrays_in(structure: Any, name: str) -> list[tuple[str, Any]]:
    return [(role, leaf) for role, leaf in flatten(structure, name) if is_array(leaf)]


def replacement(original: Any, instead: Callable[..., Any]) -> Callable[..., Any]:
    """A method in the place of another: instead(object, original, args, kwargs)."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return instead(self, original.__get__(self, type(self)), args, kwargs)

    return call


@contextmanager
def patched(modules: Iterable[Any], instead: Callable[[Any, Callable[..., Any], Any, Any], Any]) -> Iterator[None]:
    """While it lasts, calls of these modules' classes go to instead(module, original, args, kwargs)."""
    classes = {cls for one in modules for cls in type(one).__mro__ if "__call__" in vars(cls) and cls is not object}

    with ExitStack() as undo:
        for cls in classes:
            # Past the refusal of classes that are not to be changed.
            undo.callback(type.__setattr__, cls, "__call__", vars(cls)["__call__"])
            type.__setattr__(cls, "__call__", replacement(vars(cls)["__call__"], instead))
        yield


# ---- values out of a program of the user's own ----------------------------------------------------------------------

_CONTEXT = jax.make_user_context(None)
_WATCHES = count(1)


def traced_anew() -> AbstractContextManager[Any]:
    """While it lasts, jitted functions are traced anew; those that were compiled before come back after it."""
    manager: AbstractContextManager[Any] = _CONTEXT(next(_WATCHES))
    return manager


def emit(receive: Callable[..., None], value: Any) -> None:
    """Have `receive(array=…)` called with a value when it is computed. Examples of a vmap come as a batch."""

    @jax.custom_batching.custom_vmap  # type: ignore[untyped-decorator]
    def called(one: Any) -> Any:
        jax.debug.callback(lambda array: receive(array=np.asarray(array)), one, ordered=True)
        return one

    @called.def_vmap  # type: ignore[untyped-decorator]
    def _(size: int, batched: Any, one: Any) -> Any:
        emit(receive, one)
        return one, True

    called(jax.lax.stop_gradient(value))


def both_ways(forward: Callable[..., None], backward: Callable[..., None], value: Any) -> Any:
    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def tap(one: Any) -> Any:
        emit(forward, one)
        return one

    def back(_: Any, gradient: Any) -> tuple[Any]:
        emit(backward, gradient)
        return (gradient,)

    tap.defvjp(lambda one: (tap(one), None), back)
    return tap(value)
