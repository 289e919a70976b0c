"""Values of ours as the plain ones that JSON holds, and back: written and checked by the types of their fields.

A dataclass or named tuple becomes a dict of its fields, a key or a member of an enumeration its text, a complex number
{"re": …, "im": …}. A message becomes its English text, with its id and arguments beside it (`reason`, `reason_id`;
`notes`, `note_ids`). What is read may come from anyone: a field of another type than it should have raises TypeError,
one that is missing and has no default KeyError, numbers that contradict each other (`contradictions`) ValueError.
Fields that are not known are left out: a later version wrote them.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from reprod_log.messages import Message, Note, notes_from_dict, notes_to_dict
from reprod_log.recording.key import Key

Kind = TypeVar("Kind")
_UNIONS = (Union, types.UnionType)
_LARGEST = 1 << 64
"""Seeds come near it; beyond it nothing is counted, and the text of a number can be without end."""


class Plain:
    """A dataclass that files keep."""

    @staticmethod
    def brief() -> tuple[str, ...]:
        """Fields that a file leaves out where they have their default."""
        return ()

    def to_dict(self) -> dict[str, Any]:
        return to_plain(self)

    @classmethod
    def from_dict(cls: type[Kind], data: Mapping[str, Any]) -> Kind:
        return from_plain(cls, data)


def to_plain(value: Any) -> dict[str, Any]:
    """The fields of a dataclass or named tuple as plain values."""
    kind: Any = type(value)
    return _structure(kind).write(value)


def from_plain(kind: type[Kind], data: Any) -> Kind:
    """What `to_plain` wrote, with every field checked; a value of this kind is checked as well."""
    known: Any = kind
    value: Kind = _structure(known).read(data)
    return value


class _Misfit(TypeError):
    """A value is not of its type; whoever knows the field says which."""


class _Form(NamedTuple):
    """How values of one type are read and written."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] | None = None
    """None: they are plain already."""
    kind: type = object
    """Of the values that are not."""


class _Structure:
    """The form of a dataclass or a named tuple."""

    def __init__(self, kind: Any) -> None:
        hints = get_type_hints(kind)
        is_tuple = issubclass(kind, tuple)
        self._kind = kind
        self._names: tuple[str, ...] = kind._fields if is_tuple else tuple(one.name for one in fields(kind))
        self._defaults = dict(kind._field_defaults) if is_tuple else _defaults(kind)
        self._taken: Callable[[Any], dict[str, Any]] = kind._asdict if is_tuple else self._fields_of
        self._brief: tuple[str, ...] = kind.brief() if hasattr(kind, "brief") else ()
        self._has_notes = hints.get("notes") == tuple[Note, ...]
        unions = {name: get_args(hints[name]) for name in self._names if get_origin(hints[name]) in _UNIONS}
        self._sentences = {name: str in kinds for name, kinds in unions.items() if Message in kinds}
        others = {*self._sentences, "notes"} if self._has_notes else self._sentences.keys()
        self._forms = {name: _form(hints[name]) for name in self._names if name not in others}
        self._written = tuple((name, one.write) for name, one in self._forms.items() if one.write is not None)
        self._contradictions = getattr(kind, "contradictions", None)

    def _fields_of(self, value: Any) -> dict[str, Any]:
        return {name: getattr(value, name) for name in self._names}

    def write(self, value: Any) -> dict[str, Any]:
        plain = self._taken(value)
        for name, write in self._written:
            plain[name] = write(plain[name])
        for name in self._sentences:
            sentence = plain[name]
            plain[name] = "" if sentence is None else str(sentence)
            if isinstance(sentence, Message):
                plain[f"{name}_id"] = sentence.to_dict(text=False)
        if self._has_notes:
            plain |= notes_to_dict(plain["notes"])
        for name in self._brief:
            if getattr(value, name) == self._defaults[name]:
                del plain[name]
        return plain

    def read(self, data: Any) -> Any:
        if data.__class__ is self._kind:
            return self._checked(self._taken(data))
        if not isinstance(data, Mapping):
            raise _Misfit
        values = {name: data[name] for name in self._names if name in data or name not in self._defaults}
        for name, may_be_text in self._sentences.items():
            if name in values:
                values[name] = _sentence(values[name], data.get(f"{name}_id"), may_be_text=may_be_text)
        if self._has_notes:
            values["notes"] = notes_from_dict(data)
        return self._checked(values)

    def _checked(self, values: dict[str, Any]) -> Any:
        for name, form in self._forms.items():
            if name in values:
                try:
                    values[name] = form.read(values[name])
                except _Misfit:
                    seen = type(values[name]).__name__
                    raise TypeError(f"{self._kind.__name__}.{name} cannot be a {seen} like this") from None
        found = self._kind(**values)
        wrong = None if self._contradictions is None else next(self._contradictions(found), None)
        if wrong is not None:
            raise ValueError(f"numbers that no measurement gives: {wrong}")
        return found


def _defaults(kind: Any) -> dict[str, Any]:
    found = {one.name: one.default for one in fields(kind) if one.default is not MISSING}
    return found | {one.name: one.default_factory() for one in fields(kind) if one.default_factory is not MISSING}


def _sentence(text: Any, written: Any, *, may_be_text: bool) -> Message | str | None:
    if text is None or isinstance(text, Message):
        return text
    if not isinstance(text, str):
        raise TypeError(f"a sentence cannot be a {type(text).__name__}")
    if written is None:
        return text if may_be_text else Message.from_dict(text) if text else None
    return Message.from_dict({**written, "text": text})


@cache
def _structure(kind: Any) -> _Structure:
    return _Structure(kind)


@cache
def _form(hint: Any) -> _Form:
    origin, given = get_origin(hint), get_args(hint)
    if hint in _OTHERS:
        return _OTHERS[hint]
    if origin in _UNIONS:
        return _union(tuple(map(_form, given)))
    if origin is tuple:
        return _sequence(_form(given[0])) if given[-1] is Ellipsis else _row(tuple(map(_form, given)))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_form(given[0]), _form(given[1]))
    if isinstance(hint, type) and (is_dataclass(hint) or hasattr(hint, "_fields")):
        return _Form(_structure(hint).read, _structure(hint).write, hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _Form(hint, str, hint)
    return _Form(_reader(given.__contains__ if origin is Literal else _FITS[hint]))


def _reader(fits: Callable[[Any], bool]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not fits(value):
            raise _Misfit
        return value

    return read


def _union(options: tuple[_Form, ...]) -> _Form:
    def read(value: Any) -> Any:
        for option in options:
            try:
                return option.read(value)
            except _Misfit:
                continue
        raise _Misfit

    # No union has two kinds that are not plain.
    write, kind = next(((one.write, one.kind) for one in options if one.write is not None), (None, object))
    if write is None:
        return _Form(read)
    return _Form(read, lambda value: write(value) if isinstance(value, kind) else value, kind)


def _sequence(item: _Form) -> _Form:
    read, write = item.read, item.write

    def read_all(value: Any) -> Any:
        if not isinstance(value, (tuple, list)):
            raise _Misfit
        return tuple(map(read, value))

    return _Form(read_all, None if write is None else lambda value: list(map(write, value)), tuple)


def _row(items: tuple[_Form, ...]) -> _Form:
    def read(value: Any) -> Any:
        if not isinstance(value, (tuple, list)) or len(value) != len(items):
            raise _Misfit
        return tuple(item.read(one) for item, one in zip(items, value, strict=True))

    return _Form(read)


def _mapping(key: _Form, item: _Form) -> _Form:
    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _Misfit
        return {key.read(name): item.read(one) for name, one in value.items()}

    return _Form(read, dict, Mapping)


def _is_whole(value: Any) -> bool:
    return type(value) is int and -_LARGEST < value < _LARGEST


_FITS: dict[Any, Callable[[Any], bool]] = {
    Any: lambda value: True,
    object: lambda value: True,
    str: lambda value: isinstance(value, str),
    bool: lambda value: isinstance(value, bool),
    type(None): lambda value: value is None,
    int: _is_whole,
    # JSON does not tell 1.0 from 1.
    float: lambda value: type(value) is float or _is_whole(value),
}


def _complex(value: Any) -> complex:
    if isinstance(value, Mapping) and value.keys() == {"re", "im"}:
        value = complex(value["re"], value["im"])
    if not isinstance(value, complex):
        raise _Misfit
    return value


def _key(value: Any) -> Key:
    if not isinstance(value, (str, Key)):
        raise _Misfit
    return Key.of(value)


_OTHERS = {
    complex: _Form(_complex, lambda value: {"re": value.real, "im": value.imag}, complex),
    Key: _Form(_key, str, Key),
}
