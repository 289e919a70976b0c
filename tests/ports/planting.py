"""Mistake: a change of one line in a formulation's source, and where a good answer would see it.

The family's file is written anew with the change and imported beside the original, so that the mistake has a file and a
line of its own, as in a program that was written with it.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ports import families
from ports.port import Formulation, Port

_FAMILIES = Path(families.__path__[0])


@dataclass(frozen=True)
class Mistake:
    """A planted mistake."""

    port: str
    formulation: str
    what: str
    """What it is, in a few words; with the port it names the mistake."""
    inside: str
    """The class or function of the family's file that has the line."""
    old: str
    new: str
    place: tuple[str, ...]
    """Where it first shows in the reference: module paths, '' for the model's own output, 'loss' for the loss."""
    updates: bool = False
    """Whether only the updates show it: the place is then any of these weights."""

    @property
    def name(self) -> str:
        return f"{self.port}/{self.formulation}: {self.what}"


@dataclass(frozen=True)
class Planted:
    formulation: Formulation
    line: str
    """File name and number of the line, as a report would print it."""


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="ports-")


def plant(mistake: Mistake, port: Port) -> Planted:
    """The formulation with the mistake in it."""
    source, line = changed(source_of(port), mistake)
    name = "planted_" + "".join(letter if letter.isalnum() else "_" for letter in mistake.name)
    file = Path(_folder().name) / f"{name}.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    wrong = next(one for one in module.PORTS if one.name == port.name)
    formulation = wrong.formulation(mistake.formulation)
    # The port's own loss, optimizer or step on paddle's side may be where the mistake is.
    own = {name: getattr(wrong, name)[1] for name in ("loss", "optimizer", "step") if getattr(wrong, name)}
    own = {name: one for name, one in own.items() if getattr(formulation, name) is None}
    return Planted(replace(formulation, **own), f"{file.name}:{line}")


def changed(source: str, mistake: Mistake) -> tuple[str, int]:
    """The source with the change, and the number of its line."""
    begin, end = _definitions(source)[mistake.inside]
    lines = source.splitlines(keepends=True)
    before, body, after = lines[: begin - 1], lines[begin - 1 : end], lines[end:]
    text = "".join(body)
    if text.count(mistake.old) != 1:
        raise AssertionError(f"{mistake.name}: {mistake.old!r} is {text.count(mistake.old)} times in {mistake.inside}")
    line = begin + text[: text.index(mistake.old)].count("\n")
    return "".join(before) + text.replace(mistake.old, mistake.new) + "".join(after), line


@cache
def _definitions(source: str) -> dict[str, tuple[int, int]]:
    """First and last line of every class and function."""
    kinds = (ast.ClassDef, ast.FunctionDef)
    return {one.name: (one.lineno, one.end_lineno or 0) for one in ast.parse(source).body if isinstance(one, kinds)}


def source_of(port: Port) -> str:
    """The text of the family's file that has the port."""
    made = port.formulations[0].make, port.formulations[0].convert, port.reference
    for one in made:
        module = getattr(one, "__module__", "")
        if module.startswith("ports.families."):
            return (_FAMILIES / f"{module.rpartition('.')[2]}.py").read_text()
    raise AssertionError(f"no family of {port.name}")
