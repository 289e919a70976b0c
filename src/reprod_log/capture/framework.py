"""Who owns a tensor, a module, an optimizer: asked here and nowhere else, without importing a framework.

A framework is known by a module in `capture/frameworks/` (or by an entry point of the group `reprod_log.frameworks`)
that has the same name as the framework's own top-level module. It is looked at only when that module is already in
`sys.modules`: nobody's framework is ever imported for them.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast, runtime_checkable

from reprod_log.errors import CaptureError, listed
from reprod_log.record import Array

GROUP = "reprod_log.frameworks"
"""Entry point group: the name is the framework's top-level module, the object a module with the functions below."""


@runtime_checkable
class TensorFramework(Protocol):
    """What it takes to copy a framework's tensors out."""

    def is_tensor(self, value: object) -> bool:
        """Whether this framework owns the tensor."""

    def view(self, tensor: Any) -> tuple[Array, bool]:
        """The values as numpy has them, and whether the array is fresh (False: it may share the tensor's memory).

        bfloat16 and the float8 kinds come in the dtypes of ml_dtypes. Raises UsageError for what has no numpy form.
        """


def loaded() -> Iterator[tuple[str, TensorFramework]]:
    """The frameworks of this process that we know, with their names."""
    for name, load in _known().items():
        if is_loaded(name):
            yield name, cast(TensorFramework, load())


def known_names() -> tuple[str, ...]:
    """Every framework that could be looked up, loaded or not."""
    return tuple(_known())


def is_loaded(name: str) -> bool:
    """Whether the process has the real framework `name` in it.

    `paddle.enable_compat()` puts a stand-in called `torch` into `sys.modules`; a module whose file lies in another
    package's folder is not the one its name says.
    """
    module = sys.modules.get(name)
    if module is None or getattr(module, "Tensor", getattr(module, "Array", None)) is None:
        # Missing, or found in the middle of its own import.
        return False
    file = getattr(module, "__file__", None)
    return file is None or name in (Path(file).stem, Path(file).parent.name)


def owner_of_tensor(value: object) -> TensorFramework | None:
    """The loaded framework that `value` is a tensor of, or None."""
    for _, framework in loaded():
        if framework.is_tensor(value):
            return framework
    return None


@cache
def _known() -> dict[str, Callable[[], ModuleType]]:
    from reprod_log.capture import frameworks

    found: dict[str, Callable[[], ModuleType]] = {}
    for one in entry_points(group=GROUP):
        found[one.name] = _from_entry_point(one)
    for ours in pkgutil.iter_modules(frameworks.__path__):
        found[ours.name] = _from_folder(f"{frameworks.__name__}.{ours.name}")
    return found


def _from_folder(name: str) -> Callable[[], ModuleType]:
    return lambda: import_module(name)


def _from_entry_point(point: EntryPoint) -> Callable[[], ModuleType]:
    @cache
    def load() -> ModuleType:
        loaded_object = point.load()
        lacking = [name for name in ("is_tensor", "view") if not hasattr(loaded_object, name)]
        if lacking:
            raise CaptureError(
                f"the entry point {point.name!r} of group {GROUP!r} ({point.value}) lacks {listed(lacking)}; "
                "see reprod_log.capture.framework for what a framework has"
            )
        return cast(ModuleType, loaded_object)

    return load
