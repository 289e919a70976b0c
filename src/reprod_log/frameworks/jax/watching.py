"""Models of Flax, Equinox and Haiku in a loop of the user's own.

Functions that were jitted before are traced anew while a watch lasts (it is part of the key of their cache), and the
old ones come back after it. Callbacks are ordered: they arrive as the program is written, from step to step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from reprod_log.frameworks.contract import Listener
from reprod_log.frameworks.jax.engine import ENGINE
from reprod_log.frameworks.jax.model import Calls, JaxModel, kept_by, libraries, model_of
from reprod_log.frameworks.nests import mapped
from reprod_log.frameworks.trees import Taps, method_replaced
from reprod_log.frameworks.watching import Watch, below


class JaxWatch(Watch):
    def __init__(self, listener: Listener) -> None:
        given = listener.models
        wanted = None if given is None else {_signature(model_of(one)): name for name, one in given.items()}
        super().__init__(listener, ENGINE, Taps, wanted)
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
            for name in ("grad", "value_and_grad"):
                undo.enter_context(method_replaced(jax, name, self._differentiating))
            optax = sys.modules.get("optax")
            if optax is not None:
                undo.enter_context(_field_replaced(optax.GradientTransformation, "update", self._updating))
            for home in (optax, sys.modules.get("equinox")):
                if home is not None:
                    undo.enter_context(method_replaced(home, "apply_updates", self._applying))
            yield

    def _named(self, calls: Calls, module: Any) -> str | None:
        """The name of a model that is listened to."""
        model = calls.model(module)
        if model is None or not any(leaf.trained for leaf in model.leaves):
            return None
        name = self.named(_signature(model), type(module).__name__, lambda: model)
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
            output = self.outermost(name, args, kwargs, call, goes_on=calls.goes_on())
            self.listener.attempt(self._put_buffers, name, calls.after(module))
        return output

    def _put_buffers(self, name: str, after: Mapping[str, Any]) -> None:
        kept = [leaf.path for leaf in self.models[name].leaves if leaf.recorded and not leaf.trained]
        self.put_all("buffer", name, {path: after[path] for path in kept if path in after})

    def _differentiating(self, transform: Callable[..., Any]) -> Callable[..., Any]:
        """What computes gradients, with the value of the function that it is given reported as a loss."""

        @wraps(transform)
        def instead(function: Callable[..., Any], *options: Any, **named: Any) -> Any:
            has_aux = named.get("has_aux", options[1] if len(options) > 1 else False)

            def told(*args: Any, **kwargs: Any) -> Any:
                before = self.made
                outputs = function(*args, **kwargs)
                value = outputs[0] if has_aux else outputs
                if self.made != before and jnp.size(value) == 1:
                    self.put("loss", "loss", value)
                return outputs

            return transform(wraps(function)(told), *options, **named)

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
        def instead(params: Any, updates: Any) -> Any:
            result = apply(params, updates)
            self.listener.attempt(self._put_parameters, params, result)
            return result

        return instead

    def _put_parameters(self, before: Any, after: Any) -> None:
        starts, ends = self._owner(before), self._owner(after)
        if starts is not None and ends is not None:
            name, arrays = ends
            self.put_all("update", name, {path: one - starts[1][path] for path, one in arrays.items()})
            self.put_all("parameter", name, arrays)


@contextmanager
def _field_replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """While it lasts, `make(value)` is what a field of every named tuple of a class has."""
    field = vars(owner)[name]
    setattr(owner, name, property(lambda one: make(field.__get__(one))))
    try:
        yield
    finally:
        setattr(owner, name, field)


def _array(_: str, leaf: Any) -> Any:
    return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf


def _signature(model: JaxModel | None) -> Any:
    """Compiled functions put models together anew, so they are known by the paths and shapes of their parameters."""
    return None if model is None else frozenset((leaf.path, leaf.shape) for leaf in model.leaves if leaf.trained)
