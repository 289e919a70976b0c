"""Messages: what is reported, as an id with arguments; a sentence is made at the very end, by one table per language.

`en.json` and `zh.json` have the same ids. In a row `{name}` is the place of an argument, `{count:entry|entries}` that
of a number with its noun, `#` the number if it does not come first: `{total:# entry passes|all # entries pass}`.
Rows are whole sentences: no code joins, splits, compares or edits what a table says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from reprod_log.errors import UsageError, counted, listed

_FOLDER = Path(__file__).parent
PLACE = re.compile(r"\{(\w+)(?::([^{}|]*)\|([^{}|]*))?\}")
"""A place in a sentence: its name, and the noun for one and for many if it is a number that has one."""
_MOST_NAMES = 5
_NUMBER_FORM = re.compile(r"[+]?,?(\.[0-9]{1,2})?[defg%]?")


class Name(str):
    """A key, a path, a class: text of the user's program, shown as code. The empty path names the whole model."""

    __slots__ = ()


class Code(str):
    """A piece of a program to copy: `eps=1e-05`, `Linear(…, bias=False)`."""

    __slots__ = ()


class Foreign(str):
    """Text that another program wrote: a framework's error, a sentence of a file of the first edition."""

    __slots__ = ()


class Names(tuple[str, ...]):
    """Several names; the first few are shown, then how many more there are."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Number:
    """A number and the format in which it is written; two are equal when they are written alike."""

    value: float
    form: str = ".3g"

    def __str__(self) -> str:
        return format(self.value, self.form)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class Parts(tuple["Message", ...]):
    """Several messages that make one sentence, with semicolons between them."""

    __slots__ = ()


@dataclass(frozen=True)
class Message:
    """A row of the tables by its id, with the arguments that fill its places.

    Arguments are names, code, numbers, plain words that need no translation, messages, and tuples of messages.
    """

    id: str
    arguments: Mapping[str, object] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.id, tuple(sorted(self.arguments))))

    def __str__(self) -> str:
        """In English, for a console or a traceback; reports ask `words` for the reader's language."""
        return words()(self)

    def without(self, *names: str) -> Message:
        """The same message with these arguments left out: what is equal is the same message about other places."""
        return Message(self.id, {name: value for name, value in self.arguments.items() if name not in names})

    def to_dict(self, *, text: bool = True) -> dict[str, Any]:
        """As plain values that JSON can hold; with the English text, unless it stands beside them already."""
        written = {name: _written(value) for name, value in self.arguments.items()}
        return {"id": self.id, "arguments": written, **({"text": str(self)} if text else {})}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | str) -> Message:
        """What `to_dict` wrote; a plain text is a sentence of a file of the first edition."""
        if isinstance(data, str):
            return cls("text", {"text": Foreign(data)})
        sentence = words().sentences.get(data["id"])
        try:
            arguments = {str(name): _read(value) for name, value in data["arguments"].items()}
            known = isinstance(sentence, str) and {place[1] for place in PLACE.finditer(sentence)} <= set(arguments)
        except KeyError:
            known = False
        if not known:
            # Written by a later version, or damaged: its English text is all that can be shown. What stands inside of
            # another message has none of its own.
            return cls("text", {"text": Foreign(data["text"])})
        return cls(data["id"], arguments)


Text = Message | str | tuple[Message, ...]
"""What a reader is given: a message, several that make one sentence, or text of a file of the first edition."""


def message(id: str, /, **arguments: object) -> Message:
    return Message(id, arguments)


def places(id: str) -> frozenset[str]:
    """The names of the arguments that a message takes."""
    return frozenset(place[1] for place in PLACE.finditer(words().sentences[id]))


Note = Message | str
"""What a reader should know besides the numbers. Text: a sentence of a file of the first edition."""


def notes_to_dict(notes: Iterable[Note]) -> dict[str, Any]:
    """The notes in English, as every version has read them, and beside them the messages that they were made from."""
    notes = tuple(notes)
    found: dict[str, Any] = {"notes": [str(note) for note in notes]}
    if any(isinstance(note, Message) for note in notes):
        found["note_ids"] = [note.to_dict(text=False) if isinstance(note, Message) else None for note in notes]
    return found


def notes_from_dict(data: Mapping[str, Any]) -> tuple[Note, ...]:
    """What `notes_to_dict` wrote; text where there are no messages beside it."""
    texts = [str(text) for text in data.get("notes", ())]
    ids = data.get("note_ids")
    if ids is None:
        return tuple(texts)
    pairs = zip(texts, ids, strict=True)
    return tuple(text if one is None else Message.from_dict({**one, "text": text}) for text, one in pairs)


_TAGS: Mapping[str, type[str]] = {"name": Name, "code": Code, "foreign": Foreign}


def _written(value: object) -> Any:
    if isinstance(value, Message):
        return {"message": value.to_dict(text=False)}
    if isinstance(value, Names):
        return {"names": list(value)}
    if isinstance(value, Parts):
        return {"parts": [one.to_dict(text=False) for one in value]}
    if isinstance(value, Number):
        return {"number": value.value, "form": value.form}
    if isinstance(value, tuple):
        return [_written(one) for one in value]
    tag = next((tag for tag, kind in _TAGS.items() if isinstance(value, kind)), None)
    return value if tag is None else {tag: str(value)}


def _read(value: Any) -> object:
    if isinstance(value, list):
        return tuple(_read(one) for one in value)
    if not isinstance(value, Mapping):
        return value
    if "message" in value:
        return Message.from_dict(value["message"])
    if "names" in value:
        return Names(str(one) for one in value["names"])
    if "parts" in value:
        return Parts(Message.from_dict(one) for one in value["parts"])
    if "number" in value:
        # A file may claim anything; a form like ".999999999f" would take all memory.
        if not isinstance(value["number"], (int, float)) or not _NUMBER_FORM.fullmatch(str(value["form"])):
            raise ValueError(f"not a number with its format: {str(value)[:100]}")
        return Number(value["number"], str(value["form"]))
    ((tag, text),) = value.items()
    return _TAGS[tag](text)


@dataclass(frozen=True)
class Words:
    """The table of one language."""

    language: str
    sentences: Mapping[str, str] = field(repr=False)

    def __call__(self, what: Text, *, name: Callable[[str], str] = str) -> str:
        """The sentence, its places filled; names go through `name`. Text of the first edition stays as it is."""
        if isinstance(what, str):
            return what
        if isinstance(what, tuple):
            return self.sentences["semicolon"].join(self(one, name=name) for one in what)

        def fill(place: re.Match[str]) -> str:
            value, one, many = what.arguments[place[1]], place[2], place[3]
            if one is not None and isinstance(value, int):
                return counted(value, one, many)
            return str(self._filled(value, name))

        return PLACE.sub(fill, self.sentences[what.id])

    def _filled(self, value: object, name: Callable[[str], str]) -> object:
        if isinstance(value, (Name, Code)):
            return self._named(value, name)
        if isinstance(value, Message):
            return self(value, name=name)
        if isinstance(value, Names):
            shown = self.sentences["comma"].join(self._named(one, name) for one in value[:_MOST_NAMES])
            more = len(value) - _MOST_NAMES
            return shown if more <= 0 else self(message("list.more", shown=Foreign(shown), count=more))
        if isinstance(value, Parts):
            return self(value, name=name)
        if isinstance(value, tuple):
            return self.sentences["comma"].join(str(self._filled(one, name)) for one in value)
        return value

    def _named(self, one: str, name: Callable[[str], str]) -> str:
        """A name as a format shows it; the empty path is that of the whole model."""
        return name(one) if one else self.sentences["word.the_model"]

    def get(self, id: str) -> str:
        """A sentence without arguments."""
        return self.sentences[id]


@lru_cache(maxsize=8)
def words(language: str = "en") -> Words:
    """The table of a language, by its code: en, zh."""
    known = known_languages()
    if language not in known:
        raise UsageError(f"no language {language!r} in reports; known are {listed(known)}")
    sentences = json.loads((_FOLDER / f"{language}.json").read_text(encoding="utf-8"))
    return Words(language, sentences)


@lru_cache(maxsize=1)
def known_languages() -> tuple[str, ...]:
    """The codes of all languages there are."""
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.json")))
