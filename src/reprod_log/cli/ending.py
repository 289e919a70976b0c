"""What a command tells, in the language it was asked for, and how it ends: with the next command to type and, after
`--json -`, with one JSON document.

Nothing else is then on standard output, whatever a command or a script prints.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

import typer

from reprod_log.errors import UsageError
from reprod_log.messages import Code, Name, Text, message, words
from reprod_log.report.writing import plain

STDOUT = Path("-")
_SCHEMA, _VERSION = "reprod_log answer", 1


class Document:
    """What one command answers, in which language, and whether it was asked for JSON."""

    def __init__(self, typed: tuple[str, ...] = ()) -> None:
        self.typed = typed
        """The arguments of the command as they were typed."""
        self.language = "en"
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


def _document() -> Document:
    """That of the command that runs; outside of one nothing is kept."""
    return _DOCUMENT.get() or Document()


@contextmanager
def documented(arguments: list[str]) -> Iterator[Document]:
    """The document of the command that runs in the block."""
    document = Document(tuple(arguments))
    token = _DOCUMENT.set(document)
    try:
        yield document
    finally:
        _DOCUMENT.reset(token)


def give(make: Callable[[], dict[str, Any]]) -> None:
    """Add fields to the document; they are not even made when nobody asked for one."""
    document = _document()
    if document.asked:
        document.content |= make()


def tell(what: Text, *, before: str = "", err: bool = False) -> None:
    """Print a sentence in the command's language."""
    typer.echo(f"{before}{plain(words(_document().language)(what))}", err=err)


def tell_note(what: Text, *, err: bool = False) -> None:
    """Print a sentence that begins as notes do."""
    tell(what, before=f"{words(_document().language).get('note')}: ", err=err)


def tell_written(path: Path) -> None:
    """Print where something was written."""
    give(lambda: {"written": [*_document().content.get("written", ()), str(path)]})
    tell(message("written", path=Name(path)))


def tell_next(*command: str | Path) -> None:
    """Print the command that one is likely to want next."""
    line = shlex.join(map(str, command))
    give(lambda: {"next": line})
    tell(message("run.next", command=Code(line)))


def tell_compare(recording: Path) -> None:
    """Print the command that compares a recording with the last one beside it, of another framework if there is one;
    the older of two is the reference."""
    beside = recording.resolve().parent.glob("*/manifest.json")
    others = [one.parent for one in beside if one.parent != recording.resolve()]
    if others and recording.is_dir():
        own = _framework(recording)
        last = max(others, key=lambda one: (_framework(one) != own, _written_at(one)))
        other = recording.parent / last.name
        tell_next("reprod", "compare", *sorted((other, recording), key=_written_at))
    else:
        tell_next("reprod", "compare", recording, "CANDIDATE")


def _framework(folder: Path) -> str:
    try:
        return str(json.loads((folder / "manifest.json").read_bytes())["provenance"]["framework"])
    except (OSError, ValueError, KeyError, TypeError):
        # It is only a proposal: comparing a damaged recording reports what is wrong.
        return ""


def _written_at(folder: Path) -> int:
    return (folder / "manifest.json").stat().st_mtime_ns


def typed_again(*options: str) -> list[str]:
    """The command that runs, as it was typed, with more options: what was allowed or renamed stays so."""
    command, *rest = _document().typed or ("--help",)
    kept = [
        one for place, one in enumerate(rest) if ("--json", "-") not in pairwise(rest[max(place - 1, 0) : place + 2])
    ]
    # What follows a script is the script's own, so that our options stand before it.
    before = len(kept) if not any(one.endswith(".py") for one in kept) else 0
    return ["reprod", command, *kept[:before], *options, *kept[before:]]


def speak(language: str) -> str:
    """The callback of `--language`."""
    _document().language = language
    return language


def begin_if_asked(path: Path | None) -> Path | None:
    """The callback of `--json`: - begins a document, any other path is left to the command."""
    if path == STDOUT:
        _document().begin()
    return path


def only_stdout(path: Path | None) -> Path | None:
    """The callback of `--json` for commands that have nothing to save."""
    if path not in (None, STDOUT):
        raise UsageError(f"--json prints to standard output here: write --json - > {path}")
    return begin_if_asked(path)
