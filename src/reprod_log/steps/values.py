"""Values: results given as numbers, arrays or nests of them become a recording, each under a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from reprod_log.capture import flatten, to_numpy
from reprod_log.errors import UsageError
from reprod_log.frameworks.contract import Framework, loaded
from reprod_log.recording import Array, Key, Provenance, Recording, current_provenance
from reprod_log.recording.recorder import Recorder


def given(side: Any, arguments: tuple[Any, ...] = ()) -> Any:
    """The side's values: itself, or what it gives when it is called."""
    return side(*arguments) if callable(side) else side


def named(values: Any, name: str) -> Iterator[tuple[str, Array]]:
    """Every number or array of `values` with its name; a bare one is called `name`."""
    found = [(role or name, to_numpy(leaf)) for role, leaf in flatten(values)]
    if not found:
        raise UsageError(f"no {name} was given: {values!r}")
    yield from found


def values_recording(values: Mapping[Key, Array], *, provenance: Provenance | None = None) -> Recording:
    """A recording of values at hand, in order."""
    recorder = Recorder(provenance=provenance or origin())
    for key, array in values.items():
        recorder.add(key, array)
    return recorder.close()


def origin(thing: Any = None, **known: Any) -> Provenance:
    """Where values of this process come from: from `thing` or its framework, else from the only one loaded."""
    framework = thing if isinstance(thing, Framework) else _owner(thing)
    if framework is None:
        return current_provenance(**known)
    return current_provenance(framework=framework.NAME, framework_version=framework.version(), **known)


def _owner(thing: Any) -> Framework | None:
    watchable = _watchable()
    while isinstance(thing, (tuple, list, Mapping)) and len(thing):
        thing = next(iter(thing.values() if isinstance(thing, Mapping) else thing))
    homes = (getattr(thing, "__module__", ""), *(one.__module__ for one in type(thing).__mro__))
    for home in homes:
        top = str(home or "").partition(".")[0]
        if top in watchable:
            return watchable[top]
    return next(iter(watchable.values())) if len(watchable) == 1 else None


def _watchable() -> dict[str, Framework]:
    return {one.NAME: one for _, one in loaded() if isinstance(one, Framework)}


def only_framework(thing: Any) -> Framework:
    """The framework that a function works with: its own module's, else the only one loaded."""
    framework = _owner(thing)
    if framework is not None:
        return framework
    raise UsageError(
        f"cannot tell which framework {_name(thing)} works with ({', '.join(_watchable()) or 'none'} loaded); "
        "give it as a pair, e.g. ('paddle', function)"
    )


def with_framework(side: Any) -> tuple[Framework, Callable[..., Any]]:
    """A function with its framework, given as a pair or found out."""
    if isinstance(side, tuple) and len(side) == 2 and isinstance(side[0], str):
        name, function = side
        for known, framework in loaded():
            if known == name and isinstance(framework, Framework):
                return framework, function
        raise UsageError(f"{name!r} is not a framework of this process; import it first")
    if not callable(side):
        raise UsageError(f"expected a function, got {type(side).__name__}")
    return only_framework(side), side


def _name(thing: Any) -> str:
    return getattr(thing, "__name__", type(thing).__name__)
