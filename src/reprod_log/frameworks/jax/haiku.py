"""Haiku: a transformed function beside its parameters: (transformed, params), with a state where it has one, and with
the keywords of its call as the last if any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import haiku as hk
from haiku._src.base import current_frame

from reprod_log.errors import CaptureError
from reprod_log.frameworks.jax.linen import quiet
from reprod_log.frameworks.jax.model import AppliedModel, Calls, JaxModel, JaxStarted, tree_leaves, tree_with
from reprod_log.frameworks.side import Scope
from reprod_log.frameworks.trees import Started, Taps


def owns(model: object) -> bool:
    return (
        isinstance(model, tuple)
        and len(model) >= 2
        and isinstance(model[0], (hk.Transformed, hk.TransformedWithState))
        and all(isinstance(one, Mapping) for one in model[1:])
    )


class HaikuModel(AppliedModel):
    package = "haiku"

    def __init__(self, model: Any, modules: Mapping[str, Any] | None = None) -> None:
        self._function, self._params, *rest = model
        self._stateful = isinstance(self._function, hk.TransformedWithState)
        self._state: Any = rest.pop(0) if self._stateful and rest else {}
        self._keywords: Mapping[str, Any] = rest.pop(0) if rest else {}
        self._take(model, ((self._params, True), (self._state, False)), modules)

    def kept(self, path: str, module: Any) -> Any:
        # The whole is a function, and no module.
        return module if path else None

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


class _Started(JaxStarted):
    def __init__(
        self, function: Any, trees: tuple[Any, Any], keywords: dict[str, Any], modules: Mapping[str, Any]
    ) -> None:
        super().__init__(function)
        (self._params, self._state), self._keywords = trees, keywords
        self._modules = modules
        self._taps: Taps | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._taps is None:
            return self._applied(self._model, *args, **self._keywords, **kwargs)

        def whole(*args: Any, **kwargs: Any) -> Any:
            return self._applied(self._model, *args, **self._keywords, **kwargs)

        return self._taps.call(self._model, "", whole, args, kwargs)

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

    @contextmanager
    def listening(self, taps: Taps) -> Iterator[None]:
        self._taps = taps
        with super().listening(taps):
            yield
        self._taps = None


class HaikuCalls(Calls):
    """The whole is a function, and no module: its outermost modules are heard."""

    def __init__(self) -> None:
        self._frames: list[Any] = [None, None]
        """Those of the last outermost call and of this one."""

    def heard(self, instead: Callable[..., Any]) -> AbstractContextManager[Any]:
        def heard(original: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
            if context.method_name != "__call__":
                return original(*args, **kwargs)
            return instead(context.module, original, args, kwargs)

        manager: AbstractContextManager[Any] = hk.intercept_methods(heard)
        return manager

    def model(self, module: Any) -> JaxModel | None:
        if hk.running_init():
            return None
        self._frames = [self._frames[1], current_frame()]
        return HaikuModel((hk.TransformedWithState(None, None), hk.get_params(), hk.get_current_state()))

    def path(self, module: Any) -> str:
        return str(module.module_name).replace("/~/", ".").replace("/", ".")

    def goes_on(self) -> bool:
        return self._frames[0] is self._frames[1]

    def after(self, module: Any) -> Mapping[str, Any]:
        return dict(tree_leaves(hk.get_current_state()))


CALLS = _Started.calls = HaikuCalls()
