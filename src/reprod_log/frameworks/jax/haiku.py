"""Haiku: a transformed function beside its parameters: (transformed, params), with a state where it has one, and with
the keywords of its call as the last if any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import haiku as hk

from reprod_log.errors import CaptureError
from reprod_log.frameworks.jax.linen import quiet
from reprod_log.frameworks.jax.model import Model, Started, leaf_of, prefixes, tree_leaves, tree_with
from reprod_log.frameworks.jax.taps import Taps
from reprod_log.frameworks.side import Scope


def owns(model: object) -> bool:
    return (
        isinstance(model, tuple)
        and len(model) >= 2
        and isinstance(model[0], (hk.Transformed, hk.TransformedWithState))
        and all(isinstance(one, Mapping) for one in model[1:])
    )


class HaikuModel(Model):
    package = "haiku"

    def __init__(self, model: Any, modules: Mapping[str, Any] | None = None) -> None:
        self._given = model
        self._function, self._params, *rest = model
        self._stateful = isinstance(self._function, hk.TransformedWithState)
        self._state: Any = rest.pop(0) if self._stateful and rest else {}
        self._keywords: Mapping[str, Any] = rest.pop(0) if rest else {}
        trees = ((self._params, True), (self._state, False))
        flat = [(path, one, trained) for tree, trained in trees for path, one in tree_leaves(tree)]
        self.arrays = {path: one for path, one, _ in flat}
        self.leaves = tuple(leaf_of(path, one, trained=trained) for path, one, trained in flat)
        self._modules = modules or prefixes(list(self.arrays))

    def modules(self) -> Mapping[str, Any]:
        return self._modules

    def built(self, modules: Mapping[str, Any]) -> Model:
        order = sorted(modules, key=lambda path: path.count(".") + bool(path))
        # The whole is a function, and no module.
        return HaikuModel(self._given, {path: modules[path] if path else None for path in order})

    def like(self, given: Any) -> Model:
        return HaikuModel(given, self._modules)

    def given(self, arrays: Mapping[str, Any]) -> Any:
        params, state = tree_with(self._params, arrays), tree_with(self._state, arrays)
        return (self._function, params, *((state,) if self._stateful else ()), *self._given[2 + self._stateful :])

    def start(self, arrays: Mapping[str, Any], scope: Scope) -> Started:
        return _Started(
            self._function,
            (tree_with(self._params, arrays), tree_with(self._state, arrays)),
            quiet(self._keywords, scope.evaluation),
            self._modules,
        )


class _Started(Started):
    def __init__(
        self, function: Any, trees: tuple[Any, Any], keywords: dict[str, Any], modules: Mapping[str, Any]
    ) -> None:
        self._function, (self._params, self._state), self._keywords = function, trees, keywords
        self._modules = modules
        self._taps: Taps | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._taps is None:
            return self._applied(self._function, *args, **self._keywords, **kwargs)

        def whole(*args: Any, **kwargs: Any) -> Any:
            return self._applied(self._function, *args, **self._keywords, **kwargs)

        return self._taps.call(self._function, "", whole, args, kwargs)

    def _applied(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(function, hk.TransformedWithState):
            return function.apply(self._params, None, *args, **kwargs)
        output, self._state = function.apply(self._params, self._state, None, *args, **kwargs)
        return output

    def part(self, path: str) -> Callable[..., Any]:
        module = self._modules.get(path)
        if not path:
            return self
        if module is None:
            raise CaptureError("a module of Haiku is known after a call only")
        alone = hk.transform_with_state(lambda *args, **kwargs: module(*args, **kwargs))
        return lambda *args, **kwargs: self._applied(alone, *args, **kwargs)

    def after(self) -> Mapping[str, Any]:
        return dict(tree_leaves(self._state))

    def listening(self, taps: Taps) -> AbstractContextManager[Any]:
        def heard(original: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
            if context.method_name != "__call__":
                return original(*args, **kwargs)
            path = context.module.module_name.replace("/~/", ".").replace("/", ".")
            return taps.call(context.module, path, original, args, kwargs)

        @contextmanager
        def listened() -> Any:
            self._taps = taps
            with ExitStack() as undo:
                undo.enter_context(hk.intercept_methods(heard))
                yield
            self._taps = None

        manager: AbstractContextManager[Any] = listened()
        return manager
