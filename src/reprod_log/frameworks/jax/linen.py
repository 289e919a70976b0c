"""Flax linen: a module beside its variables. (module, variables), with the keywords of its call as a third if any.

Models of a library that keep both (an object with `module` and `params`, called with `params=`) are taken as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields
from typing import Any

from flax import linen as nn

from reprod_log.errors import CaptureError
from reprod_log.frameworks.jax.model import (
    AppliedModel,
    Calls,
    JaxModel,
    tree_leaves,
    tree_with,
    widened_fields,
)
from reprod_log.frameworks.side import Scope
from reprod_log.frameworks.trees import Taps

_QUIET = {"train": False, "training": False, "is_training": False, "deterministic": True, "use_running_average": True}
"""The usual keywords of a call, as they are in evaluation mode."""


def owns(model: object) -> bool:
    if isinstance(model, tuple):
        return len(model) in (2, 3) and isinstance(model[0], nn.Module) and isinstance(model[1], Mapping)
    return _holds_both(model)


def _holds_both(model: object) -> bool:
    return isinstance(getattr(model, "module", None), nn.Module) and isinstance(getattr(model, "params", None), Mapping)


def quiet(keywords: Mapping[str, Any], evaluation: bool) -> dict[str, Any]:
    return {name: _QUIET.get(name, value) if evaluation else value for name, value in keywords.items()}


class LinenModel(AppliedModel):
    package = "flax"

    def __init__(self, model: Any, modules: Mapping[str, Any] | None = None) -> None:
        if isinstance(model, tuple):
            self._module, self._variables, self._keywords = (*model, {})[:3]
        else:
            self._module, self._variables, self._keywords = model.module, {"params": model.params}, {}
        # Collections have no part in the names: parameters and statistics of one layer stand together.
        self._take(model, ((tree, kind == "params") for kind, tree in self._variables.items()), modules)
        if modules is None:
            self._modules = {**self._modules, "": self._module}

    def kept(self, path: str, module: Any) -> Any:
        return module.clone(parent=None, name=None)

    def _with(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        return {kind: tree_with(tree, arrays) for kind, tree in self._variables.items()}

    def given(self, arrays: Mapping[str, Any]) -> Any:
        variables = self._with(arrays)
        if isinstance(self._given, tuple):
            return (self._module, variables, *self._given[2:])
        made = copy.copy(self._given)
        made.params = variables["params"]
        return made

    def call(
        self, path: str, args: Any, kwargs: Any, arrays: Mapping[str, Any], scope: Scope, taps: Taps
    ) -> tuple[Any, Mapping[str, Any]]:
        module = self._modules.get(path) if path else self._module
        if module is None:
            raise CaptureError("a module of linen is known after a call only")
        module = _widened(module) if scope.dtype == "float64" else module
        variables = self._with(arrays)
        after: Mapping[str, Any] = {}
        with CALLS.through(taps, module):
            if path:
                below = {kind: found for kind, tree in variables.items() if (found := _below(tree, path))}
                output, after = _applied(module, below, args, kwargs)
                for name in reversed(path.split(".")):
                    after = {kind: {name: tree} for kind, tree in after.items()}
            elif isinstance(self._given, tuple):
                keywords = quiet(self._keywords, scope.evaluation)
                output, after = _applied(module, variables, args, {**keywords, **kwargs})
            else:
                holder = copy.copy(self._given)
                holder._module = module
                output = holder(*args, params=variables["params"], **kwargs)
        return output, {path: one for tree in after.values() for path, one in tree_leaves(tree)}


def _applied(module: Any, variables: Mapping[str, Any], args: Any, kwargs: Any) -> tuple[Any, Mapping[str, Any]]:
    """What a module gives, and the collections that its call has changed."""
    changing = [kind for kind in variables if kind != "params"]
    if not changing:
        return module.apply(variables, *args, **kwargs), {}
    output, after = module.apply(variables, *args, mutable=changing, **kwargs)
    return output, after


def _widened(module: Any) -> Any:
    """The module, and those that it was given, with types that they keep made float64."""
    changed = widened_fields(module)
    for one in fields(module):
        value = getattr(module, one.name, None)
        if one.name not in ("parent", "name") and isinstance(value, nn.Module):
            changed[one.name] = _widened(value)
    return module.clone(**changed) if changed else module


class LinenCalls(Calls):
    def heard(self, instead: Callable[..., Any]) -> AbstractContextManager[Any]:
        def heard(original: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
            if context.method_name != "__call__":
                return original(*args, **kwargs)
            return instead(context.module, original, args, kwargs)

        manager: AbstractContextManager[Any] = nn.intercept_methods(heard)
        return manager

    def model(self, module: Any) -> JaxModel | None:
        if module.path or module.is_initializing():
            return None
        return LinenModel((module, module.variables))

    def path(self, module: Any) -> str:
        return ".".join(module.path)

    def after(self, module: Any, output: Any) -> Mapping[str, Any]:
        return {path: one for tree in module.variables.values() for path, one in tree_leaves(tree)}

    def arrays(self, tree: Any) -> dict[str, Any]:
        return super().arrays(tree["params"] if isinstance(tree, Mapping) and "params" in tree else tree)

    def rate(self, module: Any, args: Any, kwargs: Mapping[str, Any]) -> float:
        if not isinstance(module, nn.Dropout) or module.broadcast_dims:
            return 0.0
        given = kwargs.get("deterministic", args[1] if len(args) > 1 else None)
        return 0.0 if (module.deterministic if given is None else given) else float(module.rate)


CALLS = LinenCalls()


def _below(tree: Any, path: str) -> Any:
    for name in path.split("."):
        tree = tree.get(name, {}) if isinstance(tree, Mapping) else {}
    return tree
