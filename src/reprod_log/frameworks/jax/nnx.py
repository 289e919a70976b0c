"""Flax NNX: modules are objects that hold their arrays; a traced function puts another one together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from flax import nnx

from reprod_log.frameworks.jax.model import Calls, JaxModel, every_call, leaf_of, value_of, widened_fields
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.side import Scope
from reprod_log.frameworks.trees import Leaf, Taps

PATH = "_reprod_path"
"""Where a started module keeps its path: transformations of NNX put modules together anew, with their attributes."""


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


class NnxModel(JaxModel):
    package = "flax"

    def __init__(self, model: Any) -> None:
        self._model = model
        self._graph, state = nnx.split(model)
        self._flat = {".".join(map(str, path)): (path, one) for path, one in nnx.to_flat_state(state)}
        self.arrays = {path: value_of(one) for path, (_, one) in self._flat.items()}
        self.leaves = tuple(self._leaf(path, one) for path, (_, one) in self._flat.items())

    def _leaf(self, path: str, variable: Any) -> Leaf:
        found = leaf_of(path, value_of(variable), trained=isinstance(variable, nnx.Param))
        return Leaf(path, found.trained, not isinstance(variable, nnx.RngState), found.shape, found.dtype)

    def modules(self) -> Mapping[str, Any]:
        return dict(modules_of(self._model))

    def given(self, arrays: Mapping[str, Any]) -> Any:
        flat = [(path, one.replace(arrays[name])) for name, (path, one) in self._flat.items()]
        return nnx.merge(self._graph, nnx.from_flat_state(flat))

    def call(
        self, path: str, args: Any, kwargs: Any, arrays: Mapping[str, Any], scope: Scope, taps: Taps
    ) -> tuple[Any, Mapping[str, Any]]:
        made = self.given(arrays)
        if scope.evaluation:
            made.eval()
        modules = dict(modules_of(made))
        for module in modules.values():
            for name, value in widened_fields(module).items() if scope.dtype == "float64" else ():
                setattr(module, name, value)
        with CALLS.through(taps, made):
            output = modules[path](*args, **kwargs)
        return output, arrays_of(nnx.state(made))


def arrays_of(state: Any) -> dict[str, Any]:
    """The arrays of a state of NNX by path."""
    return {".".join(map(str, path)): value_of(one) for path, one in nnx.to_flat_state(state)}


class NnxCalls(Calls):
    def heard(self, instead: Callable[..., Any]) -> AbstractContextManager[None]:
        return every_call(nnx.Module, instead)

    def model(self, module: Any) -> JaxModel:
        return NnxModel(module)

    def path(self, module: Any) -> str | None:
        found: str | None = vars(module).get(PATH)
        return found

    @contextmanager
    def within(self, module: Any) -> Iterator[None]:
        # On the modules themselves, because transformations of NNX put copies of them together.
        modules = list(modules_of(module))
        for path, one in modules:
            setattr(one, PATH, path)
        try:
            yield
        finally:
            for _, one in modules:
                vars(one).pop(PATH, None)

    def after(self, module: Any, output: Any) -> Mapping[str, Any]:
        return arrays_of(nnx.state(module))

    def rate(self, module: Any, args: Any, kwargs: Mapping[str, Any]) -> float:
        if not isinstance(module, nnx.Dropout) or kwargs.get("deterministic", module.deterministic):
            return 0.0
        return 0.0 if module.broadcast_dims else float(module.rate)


CALLS = NnxCalls()
