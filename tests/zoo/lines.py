"""Mistakes that are one changed line of a program of `programs/`.

The file is written anew with the change and imported beside the original, so that the mistake has a line of its own: a
cause that names this line is right.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from zoo import programs
from zoo.trial import Half, Mistake, Trial, half_of

_PROGRAMS = Path(programs.__path__[0])


@dataclass(frozen=True)
class Line:
    """A change of one line, and what a good answer says about it."""

    program: str
    what: str
    old: str
    new: str
    place: tuple[str, ...]
    """Part of the first divergent key."""
    words: tuple[str, ...] = ()
    """What a cause must say, one of them at least, unless it names the line."""

    @property
    def name(self) -> str:
        return f"{self.program}_{self.what.replace(' ', '_')}"

    @property
    def half(self) -> Half:
        return half_of(self.name)

    def mistake(self) -> Mistake:
        """As a row beside the others. The line is known before anything runs."""
        line = f"{self.program}.py:{_place(self)}"
        return Mistake(self.name, self._base, lambda trial: None, (), (*self.words, line), self.place)

    def _base(self, seed: int) -> Trial:
        return planted((self,), seed)


def planted(lines: tuple[Line, ...], seed: int) -> Trial:
    """A trial of one program with all of these changes in it."""
    made: Trial = _imported(lines).trial(seed)
    return made


def _source(line: Line, text: str = "") -> tuple[str, int]:
    """The text of the program, and where the change is: the last place that fits, because ports stand below."""
    text = text or (_PROGRAMS / f"{line.program}.py").read_text()
    at = text.rfind(line.old)
    if at < 0:
        raise AssertionError(f"{line.name}: {line.old!r} is not in {line.program}.py")
    return text, at


def _place(line: Line) -> int:
    """The number of the first line that is another one."""
    text, at = _source(line)
    pairs = enumerate(zip(line.old.splitlines(), line.new.splitlines(), strict=False))
    return 1 + text[:at].count("\n") + next((count for count, (old, new) in pairs if old != new), 0)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="zoo-")


@cache
def _imported(lines: tuple[Line, ...]) -> Any:
    text = ""
    for line in lines:
        text, at = _source(line, text)
        text = text[:at] + line.new + text[at + len(line.old) :]
    # A folder of its own: the file's name stands in reports, and must not give the answer away.
    number = len(list(Path(_folder().name).iterdir()))
    file = Path(_folder().name) / str(number) / f"{lines[0].program}.py"
    file.parent.mkdir()
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(f"zoo_planted_{number}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
