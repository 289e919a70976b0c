"""Flax NNX: modules are objects that hold their arrays; a traced function puts another one together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from flax import nnx

from reprod_log.frameworks.hooks import replaced, subclasses
from reprod_log.frameworks.jax.model import Leaf, Model, Started, leaf_of, widened_fields
from reprod_log.frameworks.jax.taps import Taps, patched, replacement
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.side import Scope

PATH = "_reprod_path"
"""Where a started module keeps its path: transformations of NNX put modules together anew, with their attributes."""


Optimizer = nnx.Optimizer


def owns(model: object) -> bool:
    return isinstance(model, nnx.Module)


def modules_of(model: Any) -> Iterator[tuple[str, Any]]:
    """Every module once, under its first path, in the order in which they were made."""
    seen: set[int] = set()

    def visit(path: str, one: Any) -> Iterator[tuple[str, Any]]:
        if id(one) in seen:
            return
        seen.add(id(one))
        if isinstance(one, nnx.Module) and not isinstance(one, (nnx.List, nnx.Dict)):
            yield path, one
        for name, child in _children(one):
            yield from visit(join(path, name), child)

    yield from visit("", model)


def _children(one: Any) -> list[tuple[str, Any]]:
    if isinstance(one, (list, tuple, nnx.List)):
        items: list[tuple[str, Any]] = [(str(place), child) for place, child in enumerate(one)]
    elif isinstance(one, Mapping):
        items = [(str(name), child) for name, child in one.items()]
    else:
        items = [(name, child) for name, child in vars(one).items() if not name.startswith("_")]
    return [
        (name, child) for name, child in items if isinstance(child, (nnx.Module, nnx.List, nnx.Dict, list, tuple, dict))
    ]


def _value(variable: Any) -> Any:
    return variable.get_value() if hasattr(variable, "get_value") else variable.value


class NnxModel(Model):
    package = "flax"

    def __init__(self, model: Any) -> None:
        self._model = model
        self._graph, state = nnx.split(model)
        self._flat = {".".join(map(str, path)): (path, one) for path, one in nnx.to_flat_state(state)}
        self.arrays = {path: _value(one) for path, (_, one) in self._flat.items()}
        self.leaves = tuple(self._leaf(path, one) for path, (_, one) in self._flat.items())

    def _leaf(self, path: str, variable: Any) -> Leaf:
        found = leaf_of(path, _value(variable), trained=isinstance(variable, nnx.Param))
        return Leaf(path, found.trained, not isinstance(variable, nnx.RngState), found.shape, found.dtype)

    def modules(self) -> Mapping[str, Any]:
        return dict(modules_of(self._model))

    def given(self, arrays: Mapping[str, Any]) -> Any:
        flat = [(path, one.replace(arrays[name])) for name, (path, one) in self._flat.items()]
        return nnx.merge(self._graph, nnx.from_flat_state(flat))

    def start(self, arrays: Mapping[str, Any], scope: Scope) -> Started:
        made = self.given(arrays)
        if scope.evaluation:
            made.eval()
        for path, module in modules_of(made):
            setattr(module, PATH, path)
            for name, value in widened_fields(module).items() if scope.dtype == "float64" else ():
                setattr(module, name, value)
        return _Started(made)


class _Started(Started):
    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._model(*args, **kwargs)

    def part(self, path: str) -> Callable[..., Any]:
        found: Callable[..., Any] = dict(modules_of(self._model))[path]
        return found

    def after(self) -> Mapping[str, Any]:
        return arrays_of(nnx.state(self._model))

    def listening(self, taps: Taps) -> AbstractContextManager[None]:
        def call(module: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            path = vars(module).get(PATH)
            if path is None:
                return original(*args, **kwargs)
            return taps.call(module, path, original, args, kwargs, _rate(module, kwargs))

        return patched((one for _, one in modules_of(self._model)), call)


def arrays_of(state: Any) -> dict[str, Any]:
    """The arrays of a state of NNX by path."""
    return {".".join(map(str, path)): _value(one) for path, one in nnx.to_flat_state(state)}


@contextmanager
def named(model: Any, name: str) -> Iterator[None]:
    """While it lasts, the modules of a model keep their paths."""
    modules = list(modules_of(model))
    for path, one in modules:
        setattr(one, PATH, join(name, path) if path else name)
    try:
        yield
    finally:
        for _, one in modules:
            vars(one).pop(PATH, None)


@contextmanager
def every_call(instead: Callable[..., Any]) -> Iterator[None]:
    """While it lasts, calls of all modules go to instead(module, original, args, kwargs), of classes made later too."""
    made = nnx.Module.__init_subclass__.__func__
    with ExitStack() as undo:

        def patch(cls: type) -> None:
            if "__call__" in vars(cls):
                original = vars(cls)["__call__"]
                undo.callback(type.__setattr__, cls, "__call__", original)
                type.__setattr__(cls, "__call__", replacement(original, instead))

        def make(cls: type, *args: Any, **kwargs: Any) -> None:
            made(cls, *args, **kwargs)
            patch(cls)

        undo.callback(replaced(nnx.Module, "__init_subclass__", classmethod(make)))
        for cls in subclasses(nnx.Module):
            patch(cls)
        yield


def _rate(module: Any, kwargs: Mapping[str, Any]) -> float:
    if not isinstance(module, nnx.Dropout) or kwargs.get("deterministic", module.deterministic):
        return 0.0
    return 0.0 if module.broadcast_dims else float(module.rate)
