"""Values that were read from a file, held against the types that their dataclass or named tuple says they have."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Check = Callable[[Any], bool]

_LARGEST = 1 << 64
"""Seeds come near it; beyond it nothing is counted, and the text of a number can be without end."""


def check_types(value: Any) -> None:
    """Raise TypeError, with the name of the field, unless every field of this value has the type it says."""
    kind: Any = type(value)
    for name, fits in _checks(kind):
        if not fits(getattr(value, name)):
            raise TypeError(
                f"{type(value).__name__}.{name} cannot be a {type(getattr(value, name)).__name__} like this"
            )


@cache
def _checks(kind: Any) -> tuple[tuple[str, Check], ...]:
    hints = get_type_hints(kind)
    names = kind._fields if issubclass(kind, tuple) else [field.name for field in fields(kind)]
    return tuple((name, _check(hints[name])) for name in names)


def _check(hint: Any) -> Check:
    origin, given = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        options = [_check(one) for one in given]
        return lambda value: any(fits(value) for fits in options)
    if origin is Literal:
        return lambda value: isinstance(value, str) and value in given
    if origin is tuple:
        return _tuple(given)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        keys, values = _check(given[0]), _check(given[1])
        return lambda value: isinstance(value, Mapping) and all(keys(k) and values(v) for k, v in value.items())
    return _plain(hint)


def _tuple(given: tuple[Any, ...]) -> Check:
    if given[-1] is Ellipsis:
        item = _check(given[0])
        return lambda value: isinstance(value, tuple) and all(map(item, value))
    items = [_check(one) for one in given]
    return lambda value: (
        isinstance(value, tuple) and len(value) == len(items) and all(f(v) for f, v in zip(items, value, strict=True))
    )


def _plain(hint: Any) -> Check:
    if hint is Any:
        return lambda value: True
    if hint is int:
        return lambda value: type(value) is int and -_LARGEST < value < _LARGEST
    if hint is float:
        # JSON does not tell 1.0 from 1.
        return lambda value: type(value) is float or (type(value) is int and -_LARGEST < value < _LARGEST)
    if isinstance(hint, type) and (is_dataclass(hint) or hasattr(hint, "_fields")):
        return _value(hint)
    if isinstance(hint, type) and issubclass(hint, (str, bool, complex, type(None), Enum)):
        return lambda value: isinstance(value, hint)
    raise AssertionError(f"no check for fields of type {hint!r}")


def _value(kind: Any) -> Check:
    def fits(value: Any) -> bool:
        return value.__class__ is kind and all(one(getattr(value, name)) for name, one in _checks(kind))

    return fits
