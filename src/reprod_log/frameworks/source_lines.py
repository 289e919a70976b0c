"""Where a program makes its layers: the line of `self.norm = LayerNorm(…)`, in the source of the user's classes."""

from __future__ import annotations

import ast
import linecache
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from types import FunctionType, MethodType

_ADDING = ("add_module", "register_module", "add_sublayer")
"""Methods that give a module its name as a text."""


def made_at(owner: type, names: Sequence[str], framework: str) -> str:
    """`file:line` where a class of the user makes the module called `names` inside it; '' where that cannot be seen."""
    for function in _own_functions(owner, framework):
        found = _assigned(function).get(names[0])
        if found is not None:
            return _place(function, _inside(found, names[1:]).lineno)
    return ""


def runs_at(cls: type, framework: str) -> str:
    """`file:line` of the forward pass of a class of the user; '' for a framework's own."""
    return next((_place(one, _first_line(one)) for one in _own_functions(cls, framework, "forward")), "")


def written_at(what: object, framework: str) -> str:
    """`file:line` of a function of the user, or of the forward pass of a module; '' for what is a framework's own."""
    while isinstance(what, partial):
        what = what.func
    if not isinstance(what, (FunctionType, MethodType)):
        return runs_at(type(what), framework)
    # A function of a text that was executed may be of no module.
    is_own = (what.__module__ or "").partition(".")[0] != framework
    return _place(what, what.__code__.co_firstlineno) if is_own else ""


def _own_functions(cls: type, framework: str, name: str = "") -> Iterator[FunctionType]:
    """The functions of a class and its bases, up to the framework's; only those called `name`, if it is given."""
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] in (framework, "builtins"):
            return
        for title, function in vars(base).items():
            if isinstance(function, FunctionType) and (not name or title == name):
                yield function


@lru_cache(maxsize=4096)
def _assigned(function: FunctionType) -> Mapping[str, ast.expr]:
    """What a function puts into attributes of its first argument, by their names; the first place of each."""
    node = _functions_in(function.__code__.co_filename).get(_first_line(function))
    if node is None or not node.args.args:
        return {}
    found: dict[str, ast.expr] = {}
    for part in ast.walk(node):
        for name, value in _given(part, node.args.args[0].arg):
            found.setdefault(name, value)
    return found


def _given(part: ast.AST, owner: str) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(part, ast.Assign):
        for target in part.targets:
            yield from _matched(target, part.value, owner)
    elif isinstance(part, ast.AnnAssign) and part.value is not None:
        yield from _matched(part.target, part.value, owner)
    elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in _ADDING:
        of_owner = isinstance(part.func.value, ast.Name) and part.func.value.id == owner
        if of_owner and len(part.args) == 2 and isinstance(part.args[0], ast.Constant):
            yield str(part.args[0].value), part.args[1]


def _matched(target: ast.expr, value: ast.expr, owner: str) -> Iterator[tuple[str, ast.expr]]:
    """`self.a, self.b = x, y` is two assignments."""
    if isinstance(target, (ast.Tuple, ast.List)):
        same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
        for place, one in enumerate(target.elts):
            yield from _matched(one, value.elts[place] if same else value, owner)  # type: ignore[attr-defined]
    elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == owner:
        yield target.attr, value


def _inside(value: ast.expr, names: Sequence[str]) -> ast.expr:
    """The item of a `Sequential(…)` or `ModuleList([…])` as far as it is written out."""
    for name in names:
        items = value.args if isinstance(value, ast.Call) else []
        if len(items) == 1 and isinstance(items[0], (ast.List, ast.Tuple)):
            items = items[0].elts
        place = int(name) if name.isdigit() and len(name) < 6 else len(items)
        if place >= len(items) or any(isinstance(one, ast.Starred) for one in items[: place + 1]):
            return value
        value = items[place]
    return value


@lru_cache(maxsize=64)
def _functions_in(file: str) -> Mapping[int, ast.FunctionDef]:
    """The functions of a source file by the line on which they begin, decorators included."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return {}
    functions = (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef))
    return {min([one.lineno, *(part.lineno for part in one.decorator_list)]): one for one in functions}


def _first_line(function: FunctionType) -> int:
    return function.__code__.co_firstlineno


def _place(function: FunctionType | MethodType, line: int) -> str:
    """The file as seen from where the program runs, as far as it lies below."""
    file = function.__code__.co_filename
    if file.startswith("<"):
        return ""
    return f"{file.removeprefix(os.path.join(os.getcwd(), ''))}:{line}"
