"""What a running script consists of: its own files, the environment variables it reads, the framework's settings."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import xxhash

from reprod_log.frameworks import Framework
from reprod_log.frameworks.hooks import Undo
from reprod_log.frameworks.installed import variables_of
from reprod_log.recording import Recording
from reprod_log.recording.program import Program

_OF_THE_SHELL = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES"})
"""Variables that differ from one command to the next and say nothing of a program."""
_LIBRARIES = tuple(
    sorted({os.path.realpath(path) for name, path in sysconfig.get_paths().items() if name.endswith(("lib", "stdlib"))})
)
_OURS = os.path.realpath(Path(__file__).parents[1])

_DRAWN_SEEDS = 2**32
_BETWEEN = (__name__, "os", "collections.abc", "_collections_abc")
"""What stands between a reader of the environment and us."""


class ScriptFiles:
    """The user's own modules that a script imports, and the environment variables that it and they read."""

    def __init__(self) -> None:
        self._before = set(sys.modules)
        self._read: dict[str, str] = {}

    def watch_environment(self) -> Undo:
        """Note which variables are read from now on. `os.environ` stays the same object, and answers the same."""
        kind, read = type(os.environ), self._read

        def note(name: str, value: str) -> None:
            if name not in read and name not in _OF_THE_SHELL and _is_read_by_the_user():
                read[name] = _digest(value.encode(errors="surrogateescape"))

        class Environment(kind):  # type: ignore[misc, valid-type]
            def __getitem__(self, name: str) -> str:
                try:
                    value: str = super().__getitem__(name)
                except KeyError:
                    note(name, "")
                    raise
                note(name, value)
                return value

        os.environ.__class__ = Environment

        def undo() -> None:
            os.environ.__class__ = kind

        return undo

    def modules(self) -> dict[str, str]:
        """The content of every module of the user's own that was imported since."""
        found = {}
        for name, module in list(sys.modules.items()):
            if name not in self._before and isinstance(module, ModuleType):
                path = getattr(module, "__file__", None)
                if isinstance(path, str) and _is_of_the_user(path):
                    found[name] = file_digest(path)
        return found

    @property
    def environment(self) -> Mapping[str, str]:
        return self._read


def program_of(framework: Framework, started: Program, files: ScriptFiles) -> Program:
    """What has run, now that it has; `started` is what was known before."""
    process = framework.eager.process
    variables = {name: _digest(os.environ[name].encode()) for name in variables_of(framework.name, os.environ)}
    known = {one.name: one.read() for one in process.switches()}
    # A larger one was drawn by the framework, because the script sets none: the numbers tell whether it matters.
    known |= {f"seed of {name}": number for name, number in process.seeds().items() if number < _DRAWN_SEEDS}
    return replace(
        started,
        framework=f"{framework.name} {process.version()}",
        modules=files.modules(),
        environment={**files.environment, **variables},
        settings={name: value for name, value in known.items() if _is_plain(value) and "thread" not in name.lower()},
    )


_OF_A_PASS = ("dtype", "lr", "learning_rate")
"""Settings that another precision changes, or that the numbers themselves are held against."""


def settings_of(recording: Recording) -> dict[str, Any]:
    """The settings of layers and optimizers under dotted names, without what a pass in another precision changes."""
    found = {
        f"{module.path or module.type}.{name}": value
        for module in recording.modules
        for name, value in module.settings.items()
    }
    optimizers = recording.provenance.extra.get("optimizers")
    for name, one in optimizers.items() if isinstance(optimizers, Mapping) else ():
        found |= {f"{name}.{setting}": value for setting, value in one.items()} if isinstance(one, Mapping) else {}
    return {
        name: value
        for name, value in found.items()
        if not name.lower().endswith(_OF_A_PASS) and _is_plain(value) and not _is_dtype(value)
    }


def file_digest(path: str | Path) -> str:
    """A hash of a file's content; '' when it cannot be read."""
    try:
        return _digest(Path(path).read_bytes())
    except OSError:
        return ""


def _digest(content: bytes) -> str:
    return xxhash.xxh3_128(content).hexdigest() if content else ""


def _is_of_the_user(path: str) -> bool:
    place = os.path.realpath(path)
    return not place.startswith((*_LIBRARIES, _OURS))


def _is_read_by_the_user() -> bool:
    """Whether the code that reads a variable is the user's own."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__") in _BETWEEN:
        frame = frame.f_back
    path = frame.f_code.co_filename
    return not path.startswith("<") and _is_of_the_user(path)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _is_dtype(value: Any) -> bool:
    return isinstance(value, str) and value.rpartition(".")[2] in ("float32", "float64")
