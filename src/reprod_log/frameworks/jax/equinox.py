"""Equinox: a model is a tree of modules; its layers take one example, so a batch goes through `jax.vmap`.

A model with state (`eqx.nn.make_with_state`) is the pair (model, state). One that takes a batch itself is the pair
(model, call), where call(model, *inputs) is how its user calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import equinox as eqx
import jax

from reprod_log.errors import CaptureError, first_line
from reprod_log.frameworks.jax.model import Calls, JaxModel, every_call, leaf_of
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.nests import flatten
from reprod_log.frameworks.side import Scope
from reprod_log.frameworks.trees import Taps


def owns(model: object) -> bool:
    if isinstance(model, tuple) and len(model) == 2:
        return isinstance(model[0], eqx.Module) and (isinstance(model[1], eqx.nn.State) or callable(model[1]))
    return isinstance(model, eqx.Module) and callable(model)


def _contents(one: Any) -> list[tuple[str, Any]]:
    if isinstance(one, (list, tuple)):
        return [(str(place), child) for place, child in enumerate(one)]
    if isinstance(one, Mapping):
        return [(str(name), child) for name, child in one.items()]
    if isinstance(one, eqx.Module) and is_dataclass(one):
        return [(field.name, getattr(one, field.name, None)) for field in fields(one)]
    return []


def walked(model: Any) -> Iterator[tuple[str, Any]]:
    """Everything in a model with its path: modules, containers and arrays."""
    stack = [("", model)]
    while stack:
        path, one = stack.pop()
        yield path, one
        stack.extend((join(path, name), child) for name, child in reversed(_contents(one)))


def modules_of(model: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, one in walked(model):
        if isinstance(one, eqx.Module) and callable(one) and not any(one is other for other in found.values()):
            found[path] = one
    return found


class EquinoxModel(JaxModel):
    package = "equinox"
    channels_last = False

    def __init__(self, model: Any) -> None:
        self._given = model
        self._model, other = model if isinstance(model, tuple) else (model, None)
        self._state = other if isinstance(other, eqx.nn.State) else None
        self._call = None if self._state is not None else other
        trained = [(path, one) for path, one in walked(self._model) if eqx.is_array(one)]
        leaves, self._state_tree = jax.tree.flatten(self._state)
        kept = [(name, one) for name, one in zip(self._state_names(), leaves, strict=True)]
        self.arrays = {**dict(trained), **dict(kept)}
        self.leaves = (
            *(leaf_of(path, one, trained=eqx.is_inexact_array(one)) for path, one in trained),
            *(leaf_of(path, one, trained=False) for path, one in kept),
        )

    def _state_names(self) -> list[str]:
        """The arrays of the state under the layers whose indices they stand at."""
        if self._state is None:
            return []
        names = {one.marker: path for path, one in walked(self._model) if isinstance(one, eqx.nn.StateIndex)}
        values, markers = self._state.tree_flatten()
        return [
            join(names.get(marker, f"state.{place}"), path).removesuffix(".")
            for place, (marker, value) in enumerate(zip(markers, values, strict=True))
            for path, _ in flatten(value)
        ]

    def modules(self) -> Mapping[str, Any]:
        return modules_of(self._model)

    def given(self, arrays: Mapping[str, Any]) -> Any:
        model, state = self._made(arrays)
        if not isinstance(self._given, tuple):
            return model
        return (model, self._call if state is None else state)

    def _made(self, arrays: Mapping[str, Any]) -> tuple[Any, Any]:
        named = {id(one): path for path, one in walked(self._model) if eqx.is_array(one)}
        model = jax.tree.map(lambda leaf: arrays[named[id(leaf)]] if id(leaf) in named else leaf, self._model)
        if self._state is None:
            return model, None
        return model, jax.tree.unflatten(self._state_tree, [arrays[name] for name in self._state_names()])

    def call(
        self, path: str, args: Any, kwargs: Any, arrays: Mapping[str, Any], scope: Scope, taps: Taps
    ) -> tuple[Any, Mapping[str, Any]]:
        model, state = self._made(arrays)
        model = eqx.nn.inference_mode(model) if scope.evaluation else model
        with CALLS.through(taps, model):
            module = modules_of(model)[path] if path else model
            if self._call is not None and not path:
                output = self._call(module, *args, **kwargs)
            elif path:
                output = jax.vmap(lambda a, k: module(*a, **k))(args, kwargs)
            elif state is None:
                output = _for_each_example(module, args, kwargs)
            else:
                batched = jax.vmap(
                    lambda a, k, s: module(*a, s, **k), axis_name="batch", in_axes=(0, 0, None), out_axes=(0, None)
                )
                output, state = batched(args, kwargs, state)
        return output, dict(zip(self._state_names(), jax.tree.leaves(state), strict=True))


def _for_each_example(module: Any, args: Any, kwargs: Any) -> Any:
    try:
        return jax.vmap(lambda a, k: module(*a, **k))(args, kwargs)
    except Exception as error:  # a model of the user's own may raise anything
        raise CaptureError(
            f"{first_line(error).rstrip('.')}. An Equinox model is called with one example at a time; give one that "
            "takes a batch itself as (model, lambda model, x: model(x))"
        ) from error


class EquinoxCalls(Calls):
    def __init__(self) -> None:
        self._paths: dict[int, str] = {}

    def heard(self, instead: Callable[..., Any]) -> AbstractContextManager[None]:
        return every_call(eqx.Module, instead)

    def model(self, module: Any) -> JaxModel:
        return EquinoxModel(module)

    def path(self, module: Any) -> str | None:
        return self._paths.get(id(module))

    @contextmanager
    def within(self, module: Any) -> Iterator[None]:
        modules = modules_of(module)
        self._paths = {id(one): path for path, one in modules.items()}
        try:
            yield
        finally:
            self._paths = {}

    def after(self, module: Any, output: Any) -> Mapping[str, Any]:
        states = [one for one in (output if isinstance(output, tuple) else ()) if isinstance(one, eqx.nn.State)]
        if not states:
            return {}
        model = EquinoxModel((module, states[-1]))
        return {leaf.path: model.arrays[leaf.path] for leaf in model.leaves if not leaf.trained}

    def arrays(self, tree: Any) -> dict[str, Any]:
        return {path: one for path, one in walked(tree) if eqx.is_array(one)}


CALLS = EquinoxCalls()
