"""Words: the sentences of the reports, one JSON file per language in this folder; all have the same ids.

`{name}` is the place of a value, `{count:entry|entries}` that of a number with its noun (`#` is the number where it
does not come first: `{total:the # entry passes|all # entries pass}`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from reprod_log.errors import UsageError, counted, listed
from reprod_log.messages.phrases import Phrases, phrases

_FOLDER = Path(__file__).parent
PLACE = re.compile(r"\{(\w+)(?::([^{}|]*)\|([^{}|]*))?\}")
"""A place in a sentence: its name, and the noun for one and for many if it is a number that has one."""


class Name(str):
    """Text that came from the user's program: a key, a path, a class name. A format shows it as it shows code."""

    __slots__ = ()


class Text(str):
    """A sentence that another part of the program wrote in English: a reason, a cause, a note."""

    __slots__ = ()


@dataclass(frozen=True)
class Say:
    """A sentence by its id, with the values that fill it (text, numbers, sentences, lists of them as tuples)."""

    id: str
    values: Mapping[str, object] = field(default_factory=dict)


def say(id: str, **values: object) -> Say:
    return Say(id, values)


@dataclass(frozen=True)
class Words:
    """The sentences of one language."""

    language: str
    sentences: Mapping[str, str] = field(repr=False)
    phrases: Phrases = field(repr=False)
    """How sentences are said that come as English text."""

    def __call__(self, what: Say | str, *, name: Callable[[str], str] = str) -> str:
        """The sentence, its values filled in; names go through `name`. English text is said as the language has it."""
        if isinstance(what, str):
            return self.phrases(what)

        def fill(place: re.Match[str]) -> str:
            value, one, many = what.values[place[1]], place[2], place[3]
            if one is not None and isinstance(value, int):
                return counted(value, one, many)
            return str(self._filled(value, name))

        return PLACE.sub(fill, self.sentences[what.id])

    def _filled(self, value: object, name: Callable[[str], str]) -> object:
        if isinstance(value, Name):
            return name(value)
        if isinstance(value, (Say, Text)):
            return self(value, name=name)
        if isinstance(value, tuple):
            return self.sentences["comma"].join(str(self._filled(one, name)) for one in value)
        return value

    def get(self, id: str) -> str:
        """A sentence without values."""
        return self.sentences[id]


@lru_cache(maxsize=8)
def words(language: str = "en") -> Words:
    """The words of a language, by its code: en, zh."""
    known = known_languages()
    if language not in known:
        raise UsageError(f"no language {language!r} in reports; known are {listed(known)}")
    sentences = json.loads((_FOLDER / f"{language}.json").read_text(encoding="utf-8"))
    return Words(language, sentences, phrases(language))


def known_languages() -> tuple[str, ...]:
    """The codes of all languages there are."""
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.json")))
