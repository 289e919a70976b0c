"""Importing: be told when a package has been imported, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from reprod_log.frameworks.hooks import Undo


class _Listener(MetaPathFinder):
    """Finds nothing by itself; it only has the loaders of some packages report when they are done."""

    def __init__(self, names: Iterable[str], imported: Callable[[str], None]) -> None:
        self._names = set(names)
        self._imported = imported

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._names:
            return None
        # Once is enough, and the other finders must not come back to us.
        self._names.discard(fullname)
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find and finder is not self else None
            if spec is not None:
                self._report(spec, fullname)
                return spec
        return None

    def _report(self, spec: ModuleSpec, name: str) -> None:
        loader = spec.loader
        if loader is None:
            return
        execute = loader.exec_module

        def execute_and_report(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            self._imported(name)

        loader.exec_module = execute_and_report  # type: ignore[method-assign]


def on_import(names: Iterable[str], imported: Callable[[str], None]) -> Undo:
    """Have `imported(name)` called for each of these packages: now for those that are there, later for the rest."""
    waiting = []
    for name in names:
        if name in sys.modules:
            imported(name)
        else:
            waiting.append(name)
    listener = _Listener(waiting, imported)
    sys.meta_path.insert(0, listener)

    def undo() -> None:
        if listener in sys.meta_path:
            sys.meta_path.remove(listener)

    return undo
