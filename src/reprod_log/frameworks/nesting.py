"""Nested tuples, lists, dicts and dataclasses of tensors: walked in one place, the same for every framework."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def leaves(value: Any, is_tensor: Callable[[Any], bool]) -> Iterator[Any]:
    """Every tensor inside a nested value, in a fixed order."""
    if is_tensor(value):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from leaves(one, is_tensor)
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from leaves(one, is_tensor)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), is_tensor)


def replaced(value: Any, is_array: Callable[[Any], bool], convert: Callable[[Any], Any]) -> Any:
    """The nested value with every array in it converted."""
    if is_array(value):
        return convert(value)
    if isinstance(value, Mapping):
        return {key: replaced(one, is_array, convert) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(replaced(one, is_array, convert) for one in value)
    return value
