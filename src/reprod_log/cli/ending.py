"""How every command ends: with the next one to type and, after `--json -`, with one JSON document.

Nothing else is then on standard output, whatever a command or a script prints.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TextIO

import typer

from reprod_log.errors import UsageError
from reprod_log.messages import Code, message, words
from reprod_log.report.writing import plain

STDOUT = Path("-")
_SCHEMA, _VERSION = "reprod_log answer", 1


class Document:
    """What one command answers, if it was asked for JSON."""

    def __init__(self) -> None:
        self.asked = False
        self.content: dict[str, Any] = {}
        self._stdout: TextIO | None = None
        self._number: int | None = None

    def begin(self) -> None:
        """From now on everything that is printed goes to standard error."""
        if self.asked:
            return
        self.asked = True
        self._stdout = sys.stdout
        # Programs that a command starts write to the descriptor, and not to sys.stdout.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            if sys.stdout.fileno() == 1:
                self._number = os.dup(1)
                os.dup2(2, 1)
        sys.stdout = sys.stderr

    def end(self, code: int, command: str) -> None:
        """Give standard output back, and write the document to it."""
        if not self.asked:
            return
        if self._stdout is not None:
            if self._number is not None:
                os.dup2(self._number, 1)
                os.close(self._number)
            sys.stdout = self._stdout
        head = {"schema": _SCHEMA, "version": _VERSION, "command": command, "exit_code": code}
        print(json.dumps(_plain(head | self.content), allow_nan=False, indent=1))


def _plain(value: Any) -> Any:
    """Values that every reader of JSON knows: NaN and the infinities by name, anything else that is none as text."""
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


_DOCUMENT: ContextVar[Document | None] = ContextVar("document", default=None)


@contextmanager
def documented() -> Iterator[Document]:
    """The document of the command that runs in the block."""
    document = Document()
    token = _DOCUMENT.set(document)
    try:
        yield document
    finally:
        _DOCUMENT.reset(token)


def give(make: Callable[[], dict[str, Any]]) -> None:
    """Add fields to the document; they are not even made when nobody asked for one."""
    document = _DOCUMENT.get()
    if document is not None and document.asked:
        document.content |= make()


def give_to(name: str, value: object) -> None:
    """Add to a list of the document."""
    give(lambda: {name: [*_content().get(name, ()), value]})


def _content() -> dict[str, Any]:
    document = _DOCUMENT.get()
    return {} if document is None else document.content


def tell_next(command: str, language: str = "en") -> None:
    """Print the command that one is likely to want next."""
    give(lambda: {"next": command})
    typer.echo(plain(words(language)(message("run.next", command=Code(command)))))


def begin_if_asked(path: Path | None) -> Path | None:
    """The callback of `--json`: - begins a document, any other path is left to the command."""
    document = _DOCUMENT.get()
    if path == STDOUT and document is not None:
        document.begin()
    return path


def only_stdout(path: Path | None) -> Path | None:
    """The callback of `--json` for commands that have nothing to save."""
    if path not in (None, STDOUT):
        raise UsageError(f"--json prints to standard output here: write --json - > {path}")
    return begin_if_asked(path)
