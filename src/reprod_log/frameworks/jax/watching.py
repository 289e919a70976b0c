"""Models of Flax, Equinox and Haiku in a loop of the user's own.

Functions that were jitted before are traced anew while a watch lasts (it is part of the key of their cache), and the
old ones come back after it. Callbacks are ordered: they arrive as the program is written, from step to step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from importlib import import_module
from types import FunctionType
from typing import Any

import jax.numpy as jnp
import numpy as np

from reprod_log.frameworks import is_imported
from reprod_log.frameworks.contract import Listener
from reprod_log.frameworks.jax.engine import ENGINE
from reprod_log.frameworks.jax.model import Calls, JaxModel, kept_by, libraries, model_of
from reprod_log.frameworks.nests import mapped
from reprod_log.frameworks.trees import Taps, field_replaced, method_replaced
from reprod_log.frameworks.watching import Watch, below


class JaxWatch(Watch):
    def __init__(self, listener: Listener) -> None:
        given = {name: model_of(one) for name, one in (listener.models or {}).items()}
        wanted = {_signature(one): name for name, one in given.items()}
        super().__init__(listener, ENGINE, Taps, None if listener.models is None else wanted)
        self._given = {_signature(one): one for one in given.values() if one is not None}
        """Models as they were given, with a state that may be apart from what is called."""
        self._calls: dict[str, Calls] = {}
        """How the calls of each model are heard, by its name."""
        self._updates = False
        """Whether an optimizer is at work now: it may be made of others."""

    @contextmanager
    def on(self) -> Iterator[None]:
        with ExitStack() as undo:
            undo.enter_context(self.engine.watched())
            for library in libraries():
                undo.enter_context(library.CALLS.heard(partial(self._call, library.CALLS)))
            # What computes gradients looks it up there when it is called, wherever it was made.
            undo.enter_context(method_replaced(import_module("jax._src.api"), "vjp", self._differentiating))
            for home in ("optax", "equinox"):
                if is_imported(home):
                    undo.enter_context(_body_replaced(sys.modules[home].apply_updates, self._applying))
            if is_imported("optax"):
                transformation = sys.modules["optax"].GradientTransformation
                undo.enter_context(field_replaced(transformation, "update", self._updating))
            yield

    def _named(self, calls: Calls, module: Any) -> str | None:
        """The name of a model that is listened to."""
        model = calls.model(module)
        if model is None or not any(leaf.trained for leaf in model.leaves):
            return None
        signature = _signature(model)
        known = self._given.get(signature, model)
        name = self.named(signature, type(module).__name__, lambda: known)
        if name is not None:
            self._calls[name] = calls
        return name

    def _call(self, calls: Calls, module: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self.taps is not None:
            path = calls.path(module) if calls is self._calls[self._name] else None
            return original(*args, **kwargs) if path is None else self.taps.call(module, path, original, args, kwargs)
        name = self.listener.attempt(self._named, calls, module)
        if name is None:
            return original(*args, **kwargs)
        # Outside of compiled functions a model may be given numpy's arrays.
        args, kwargs = mapped((args, kwargs), _array)

        def call(taps: Taps) -> Any:
            return taps.call(module, calls.path(module) or "", original, args, kwargs)

        with calls.within(module):
            output = self.outermost(name, args, kwargs, call)
            self.listener.attempt(self._put_buffers, name, calls.after(module, output))
        return output

    def _put_buffers(self, name: str, after: Mapping[str, Any]) -> None:
        # A state that is apart from the model is known by what a call gives.
        others = {leaf.path for leaf in self.models[name].leaves if leaf.trained or not leaf.recorded}
        self.put_all("buffer", name, {path: one for path, one in after.items() if path not in others})

    def _differentiating(self, vjp: Callable[..., Any]) -> Callable[..., Any]:
        """What differentiates a function, with the value of that reported as a loss."""

        @wraps(vjp)
        def instead(function: Callable[..., Any], *primals: Any, **options: Any) -> Any:
            has_aux = options.get("has_aux", False)

            def told(*args: Any, **kwargs: Any) -> Any:
                before = self.made
                outputs = function(*args, **kwargs)
                value = outputs[0] if has_aux else outputs
                if self.made != before and jnp.size(value) == 1:
                    self.put("loss", "loss", value)
                return outputs

            return vjp(wraps(function)(told), *primals, **options)

        return instead

    def _owner(self, tree: Any) -> tuple[str, dict[str, Any]] | None:
        """The name of the model whose parameters, or what belongs to them, a tree has, and its arrays by path."""
        for name, calls in self._calls.items():
            found = calls.arrays(tree)
            trained = {leaf.path for leaf in self.models[name].leaves if leaf.trained}
            if found and found.keys() <= trained:
                return name, found
        return None

    def _updating(self, update: Callable[..., Any]) -> Callable[..., Any]:
        def instead(gradients: Any, *args: Any, **kwargs: Any) -> Any:
            owner = None if self._updates else self.listener.attempt(self._owner, gradients)
            if owner is None:
                return update(gradients, *args, **kwargs)
            # The rate of a transformation cannot be read.
            self.listener.know({"unknown_rates": True})
            self.put_all("gradient", owner[0], owner[1], "raw")
            self._updates = True
            try:
                result = update(gradients, *args, **kwargs)
            finally:
                self._updates = False
            self.listener.attempt(self._put_moments, owner[0], result[1])
            return result

        return instead

    def _put_moments(self, name: str, state: Any) -> None:
        for path, role, one in kept_by(state, self._calls[name].arrays):
            self.put("optimizer", below(name, path), one, role)

    def _applying(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*args: Any, **kwargs: Any) -> Any:
            result = apply(*args, **kwargs)
            before = args[0] if args else next(one for name, one in kwargs.items() if name != "updates")
            self.listener.attempt(self._put_parameters, before, result)
            return result

        return instead

    def _put_parameters(self, before: Any, after: Any) -> None:
        starts, ends = self._owner(before), self._owner(after)
        if starts is not None and ends is not None:
            name, arrays = ends
            self.put_all("update", name, {path: one - starts[1][path] for path, one in arrays.items()})
            self.put_all("parameter", name, arrays)


@contextmanager
def _body_replaced(function: Any, make: Callable[[Any], Any]) -> Iterator[None]:
    """While it lasts, a function is `make(original)` under every name that it was imported by."""
    parts = {name: getattr(function, name) for name in ("__code__", "__defaults__", "__kwdefaults__")}
    original = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)

    def body(*args: Any, _reprod_instead: Any, **kwargs: Any) -> Any:
        return _reprod_instead(*args, **kwargs)

    function.__code__, function.__kwdefaults__ = body.__code__, {"_reprod_instead": make(original)}
    try:
        yield
    finally:
        for name, one in parts.items():
            setattr(function, name, one)


def _array(_: str, leaf: Any) -> Any:
    return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf


def _signature(model: JaxModel | None) -> Any:
    """Compiled functions put models together anew, so they are known by the paths and shapes of their parameters."""
    return None if model is None else frozenset((leaf.path, leaf.shape) for leaf in model.leaves if leaf.trained)
