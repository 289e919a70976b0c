"""Models of NNX in a loop of the user's own: what modules give, get back and become is called back from where it runs.

Functions that were jitted before are traced anew while a watch lasts (it is part of the key of their cache), and the
old ones come back after it. Callbacks are ordered: they arrive as the program is written, from step to step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from reprod_log.frameworks.contract import Listener
from reprod_log.frameworks.hooks import replaced
from reprod_log.frameworks.jax import nnx
from reprod_log.frameworks.jax.model import kept_by
from reprod_log.frameworks.jax.taps import Taps, arrays_in, both_ways, emit, is_floating, traced_anew
from reprod_log.frameworks.module_tree import info_of, join
from reprod_log.frameworks.nests import mapped
from reprod_log.frameworks.values import Roots, place_of


class _Live(Taps):
    """Taps whose marks call back with the values."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._listener = listener

    def mark(self, leaf: Any, name: str) -> Any:
        marked = self._listener.attempt(self._marked, leaf, name)
        return leaf if marked is None else marked

    def _marked(self, leaf: Any, name: str) -> Any:
        path, number, role = place_of(name)
        layer_type = type(self.modules[path]).__name__
        forward = partial(self._listener.report, "forward", path, role=role, number=number, layer_type=layer_type)
        if not is_floating(leaf) or not role.startswith("output"):
            emit(forward, leaf)
            return leaf
        backward = partial(self._listener.report, "backward", path, role=role, number=number, layer_type=layer_type)
        return both_ways(forward, backward, leaf)


class Watch:
    """One listener, from the first call of a model to the updates."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._taps = _Live(listener)
        given = listener.models
        self._roots = Roots(None if given is None else {_signature(one): name for name, one in given.items()})
        self._told: set[str] = set()
        self._root: str | None = None
        """The model whose call is under way."""
        self._calls = count()
        self.called = 0
        """How often a model was called."""

    @contextmanager
    def on(self) -> Iterator[None]:
        with ExitStack() as undo:
            undo.callback(jax.effects_barrier)
            undo.enter_context(traced_anew())
            undo.enter_context(nnx.every_call(self._call))
            undo.callback(replaced(nnx.Optimizer, "update", self._updating(nnx.Optimizer.update)))
            for name in ("grad", "value_and_grad"):
                undo.callback(replaced(jax, name, self._differentiating(getattr(jax, name))))
            yield

    def _named(self, model: Any) -> str | None:
        """The name of a model that is listened to."""
        library = nnx.NnxModel(model)
        if not any(leaf.trained for leaf in library.leaves):
            return None
        name = self._roots.name(_signature(model), type(model).__name__)
        if name is not None and name not in self._told:
            self._told.add(name)
            self._listener.found(name, [info_of(one, library.package) for one in library.facts()])
        return name

    def _call(self, module: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self._root is not None:
            path = vars(module).get(nnx.PATH)
            if path is None:
                return original(*args, **kwargs)
            return self._taps.call(module, path, original, args, kwargs)
        name = self._listener.attempt(self._named, module)
        if name is None:
            return original(*args, **kwargs)
        self._root, number = name, next(self._calls)
        self.called += 1
        # Outside of compiled functions a model may be given numpy's arrays.
        args, kwargs = mapped((args, kwargs), _array)
        for role, leaf in (*arrays_in(args, "input"), *arrays_in(kwargs, "input")):
            self._put("data", name, leaf, role, number=number)
        try:
            # On the modules themselves, because transformations of NNX put copies of them together.
            with nnx.named(module, name):
                return self._taps.call(module, name, original, args, kwargs)
        finally:
            self._root = None

    def _differentiating(self, transform: Callable[..., Any]) -> Callable[..., Any]:
        """What computes gradients, with the value of the function that it is given reported as a loss."""

        @wraps(transform)
        def instead(function: Callable[..., Any], *options: Any, **named: Any) -> Any:
            has_aux = named.get("has_aux", options[1] if len(options) > 1 else False)

            def told(*args: Any, **kwargs: Any) -> Any:
                before = self.called
                outputs = function(*args, **kwargs)
                value = outputs[0] if has_aux else outputs
                if self.called == before or jnp.size(value) != 1:
                    return outputs
                self._put("loss", "loss", value)
                return outputs

            return transform(wraps(function)(told), *options, **named)

        return instead

    def _updating(self, update: Callable[..., Any]) -> Callable[..., Any]:
        def instead(optimizer: Any, model: Any, gradients: Any, /, **kwargs: Any) -> Any:
            name = self._listener.attempt(self._named, model)
            if name is None:
                return update(optimizer, model, gradients, **kwargs)
            before = self._listener.attempt(self._before, name, model, gradients)
            result = update(optimizer, model, gradients, **kwargs)
            if before is not None:
                self._listener.attempt(self._after, name, optimizer, model, before)
            return result

        return instead

    def _before(self, name: str, model: Any, gradients: Any) -> Mapping[str, Any]:
        # The rate of a transformation cannot be read.
        self._listener.know({"unknown_rates": True})
        for path, one in nnx.arrays_of(gradients).items():
            self._put("gradient", join(name, path), one, "raw")
        return nnx.NnxModel(model).arrays

    def _after(self, name: str, optimizer: Any, model: Any, before: Mapping[str, Any]) -> None:
        after = nnx.NnxModel(model)
        for leaf in after.leaves:
            path, one = join(name, leaf.path), after.arrays[leaf.path]
            if leaf.trained:
                self._put("update", path, one - before[leaf.path])
            if leaf.recorded:
                self._put("parameter" if leaf.trained else "buffer", path, one)
        for path, role, one in kept_by(optimizer.opt_state):
            self._put("optimizer", join(name, path), one, role)

    def _put(self, phase: str, path: str, value: Any, role: str = "", number: int = 0) -> None:
        self._listener.attempt(emit, partial(self._listener.report, phase, path, role=role, number=number), value)


def _array(_: str, leaf: Any) -> Any:
    return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf


def _signature(model: Any) -> Any:
    # Without order: a model that was put together anew has its attributes in another one.
    return frozenset((path, type(one)) for path, one in nnx.modules_of(model))
