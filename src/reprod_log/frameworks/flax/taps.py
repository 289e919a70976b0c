"""Taps: what every module is given and gives, out of one jitted function, and the gradients of what they give.

A call happens while a function is traced, when there are no values yet. So a tap hands the tracers on as further
results of the traced function, and adds a zero to every floating output, whose gradient is that of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from reprod_log.frameworks.nests import flatten, mapped

Place = tuple[str, int, str]
"""Path, call and role."""


@dataclass
class Taps:
    """What the calls of one traced function give; a new one for every trace."""

    paths: Mapping[int, str]
    """The path of every module of the model that is traced, by its id."""
    zeros: Mapping[str, Any] | None = None
    """What is added to each output, by place; None: nothing."""
    values: dict[Place, Any] = field(default_factory=dict)
    """Tracers by place, in the order of execution."""
    types: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, tuple[Any, Any, Any]] = field(default_factory=dict)
    """Of the first call of every module: what it was called with and what it returned."""
    _calls: dict[str, int] = field(default_factory=dict)

    def call(self, module: Any, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call of a module, listened to."""
        path = self.paths.get(id(module))
        if path is None:
            return original(module, *args, **kwargs)
        number = self._calls[path] = self._calls.get(path, -1) + 1
        self.types[path] = type(module).__name__
        for role, leaf in (*flatten(args, "input"), *flatten(kwargs, "input")):
            if is_array(leaf):
                self.values[path, number, role] = leaf
        output = original(module, *args, **kwargs)
        output = mapped(output, lambda role, leaf: self._given(path, number, role, leaf), "output")
        if number == 0:
            self.arguments[path] = (args, kwargs, output)
        return output

    def _given(self, path: str, number: int, role: str, leaf: Any) -> Any:
        if not is_array(leaf):
            return leaf
        if self.zeros is not None and is_floating(leaf):
            leaf = leaf + self.zeros[name_of((path, number, role))]
        self.values[path, number, role] = leaf
        return leaf


def name_of(place: Place) -> str:
    path, call, role = place
    return f"{path}#{call}:{role}"


def is_array(leaf: object) -> bool:
    return isinstance(leaf, jax.Array) and not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def is_floating(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))


_listening: list[Taps] = []
"""The taps of the trace that is under way, innermost last."""


@contextmanager
def listening(taps: Taps, classes: set[type]) -> Iterator[None]:
    """While it lasts, calls of modules of these classes go through the taps."""
    replaced: list[tuple[type, Any]] = []
    for cls in classes:
        original = cls.__dict__.get("__call__")
        if original is not None:
            setattr(cls, "__call__", _tapped(original))  # noqa: B010  # mypy does not know methods as attributes
            replaced.append((cls, original))
    _listening.append(taps)
    try:
        yield
    finally:
        _listening.pop()
        for cls, original in replaced:
            setattr(cls, "__call__", original)  # noqa: B010


_running: set[int] = set()
"""Modules that are being called: a class may call the method of the one that it descends from."""


def _tapped(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if id(self) in _running or not _listening:
            return original(self, *args, **kwargs)
        _running.add(id(self))
        try:
            return _listening[-1].call(self, original, args, kwargs)
        finally:
            _running.discard(id(self))

    return call
