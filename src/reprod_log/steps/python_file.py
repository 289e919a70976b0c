"""A Python file of the user's, loaded by its path: a plan, or functions that make models."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from reprod_log.errors import ReprodLogError, UsageError, listed


@contextmanager
def python_file(path: str | Path, *, wanted: str) -> Iterator[ModuleType]:
    """The module of a file, for a reader who needs `wanted`; while it lasts, modules beside it can be imported."""
    path = Path(path).resolve()
    if not path.is_file():
        raise UsageError(f"{path} is not a file; {wanted}")
    before = set(sys.modules)
    sys.path.insert(0, str(path.parent))
    try:
        yield _loaded(path)
    finally:
        sys.path.remove(str(path.parent))
        # Another file may have a `settings` of its own beside it.
        for name in set(sys.modules) - before:
            if path.parent in Path(getattr(sys.modules[name], "__file__", None) or "/").parents:
                del sys.modules[name]


def _loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_file_{path.parent.name}_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses of the file look for their module by its name.
    sys.modules[spec.name] = module
    with users_own(path):
        spec.loader.exec_module(module)
    return module


@contextmanager
def users_own(path: Path) -> Iterator[None]:
    """Whatever the user's own file raises becomes an error that names the file."""
    try:
        yield
    except ReprodLogError:
        raise
    except Exception as error:  # the user's own file may raise anything
        raise UsageError(f"{path} could not be loaded: {type(error).__name__}: {error}") from error


@contextmanager
def named_function(text: str, *, what: str) -> Iterator[Callable[..., Any]]:
    """The function that FILE.py:NAME names."""
    file, colon, name = text.rpartition(":")
    if not colon or not file.endswith(".py") or not name:
        raise UsageError(f"{what} is {text!r}; write FILE.py:FUNCTION, e.g. models.py:make_model")
    with python_file(file, wanted=f"{what} is FILE.py:FUNCTION, e.g. models.py:make_model") as module:
        found = getattr(module, name, None)
        if not callable(found):
            known = [key for key, one in vars(module).items() if callable(one) and not key.startswith("_")]
            raise UsageError(f"{file} has no function {name!r}; it has {listed(known) or 'none'}")
        yield found
