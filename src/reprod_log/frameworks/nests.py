"""Nests: tuples, lists, mappings, named tuples, dataclasses and attrs classes of tensors, walked in one place."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

_DEEPEST = 32
_NOT_IN_A_ROLE = re.compile(r"[:#/]")
_PLAIN = (bool, int, float, str, type(None), np.ndarray)


def flatten(structure: Any, name: str = "", _depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Every leaf of tuples, lists, mappings, named tuples and dataclasses with its dotted name below `name`.

    None has no leaves. Anything else, a number or an object of another class, is a leaf for the caller to judge.

        flatten((x, {"mask": m, "state": [h, None]}), "output")
        output.0 → x,  output.1.mask → m,  output.1.state.0 → h
    """
    if structure is None:
        return
    items = _items(structure) if _depth < _DEEPEST else None
    if items is None:
        yield name, structure
        return
    for part, item in items:
        yield from flatten(item, f"{name}.{part}" if name else part, _depth + 1)


def mapped(structure: Any, convert: Callable[[str, Any], Any], name: str = "", _depth: int = 0) -> Any:
    """The same nest with `convert(name, leaf)` in the place of every leaf; names are those of `flatten`.

    Containers are new and of the same class, so that a named tuple or a Hugging Face output still has its attributes.
    """
    if structure is None:
        return None
    items = _items(structure) if _depth < _DEEPEST else None
    if items is None:
        return convert(name, structure)
    new = [mapped(item, convert, f"{name}.{part}" if name else part, _depth + 1) for part, item in items]
    return _rebuilt(structure, items, new)


def filled(structure: Any, leaves: Mapping[str, Any], name: str = "") -> Any:
    """The same nest with those leaves that `leaves` has by name; the others stay."""
    return mapped(structure, lambda role, leaf: leaves.get(role, leaf), name)


def is_portable(structure: Any, _depth: int = 0) -> bool:
    """Whether the nest holds arrays and plain values only, in containers that every program knows."""
    if isinstance(structure, (Mapping, tuple, list)) and _depth < _DEEPEST:
        items = structure.values() if isinstance(structure, Mapping) else structure
        return all(is_portable(one, _depth + 1) for one in items)
    return isinstance(structure, _PLAIN)


def plain_role(role: str) -> str:
    """The role of an output: a lone one is 'output' on one side and may be 'output.0' on the other."""
    return role.removesuffix(".0")


def _items(structure: Any) -> list[tuple[str, Any]] | None:
    # Hugging Face's ModelOutput is a mapping and a dataclass at once; as a mapping it omits what is None.
    if isinstance(structure, Mapping):
        return [(_NOT_IN_A_ROLE.sub("_", str(key)), item) for key, item in structure.items()]
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return list(zip(structure._fields, structure, strict=True))
    if isinstance(structure, (tuple, list)):
        return [(str(index), item) for index, item in enumerate(structure)]
    if is_dataclass(structure) and not isinstance(structure, type):
        return [(field.name, getattr(structure, field.name)) for field in fields(structure)]
    attributes = getattr(type(structure), "__attrs_attrs__", None)
    if attributes is not None:
        return [(attribute.name, getattr(structure, attribute.name)) for attribute in attributes]
    return None


def _rebuilt(structure: Any, items: list[tuple[str, Any]], new: list[Any]) -> Any:
    """A container like `structure` that holds `new`."""
    if isinstance(structure, Mapping):
        content = dict(zip(structure, new, strict=True))
        if not isinstance(structure, dict) or type(structure) is dict:
            return content
        same = copy.copy(structure)
        for key, value in content.items():
            same[key] = value
        return same
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        # Past a constructor that wants tensors (a packed sequence), where arrays stand for them.
        return type(structure)._make(new)  # type: ignore[attr-defined]  # every named tuple has it
    if isinstance(structure, (tuple, list)):
        return type(structure)(new)
    if all(one is before for one, (_, before) in zip(new, items, strict=True)):
        # An object that holds no tensor is given as it is.
        return structure
    same = copy.copy(structure)
    for (name, _), value in zip(items, new, strict=True):
        # Past a frozen class's own refusal: the copy is not shared yet.
        object.__setattr__(same, name, value)
    return same
