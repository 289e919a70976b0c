"""Haiku: a transformed function beside its parameters: (transformed, params), with a state where it has one, and with
the keywords of its call as the last if any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import haiku as hk

from reprod_log.errors import CaptureError
from reprod_log.frameworks.jax.linen import quiet
from reprod_log.frameworks.jax.model import AppliedModel, Calls, JaxModel, dotted, tree_leaves, tree_with
from reprod_log.frameworks.side import Scope
from reprod_log.frameworks.trees import Taps, field_replaced


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
        # Of an average, what it was before its division by the share of the batches in it is no value of its own.
        self.leaves = tuple(
            replace(leaf, recorded=False) if leaf.path.endswith("_ema.hidden") else leaf for leaf in self.leaves
        )

    def kept(self, path: str, module: Any) -> Any:
        # The whole is a function, and no module.
        return module if path else None

    def given(self, arrays: Mapping[str, Any]) -> Any:
        params, state = tree_with(self._params, arrays), tree_with(self._state, arrays)
        return (self._function, params, *((state,) if self._stateful else ()), *self._given[2 + self._stateful :])

    def call(
        self, path: str, args: Any, kwargs: Any, arrays: Mapping[str, Any], scope: Scope, taps: Taps
    ) -> tuple[Any, Mapping[str, Any]]:
        params, state = tree_with(self._params, arrays), tree_with(self._state, arrays)
        with CALLS.through(taps, self._function):
            if path:
                module = self._modules.get(path)
                if module is None:
                    raise CaptureError("a module of Haiku is known after a call only")
                # Unpacked, because what is looked up is heard as a whole model.
                _, apply = hk.transform_with_state(lambda *args, **kwargs: module(*args, **kwargs))
                output, state = apply(params, state, None, *args, **kwargs)
                return output, dict(tree_leaves(state))
            kwargs = {**quiet(self._keywords, scope.evaluation), **kwargs}
            if not self._stateful:
                return self._function.apply(params, None, *args, **kwargs), {}
            output, state = self._function.apply(params, state, None, *args, **kwargs)
        return output, dict(tree_leaves(state))


@dataclass
class Function:
    """The whole that is applied: a function, and no module."""

    params: Any
    state: Any
    """After its call, that which it returned."""


class HaikuCalls(Calls):
    def __init__(self) -> None:
        self._applies = False
        """Whether a whole is being applied now: others inside it are its own business."""

    @contextmanager
    def heard(self, instead: Callable[..., Any]) -> Iterator[None]:
        def method(original: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
            # How a norm keeps its statistics is a part of it.
            if context.method_name != "__call__" or isinstance(context.module, hk.ExponentialMovingAverage):
                return original(*args, **kwargs)
            return instead(context.module, original, args, kwargs)

        # A function without a state looks up that of one with a state.
        with (
            hk.intercept_methods(method),
            field_replaced(hk.TransformedWithState, "apply", partial(self._whole, instead)),
        ):
            yield

    def _whole(self, instead: Callable[..., Any], apply: Callable[..., Any]) -> Callable[..., Any]:
        # Users give these by name, too.
        def applied(params: Any, state: Any, rng: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            if self._applies:
                return apply(params, state, rng, *args, **kwargs)  # type: ignore[no-any-return]  # as Haiku has it
            function = Function(params, state)

            def original(*args: Any, **kwargs: Any) -> Any:
                output, function.state = apply(params, state, rng, *args, **kwargs)
                return output

            self._applies = True
            try:
                return instead(function, original, args, kwargs), function.state
            finally:
                self._applies = False

        return applied

    def model(self, module: Any) -> JaxModel | None:
        if not isinstance(module, Function):
            return None
        return HaikuModel((hk.TransformedWithState(None, None), module.params, module.state or {}))

    def path(self, module: Any) -> str:
        return "" if isinstance(module, Function) else dotted(module.module_name)

    def after(self, module: Any, output: Any) -> Mapping[str, Any]:
        return dict(tree_leaves(module.state))


CALLS = HaikuCalls()
