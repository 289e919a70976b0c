"""The output of `reprod` where it cannot hold every character: pipes in gbk, latin-1 or ASCII, names that are not text.

A mark that an encoding lacks is replaced by an ASCII one, any other character by its escape; the verdict and the exit
code stay. Control characters of file names and errors are shown as escapes: a file must not be able to write verdicts.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from reprod_log.report.writing import plain

_HANDLER = "reprod_log.ascii"
_ASCII = {
    "✓": "+", "○": "o", "≈": "~", "✗": "x", "∅": "-", "≠": "!", "…": "...", "×": "x", "–": "-", "—": "-", "−": "-",
    "·": ".", "“": '"', "”": '"', "‘": "'", "’": "'", "→": "->", "≤": "<=", "≥": ">=", "±": "+-", "³": "^3", "²": "^2",
    "↔": "<->", "│": "|", "├": "|", "└": "`", "─": "-", "━": "-", "╸": "-", "╺": "-",
}  # fmt: skip

_Streams = tuple[tuple[Any, str], ...]
_AS_FOUND: ContextVar[_Streams] = ContextVar("as_found", default=())
"""The streams and how each met a character that it cannot encode, before this command changed that."""


def printable(text: str) -> str:
    """The text with everything but its line breaks made visible."""
    return "\n".join(map(plain, text.split("\n")))


@contextmanager
def tolerant_output() -> Iterator[None]:
    """Standard output and error take every character while the block runs."""
    codecs.register_error(_HANDLER, _replaced)
    found: _Streams = tuple(
        (stream, stream.errors or "strict") for stream in (sys.stdout, sys.stderr) if hasattr(stream, "reconfigure")
    )
    token = _AS_FOUND.set(found)
    _set(found, _HANDLER)
    try:
        yield
    finally:
        _AS_FOUND.reset(token)
        _set(found)


@contextmanager
def program_output() -> Iterator[None]:
    """Standard output and error as they were found, for a program of the user's inside `tolerant_output`."""
    _set(_AS_FOUND.get())
    try:
        yield
    finally:
        _set(_AS_FOUND.get(), _HANDLER)


def _set(streams: _Streams, handler: str = "") -> None:
    for stream, found in streams:
        # A stream that the program closed, or whose reader has gone, has nothing left to write.
        with suppress(ValueError, OSError):
            stream.reconfigure(errors=handler or found)


def _replaced(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    return "".join(_ASCII.get(one) or one.encode("ascii", "backslashreplace").decode() for one in characters), error.end
