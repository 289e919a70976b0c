"""Metrics by name: each file of this folder turns a Measurement into the one number that a limit is held against.

A metric file has a docstring that says what the number is, when to use it and why, and one function:

    def value(measurement: Measurement) -> float

It gives NaN where the metric does not exist for the pair; `NaN <= limit` is false, so nothing passes by absence.
Other packages add a metric with an entry point of the group "reprod_log.metrics" whose name is the metric's and
which points to such a module. Names of this folder cannot be taken over.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import cast

from reprod_log.errors import UsageError, listed
from reprod_log.measure.measurement import Measurement

GROUP = "reprod_log.metrics"


@dataclass(frozen=True)
class Metric:
    """A named number of a measurement; smaller is better."""

    name: str
    summary: str
    """One line: what it is."""
    description: str
    """What it is, when to use it and why."""
    value: Callable[[Measurement], float]


def names() -> tuple[str, ...]:
    """The names of all metrics, those of other packages included, in alphabetical order."""
    return tuple(sorted({*_own(), *_foreign()}))


@lru_cache(maxsize=64)
def metric(name: str) -> Metric:
    """The metric of this name; an unknown name raises UsageError and says which names come near."""
    if name in _own():
        return _checked(name, import_module(f"{__name__}.{name}"), origin=f"{__name__}.{name}")
    foreign = _foreign()
    if name in foreign:
        return _checked(name, foreign[name](), origin=f"the entry point {name!r} of {GROUP!r}")
    near = get_close_matches(name, names(), n=3, cutoff=0.5)
    hint = f"Did you mean {listed(near)}?" if near else f"There are {', '.join(names())}."
    raise UsageError(f"There is no metric {name!r}. {hint}")


def _own() -> tuple[str, ...]:
    return tuple(module.name for module in pkgutil.iter_modules(__path__))


def _foreign() -> dict[str, Callable[[], ModuleType]]:
    """How to load each metric of another package."""
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    own = _own()
    return {point.name: point.load for point in entry_points(group=GROUP) if point.name not in own}


def _checked(name: str, module: ModuleType, *, origin: str) -> Metric:
    value = getattr(module, "value", None)
    description = (module.__doc__ or "").strip()
    if not callable(value) or not description:
        raise UsageError(f"The metric {name!r} ({origin}) needs a docstring and a function value(measurement).")
    return Metric(
        name=name,
        summary=description.splitlines()[0],
        description=description,
        value=cast("Callable[[Measurement], float]", value),
    )
