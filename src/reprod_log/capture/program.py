"""What a running script consists of: its own files, the environment variables it reads, the framework's settings."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import xxhash

from reprod_log.capture.guard import Guard
from reprod_log.frameworks import Framework
from reprod_log.frameworks.hooks import Undo
from reprod_log.frameworks.installed import variables_of
from reprod_log.recording.program import Program, is_plain

_OF_THE_SHELL = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES"})
"""Variables that differ from one command to the next and say nothing of a program."""
_LIBRARIES = tuple(
    sorted({os.path.realpath(path) for name, path in sysconfig.get_paths().items() if name.endswith(("lib", "stdlib"))})
)
_PACKAGES = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages, also of another interpreter: an environment may be layered on a second one."""
_OURS = os.path.realpath(Path(__file__).parents[1])

_DRAWN_SEEDS = 2**32
_BETWEEN = (__name__, Guard.__module__, "os", "collections.abc", "_collections_abc")
"""What stands between a reader of the environment and us."""


class ScriptFiles:
    """The user's own modules that a script imports, and the environment variables that it and they read."""

    def __init__(self) -> None:
        self._before = set(sys.modules)
        self._read: dict[str, str] = {}

    def watch_environment(self, guard: Guard) -> Undo:
        """Note which variables are read from now on. `os.environ` stays the same object, and answers the same."""
        kind, read = type(os.environ), self._read

        def noted(name: str, value: str) -> None:
            if name not in read and name not in _OF_THE_SHELL and _is_read_by_the_user():
                read[name] = _digest(value.encode(errors="surrogateescape"))

        note = guard(noted)

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
        return _own({name: module for name, module in list(sys.modules.items()) if name not in self._before})

    @property
    def environment(self) -> Mapping[str, str]:
        return self._read


def program_of(framework: Framework, started: Program, files: ScriptFiles) -> Program:
    """What has run, now that it has; `started` is what was known before."""
    known = _known_of(framework)
    # A larger one was drawn by the framework, because the script sets none: the numbers tell whether it matters.
    seeds = {} if framework.parts is None else framework.parts.seeds()
    drawn = {f"seed of {name}": number for name, number in seeds.items() if number < _DRAWN_SEEDS}
    return replace(
        started,
        framework=known.framework,
        modules=files.modules(),
        environment={**files.environment, **known.environment},
        settings={**known.settings, **drawn},
    )


def running_program(framework: Framework) -> Program:
    """The program that calls us now, as far as it is known from inside; seeds may change at any time."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    script = main if isinstance(main, str) and _is_of_the_user(main) else ""
    modules = {name: module for name, module in list(sys.modules.items()) if name != "__main__"}
    return replace(
        _known_of(framework),
        script=file_digest(script) if script else "",
        arguments=tuple(sys.argv[1:]) if script else (),
        modules=_own(modules),
    )


def _known_of(framework: Framework) -> Program:
    """What a framework and its variables are set to."""
    variables = {name: _digest(os.environ[name].encode()) for name in variables_of(framework.name, os.environ)}
    switches = {one.name: one.read() for one in ([] if framework.parts is None else framework.parts.switches())}
    return Program(
        framework=f"{framework.name} {framework.version}",
        environment=variables,
        settings={name: value for name, value in switches.items() if is_plain(value) and "thread" not in name.lower()},
    )


def _own(modules: Mapping[str, Any]) -> dict[str, str]:
    """The content of those of the modules that are the user's own."""
    found = {}
    for name, module in modules.items():
        # A module that loads itself when an attribute is looked up must not begin to because of us. Its true type is
        # asked: the libraries of cffi claim to be modules, and have no names of their own.
        known = object.__getattribute__(module, "__dict__") if issubclass(type(module), ModuleType) else {}
        path = known.get("__file__")
        if isinstance(path, str) and _is_of_the_user(path):
            found[name] = file_digest(path)
    return found


def file_digest(path: str | Path) -> str:
    """A hash of a file's content; '' when it cannot be read."""
    try:
        return _digest(Path(path).read_bytes())
    except OSError:
        return ""


def _digest(content: bytes) -> str:
    return xxhash.xxh3_128(content).hexdigest() if content else ""


@cache
def _is_of_the_user(path: str) -> bool:
    place = os.path.realpath(path)
    return not place.startswith((*_LIBRARIES, _OURS)) and _PACKAGES.isdisjoint(Path(place).parts)


def _is_read_by_the_user() -> bool:
    """Whether the code that reads a variable is the user's own."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__") in _BETWEEN:
        frame = frame.f_back
    path = frame.f_code.co_filename
    return not path.startswith("<") and _is_of_the_user(path)
