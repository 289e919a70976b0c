"""frameworks: who owns a tensor, a module, an optimizer; asked here and nowhere else, without importing a framework.

A framework is known by a folder or file here (or by an entry point of the group `reprod_log.frameworks`) that has the
same name as the framework's own top-level module, and offers one value `FRAMEWORK` (see contract.py). It is looked at
only when that module is already in `sys.modules`: no framework is ever imported on a user's behalf.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprod_log.errors import CaptureError, UsageError, listed
from reprod_log.layers.lookup import register

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from reprod_log.frameworks.contract import Framework

__all__ = [
    "GROUP", "LIBRARY_OF", "Framework", "framework_of", "is_imported", "is_loaded", "known_names", "loaded",
    "owner_of_model", "owner_of_tensor", "watchable", "watchable_names",
]  # fmt: skip

_OURS = ("keras", "jax", "mindspore", "onnx", "paddle", "tensorflow", "torch")
"""The frameworks that have a folder or a file of their own here.

Keras is asked before torch: on one of its backends its models are modules of torch as well."""
LIBRARY_OF = {"flax.nnx": "jax", "flax.linen": "jax", "equinox": "jax", "haiku": "jax", "optax": "jax"}
"""The frameworks whose models are those of libraries, by what their users import of these."""
_TENSORS = ("Tensor", "Array", "Variable")
"""What frameworks call what they compute with."""
GROUP = "reprod_log.frameworks"
"""Entry point group: the name is the framework's top-level module, the object a Framework or a module that has one."""


def framework_of(thing: Any) -> Framework:
    """The loaded framework that a module, an optimizer or a tensor belongs to.

    Raises CaptureError when no framework owns it, or when its framework's models cannot be watched.
    """
    _load_for(thing)
    for framework in loaded():
        if framework.owns(thing) or framework.owns_optimizer(thing):
            return framework
        if framework.parts is not None and framework.tensors.is_tensor(thing):
            return framework
    raise _nobody_owns(thing)


def owner_of_model(model: Any) -> Framework:
    """The loaded framework that a model belongs to; UsageError when it is not a model of any."""
    _load_for(model)
    for framework in loaded():
        if framework.owns(model):
            return framework
    raise UsageError(f"Expected a model of {watchable_names()}, got a {_class_of(model)}.{_stand_in_hint(model)}")


def _load_for(thing: object) -> None:
    """Import the framework whose file it is: who names a file of a framework asks for that framework."""
    thing = thing[0] if isinstance(thing, tuple) and thing else thing
    if not isinstance(thing, (str, Path)):
        return
    from reprod_log.frameworks.installed import framework_of_file  # only paths need the table

    found = framework_of_file(str(thing))
    if found is None:
        return
    try:
        for name in found.modules:
            import_module(name)
    except ImportError as error:
        raise UsageError(
            f"{thing} is a file of {found.name}, and {error.name or found.name} is not installed: "
            f"pip install 'reprod_log[{found.extra}]'"
        ) from error


def _nobody_owns(thing: Any) -> CaptureError:
    return CaptureError(
        f"a {_class_of(thing)} cannot be watched: it is not a module, optimizer or tensor of {watchable_names()}. "
        "Models of torch and paddle can be; tensors of other frameworks are recorded by hand with "
        f"run.log(name, tensor).{_stand_in_hint(thing)}"
    )


def watchable_names() -> str:
    """The frameworks of this process whose models can be watched, for a sentence."""
    names = [one.name for one in watchable()]
    return listed(names) if names else "a framework in this process"


def _class_of(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _stand_in_hint(thing: object) -> str:
    """What to do when another module has the name of the framework that a thing was made with."""
    homes = {one.__module__.partition(".")[0] for one in type(thing).__mro__}
    home = next((name for name in known_names() if name in homes and not is_loaded(name)), None)
    if home is None:
        return ""
    return (
        f" The module {home!r} of this process is not the one it was made with. If paddle stands in for torch "
        "(paddle.enable_compat()), turn that off with paddle.disable_compat()."
    )


def loaded() -> Iterator[Framework]:
    """The frameworks of this process that we know."""
    for name, load in _known().items():
        if is_loaded(name):
            yield load()


def watchable() -> list[Framework]:
    """The frameworks of this process whose models can be watched."""
    return [framework for framework in loaded() if "watch" in framework.can]


def known_names() -> tuple[str, ...]:
    """Every framework that could be looked up, loaded or not."""
    return tuple(_known())


def is_loaded(name: str) -> bool:
    """Whether the process has the real framework `name` in it.

    `paddle.enable_compat()` puts a stand-in called `torch` into `sys.modules`; a module whose file lies in another
    package's folder is not the one its name says.
    """
    module = sys.modules.get(name)
    # In the middle of its own import, one that has its tensors already can be asked.
    if module is None or not (is_imported(name) or any(hasattr(module, name) for name in _TENSORS)):
        return False
    file = getattr(module, "__file__", None)
    return file is None or _lies_in_its_place(name, file)


def is_imported(name: str) -> bool:
    """Whether the process has the whole module: it may be in the middle of its own import."""
    module = sys.modules.get(name)
    return module is not None and not getattr(module.__spec__, "_initializing", False)


# Asked for every tensor; taking a path apart costs more than the rest of the question.
@cache
def _lies_in_its_place(name: str, file: str) -> bool:
    return name in (Path(file).stem, Path(file).parent.name)


def owner_of_tensor(value: object) -> Framework | None:
    """The loaded framework that `value` is a tensor of, or None."""
    for framework in loaded():
        if framework.tensors.is_tensor(value):
            return framework
    return None


@cache
def _known() -> dict[str, Callable[[], Framework]]:
    from importlib.metadata import entry_points  # slow to import, and a logger of numpy arrays never needs it

    found: dict[str, Callable[[], Framework]] = {}
    for one in entry_points(group=GROUP):
        found[one.name] = _from_entry_point(one)
    for name in _OURS:
        found[name] = _from_folder(f"{__name__}.{name}")
    return found


def _from_folder(name: str) -> Callable[[], Framework]:
    @cache
    def load() -> Framework:
        found: Framework = import_module(name).FRAMEWORK
        return found

    return load


def _from_entry_point(point: EntryPoint) -> Callable[[], Framework]:
    @cache
    def load() -> Framework:
        where = f"the entry point {point.name!r} of group {GROUP!r} ({point.value})"
        found: Framework = import_module(f"{__name__}.contract").framework_from(point.load(), where)
        register(found.name, found.columns, found.optimizers)
        return found

    return load


def __getattr__(name: str) -> Any:
    # The contract is loaded with the first framework: a logger of arrays needs none.
    if name == "Framework":
        return import_module(f"{__name__}.contract").Framework
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
