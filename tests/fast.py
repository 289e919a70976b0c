"""Which tests need a framework or a browser, read from their source: `pytest --fast` leaves these out.

A test file needs one when it, a module of the tests that it imports, or the conftest.py of its folder

- imports one, or our own module for one, anywhere (in a conftest.py: at its top, because what a fixture imports is
  imported when it is used), also by its name (`import_module`, `importorskip`);
- holds the text of a program that imports one;
- names the folder `examples`, whose programs import both frameworks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

HEAVY = frozenset({"torch", "paddle", "jax", "tensorflow", "playwright"})
_TESTS = Path(__file__).resolve().parent
_PROGRAM = re.compile(rf"(?:^|;)\s*(?:import|from)\s[^\n]*\b(?:{'|'.join(sorted(HEAVY))})\b", re.MULTILINE)
_PROGRAMS_WITH_FRAMEWORKS = "examples"
_BY_NAME = {"import_module", "importorskip"}


def is_heavy(path: Path) -> bool:
    """Whether a test file, or all tests of a folder, cannot be run without a framework or a browser."""
    if path.is_dir():
        conftest = path / "conftest.py"
        return conftest.is_file() and _needs(conftest, at_the_top=True)
    return path.suffix == ".py" and _needs(path)


@cache
def _needs(path: Path, *, at_the_top: bool = False) -> bool:
    reached, to_read = {path}, [path]
    while to_read:
        file = to_read.pop()
        names = _names(file, at_the_top)
        if names is None:
            return True
        for module in {other for name in names for other in _own_modules(file, name)} - reached:
            reached.add(module)
            to_read.append(module)
    return False


@cache
def _names(file: Path, at_the_top: bool) -> frozenset[str] | None:
    """What a file imports; None when it needs a framework or a browser itself."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    names = frozenset(_imports(tree.body if at_the_top else nodes))
    heavy = any(HEAVY & {*name.split(".")} for name in names) or _imports_by_name(nodes) or any(map(_is_program, nodes))
    return None if heavy else names


def _imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _imports_by_name(nodes: Iterable[ast.AST]) -> bool:
    """Whether modules are imported by their names, and there is a text that is the name of one that counts."""
    called = {node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in nodes}
    texts = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return bool(called & _BY_NAME) and any(text.split(".")[0] in HEAVY for text in texts)


def _own_modules(importing: Path, name: str) -> Iterator[Path]:
    """The file of the tests that an imported name stands for: beside the importing file, or from the top on."""
    for folder in (importing.parent, _TESTS):
        place = folder.joinpath(*name.split("."))
        yield from (file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file())


def _is_program(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return False
    return node.value == _PROGRAMS_WITH_FRAMEWORKS or bool(_PROGRAM.search(node.value))
