"""Phrases: sentences that reach the report as English text (findings, reasons, notes), said in another language.

Rules and policies write plain English, which is what a saved alignment keeps. A language brings a file of pairs, in
phrase_tables: the English sentence with {places} for what varies, and the same in its own words:

    "{count:number} [parameter is|parameters are] {what:said}": "{count} 个参数{what}"

`said` marks a place that holds a sentence of the file again, `number` one that holds a number only. `[is|are]` is said
of one thing and of many: the sentence is known in both forms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

FOLDER = Path(__file__).with_name("phrase_tables")
_PLACE = re.compile(r"\{(\w+)(?::(said|number))?\}")
_FORMS = re.compile(r"\[([^\[\]|]*)\|([^\[\]|]*)\]")
_NUMBER = re.compile(r"[-+]?(?:[\d.,]+(?:e[-+]?\d+)?%?|inf|nan)")
_SENTENCE = re.compile(r"\b[a-z]+ [a-z]+ [a-z]+\b")
_START = 4
_BETWEEN = "; "
"""Evidence is put together with it, so each part may be a sentence of its own."""


@dataclass(frozen=True)
class Phrase:
    """One English sentence with places, and what to say instead."""

    literals: tuple[str, ...]
    """The fixed text before, between and after the places."""
    places: tuple[tuple[str, str], ...]
    """Name and kind of each place."""
    translation: str

    def values(self, text: str) -> dict[str, str] | None:
        """What stands in the places, if `text` is this sentence; found in one pass, however long the text is."""
        first, last = self.literals[0], self.literals[-1]
        if not self.places:
            return {} if text == first else None
        if not text.startswith(first) or not text.endswith(last):
            return None
        found, at, end = {}, len(first), len(text) - len(last)
        for place, literal in zip(self.places, (*self.literals[1:-1], None), strict=True):
            until = end if literal is None else text.find(literal, at + 1, end)
            if until <= at or (place[1] == "number" and not _NUMBER.fullmatch(text, at, until)):
                return None
            found[place[0]] = text[at:until]
            at = until + len(literal or "")
        return found


@dataclass(frozen=True)
class Phrases:
    """All sentences of one language, the most specific first."""

    by_start: Mapping[str, tuple[Phrase, ...]] = field(repr=False)
    """By the first letters of a text: the sentences that it may be. A report has thousands of texts."""
    anything: tuple[Phrase, ...] = field(repr=False)
    """Those that begin with a place: any text may be one of them."""

    def find(self, text: str) -> str | None:
        """The sentence in this language; None when the file does not have it."""
        for phrase in self.by_start.get(text[:_START], self.anything):
            values = phrase.values(text)
            filled = None if values is None else self._filled(phrase, values)
            if filled is not None:
                return phrase.translation.format(**filled)
        if _BETWEEN in text:
            parts = [self.find(part) for part in text.split(_BETWEEN)]
            known = [part for part in parts if part is not None]
            return "；".join(known) if len(known) == len(parts) else None
        return None

    def _filled(self, phrase: Phrase, values: dict[str, str]) -> dict[str, str] | None:
        """What to put into the places; None when one holds a sentence that the language does not have.

        Half a sentence in another language helps nobody: then the whole stays English.
        """
        filled = dict(values)
        for name in (name for name, kind in phrase.places if kind == "said"):
            found = self.find(values[name])
            if found is None and _SENTENCE.search(values[name]):
                return None
            filled[name] = values[name] if found is None else found
        return filled

    def __call__(self, text: str) -> str:
        """The sentence in this language, or as it came."""
        found = self.find(text)
        return text if found is None else found


def phrases_from(pairs: Mapping[str, str]) -> Phrases:
    """The sentences of a mapping from English to another language."""
    made = []
    both = ((form, translation) for english, translation in pairs.items() for form in _forms(english))
    for english, translation in both:
        pieces = _PLACE.split(english)
        places = tuple(zip(pieces[1::3], (kind or "" for kind in pieces[2::3]), strict=True))
        made.append(Phrase(tuple(pieces[0::3]), places, translation))
    made.sort(key=lambda one: -sum(map(len, one.literals)))
    starts = {one.literals[0][:_START] for one in made}
    open_ones = {start for start in starts if len(start) < _START}
    by_start = {
        start: tuple(one for one in made if one.literals[0][:_START] in (start, *open_ones))
        for start in starts - open_ones
    }
    return Phrases(by_start, tuple(one for one in made if one.literals[0][:_START] in open_ones))


def _forms(english: str) -> tuple[str, ...]:
    """The sentence for one thing and for many; the only one if it does not count."""
    return tuple(dict.fromkeys((_FORMS.sub(r"\1", english), _FORMS.sub(r"\2", english))))


@lru_cache(maxsize=8)
def phrases(language: str) -> Phrases:
    """The sentences of a language by its code; of English none, which leaves everything as it is."""
    path = FOLDER / f"{language}.json"
    return phrases_from(json.loads(path.read_text(encoding="utf-8")) if path.exists() else {})
