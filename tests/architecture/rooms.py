"""The rooms of the package and what may stand in them, read from the syntax of its files."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOMS = (
    "errors", "version", "messages", "progress", "recording", "layers", "frameworks", "capture", "pairing", "ranks",
    "transfer", "measure", "verdict", "experiments", "diagnose", "alignment", "steps", "report", "testing", "classic",
    "cli",
)  # fmt: skip
"""A room may import itself and the rooms that stand before it here."""
SHIMS = ("__init__", "__main__", "compare", "record", "utils", "ReprodLogger", "ReprodDiffHelper")
"""Files of the package's root that only offer names; they may import any room, and no room imports them."""
FRAMEWORKS = (
    "torch",
    "paddle",
    "jax",
    "flax",
    "equinox",
    "haiku",
    "tensorflow",
    "keras",
    "mindspore",
    "onnx",
    "onnxruntime",
)
NAME_FRAMEWORKS = ("frameworks", "layers", "classic", "messages")
"""Rooms in which strings, names and attributes may name a framework."""
_NAMED = re.compile(rf"\b({'|'.join(FRAMEWORKS)})\b", re.IGNORECASE)


class Package:
    """A package by its folder, which is also its name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.trees = {
            path.relative_to(root).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
            for path in sorted(root.rglob("*.py"))
        }

    def imports(self, file: str) -> set[str]:
        """Dotted names of the modules that a file imports, also inside functions and for types only."""
        found: set[str] = set()
        for node in ast.walk(self.trees[file]):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found |= set(self._imported_from(file, node))
        return found

    def _imported_from(self, file: str, node: ast.ImportFrom) -> Iterator[str]:
        if node.level:
            folders = [self.root.name, *file.split("/")[:-1]]
            start = ".".join([*folders[: len(folders) - node.level + 1], *([node.module] if node.module else [])])
        else:
            start = node.module or ""
        # `from package import room` names the room only behind the import.
        yield from (f"{start}.{alias.name}" for alias in node.names) if start == self.root.name else (start,)

    def imports_pointing_down(self) -> set[str]:
        """`file -> room` for each room that a file imports although it stands behind its own, or is no room."""
        found = set()
        for file in self.trees:
            room = file.split("/")[0].removesuffix(".py")
            if room in SHIMS:
                continue
            for name in self.imports(file):
                package, _, inside = name.partition(".")
                target = inside.split(".")[0]
                if package == self.root.name and not _stands_before(target, room):
                    found.add(f"{file} -> {target or package}")
        return found

    def lookups_pointing_down(self) -> set[str]:
        """`file -> room` for each later room whose modules a file names in a text, to be loaded by that name."""
        later = re.compile(rf"{self.root.name}\.(\w+)")
        return {
            f"{file} -> {found[1]}"
            for file, tree in self.trees.items()
            if (room := file.split("/")[0].removesuffix(".py")) not in SHIMS
            for word in _words(tree)
            if (found := later.match(word)) and found[1] in ROOMS and not _stands_before(found[1], room)
        }

    def frameworks_imported(self) -> set[str]:
        """`file -> framework` for each framework that a file imports."""
        return {
            f"{file} -> {top}"
            for file in self.trees
            for name in self.imports(file)
            if (top := name.split(".")[0]) in FRAMEWORKS
        }

    def frameworks_named(self) -> Counter[str]:
        """How often each file names a framework in strings, names and attributes; rooms that may are left out.

        Docstrings, of fields too, and comments do not count.
        """
        found: Counter[str] = Counter()
        for file, tree in self.trees.items():
            if file.split("/")[0] not in NAME_FRAMEWORKS:
                found[file] = sum(bool(_NAMED.search(word)) for word in _words(tree))
        return +found


def _stands_before(target: str, room: str) -> bool:
    return target in ROOMS and room in ROOMS and ROOMS.index(target) <= ROOMS.index(room)


def _words(tree: ast.AST) -> Iterator[str]:
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value
