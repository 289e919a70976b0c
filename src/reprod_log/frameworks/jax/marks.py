"""Marks: what every module is given and gives, marked inside a traced function and read from its jaxpr.

A call happens while a function is traced, when there are no values yet. A mark is an equation of its own that computes
nothing: it survives jit, grad, vmap, scan and remat, and its transpose marks the gradient. Whoever runs the jaxpr
(jaxprs.py) reads the values at the marks; the compiled program is the unmarked one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from reprod_log.frameworks.hooks import subclasses
from reprod_log.frameworks.trees import replacement

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


with_gradient = jax.custom_vjp(lambda value, gradient: value)
"""The value; what goes on backwards from here is `gradient`."""
with_gradient.defvjp(lambda value, gradient: (value, gradient), lambda gradient, _: (gradient, None))


def is_array(leaf: object) -> bool:
    return isinstance(leaf, jax.Array) and not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def is_floating(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def _patch(undo: ExitStack, cls: type, instead: Callable[..., Any]) -> None:
    if "__call__" in vars(cls):
        # Past the refusal of classes that are not to be changed.
        undo.callback(type.__setattr__, cls, "__call__", vars(cls)["__call__"])
        type.__setattr__(cls, "__call__", replacement(vars(cls)["__call__"], instead))


@contextmanager
def every_call(base: Any, instead: Callable[..., Any]) -> Iterator[None]:
    """While it lasts, calls of all modules go to instead(module, original, args, kwargs), of classes made later too."""
    had = vars(base).get("__init_subclass__")
    with ExitStack() as undo:

        def make(cls: type, *args: Any, **kwargs: Any) -> None:
            made = super(base, cls).__init_subclass__ if had is None else had.__get__(None, cls)
            made(*args, **kwargs)
            _patch(undo, cls, instead)

        def restore() -> None:
            if had is None:
                type.__delattr__(base, "__init_subclass__")
            else:
                type.__setattr__(base, "__init_subclass__", had)

        type.__setattr__(base, "__init_subclass__", classmethod(make))
        undo.callback(restore)
        for cls in {*subclasses(base)}:
            _patch(undo, cls, instead)
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
