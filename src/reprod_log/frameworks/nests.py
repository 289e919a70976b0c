"""Nested outputs, taken apart into leaves with names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

_DEEPEST = 32
_NOT_IN_A_ROLE = re.compile(r"[:#/]")


def flatten(structure: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of tuples, lists, mappings, named tuples and dataclasses with its dotted name below `name`.

    None has no leaves. Anything else, a number or an object of another kind, is a leaf for the caller to judge.

        flatten((x, {"mask": m, "state": [h, None]}), "output")
        output.0 → x,  output.1.mask → m,  output.1.state.0 → h
    """
    return _flatten(structure, name, 0)


def _flatten(structure: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    if structure is None:
        return
    items = _items(structure) if depth < _DEEPEST else None
    if items is None:
        yield name, structure
        return
    for part, item in items:
        yield from _flatten(item, f"{name}.{part}" if name else part, depth + 1)


def _items(structure: Any) -> list[tuple[str, Any]] | None:
    # Hugging Face's ModelOutput is a mapping and a dataclass at once; as a mapping it leaves out what is None.
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
