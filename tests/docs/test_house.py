"""The page about the layout of the code names rooms, files and functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from blocks import ROOT

SOURCE = ROOT / "src" / "reprod_log"
PAGE = (ROOT / "docs" / "house.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(\w[\w/]*\.py)` `([\w.]+)`", PAGE)


def definitions(file: Path) -> set[str]:
    """Functions, classes and methods (`Class.method`) that a file defines or imports under a name."""
    found: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return found


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED)))
def test_function_of_the_walk_exists(file: str, name: str) -> None:
    assert name in definitions(SOURCE / file)


def test_the_walk_names_enough_to_follow_it() -> None:
    assert len(set(NAMED)) > 20


def test_every_room_has_its_line() -> None:
    rooms = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", PAGE, re.MULTILINE)
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert set(rooms) == folders | {"errors", "progress"}
