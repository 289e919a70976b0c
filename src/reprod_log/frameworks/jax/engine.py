"""The engine of JAX: a pass is one jitted function, which gives every value and every gradient that is marked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from reprod_log.frameworks.contract import Draw
from reprod_log.frameworks.jax.jaxprs import MARK, Traced
from reprod_log.frameworks.jax.model import set_setting, to_array
from reprod_log.frameworks.trees import Computed, Engine, Function, Leaves, Pass, Taps
from reprod_log.frameworks.values import Place
from reprod_log.recording import Array

_CONTEXT = jax.make_user_context(None)
"""Part of the key by which jitted functions are kept: under another value they are traced anew."""
_WATCHES = count(1)
_with_gradient = jax.custom_vjp(lambda value, gradient: value)
_with_gradient.defvjp(lambda value, gradient: (value, gradient), lambda gradient, _: (gradient, None))


class JaxEngine(Engine):
    def __init__(self, name: str = "jax", *, own_modules: bool = True) -> None:
        self.name, self._own_modules = name, own_modules
        """Whether the modules that are called are copies, which settings can be put into."""

    def is_tensor(self, value: object) -> bool:
        return isinstance(value, jax.Array) and not jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)

    def is_floating(self, tensor: Any) -> bool:
        return bool(jnp.issubdtype(tensor.dtype, jnp.floating))

    def tensor(self, array: Any, dtype: Any = None) -> Any:
        return jnp.asarray(array, dtype)

    def to_array(self, tensor: Any) -> Array:
        return to_array(tensor)

    def sum(self, tensor: Any) -> Any:
        return jnp.sum(tensor)

    def shapes(self, function: Callable[..., Any], *args: Any) -> Any:
        return jax.eval_shape(function, *args)

    def cast(self, value: Any, dtype: str | None) -> Any:
        made = jnp.asarray(value)
        return jnp.asarray(made, dtype) if dtype is not None and self.is_floating(made) else made

    def precision(self, dtype: str | None) -> AbstractContextManager[Any]:
        """float64 is switched off in JAX unless asked for."""
        return jax.enable_x64(True) if dtype == "float64" else nullcontext()

    def prepared(self, function: Function, taps: Callable[[], Taps], *, backward: bool, wide: bool = False) -> Pass:
        known: dict[str, tuple[Traced, Taps]] = {}

        def whole(taps: Taps, leaves: Leaves, rest: Any, masks: Any) -> tuple[Any, Any]:
            taps.masks = masks
            if not backward:
                return function(leaves, rest, taps)[1], {}
            gradients, result = jax.grad(lambda own: function(own, rest, taps), has_aux=True)(leaves)
            return result, gradients

        def traced(leaves: Leaves, rest: Any) -> tuple[Traced, Taps]:
            own = taps()
            found = Traced(partial(whole, own), (leaves, rest, None), wide=wide)
            if own.asked:
                # Masks go in like everything else; how many there are is known after a trace only.
                drawn = [np.zeros(shape, np.float32) for shape, _ in own.asked]
                own = taps()
                found = Traced(partial(whole, own), (leaves, rest, drawn), wide=wide)
            return found, own

        def run(leaves: Leaves, rest: Any, draw: Draw) -> Computed:
            shapes = str(jax.tree.map(lambda one: (jnp.shape(one), str(jnp.result_type(one))), (leaves, rest)))
            if shapes not in known:
                known[shapes] = traced(leaves, rest)
            step, own = known[shapes]
            drawn = [jnp.asarray(draw(shape, rate)) for shape, rate in own.asked] or None
            (result, gradients), values = step(leaves, rest, drawn)
            forward: dict[Place, Any] = {}
            back: dict[Place, Any] = {}
            for (kind, path, number, role), one in values.items():
                if not kind:
                    forward[path, number, role] = one
                elif role.startswith("output"):
                    back[path, number, role] = one
            return Computed(result, gradients, forward, back, own)

        return run

    def marked(self, taps: Taps, place: Place, leaf: Any) -> Any:
        return MARK.bind(leaf, name=("", *place))

    def with_gradient(self, leaf: Any, gradient: Any) -> Any:
        return _with_gradient(leaf, gradient)

    def instead(self, leaf: Any, value: Any) -> Any:
        return value + (leaf - jax.lax.stop_gradient(leaf))

    def scope(self, path: str) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = jax.named_scope(f"[{path}]")
        return found

    def set_setting(self, module: Any, name: str, value: Any) -> None:
        if self._own_modules:
            set_setting(module, name, value)

    @contextmanager
    def watched(self) -> Iterator[None]:
        # Those that were compiled before come back after it.
        with _CONTEXT(next(_WATCHES)):
            yield
            self.settle()

    def settle(self) -> None:
        jax.effects_barrier()

    def emit(self, receive: Callable[..., None], tensor: Any) -> None:
        @jax.custom_batching.custom_vmap  # type: ignore[untyped-decorator]
        def called(one: Any) -> Any:
            jax.debug.callback(lambda array: receive(array=np.asarray(array)), one, ordered=True)
            return one

        @called.def_vmap  # type: ignore[untyped-decorator]
        def _(size: int, batched: Any, one: Any) -> Any:
            # Examples of a vmap come as a batch.
            self.emit(receive, one)
            return one, True

        called(jax.lax.stop_gradient(jnp.asarray(tensor)))

    def tapped(self, forward: Callable[..., None], backward: Callable[..., None], tensor: Any) -> Any:
        @jax.custom_vjp  # type: ignore[untyped-decorator]
        def tap(one: Any) -> Any:
            self.emit(forward, one)
            return one

        def back(_: Any, gradient: Any) -> tuple[Any]:
            self.emit(backward, gradient)
            return (gradient,)

        tap.defvjp(lambda one: (tap(one), None), back)
        return tap(tensor)


ENGINE = JaxEngine()
