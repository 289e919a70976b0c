"""steps: the alignment steps by subject, one file each, and plans of them.

The file of a subject has

    SUBJECT                                               its name, the words that mean it, its usual limits
    record(side, *, …) -> Recording                       what one side gives, in that side's own process
    compare(reference, candidate, *, …) -> Alignment      two recordings or their paths
    run(reference, candidate, *, …) -> Alignment          both sides at hand: live, or recordings

`run` takes the keywords of `record` and `compare`. Sides that are models with a way to train them are Trainers.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType

from reprod_log.errors import UsageError, listed
from reprod_log.steps.subject import Subject

GUIDE_ORDER = (
    "data",
    "forward",
    "metric",
    "loss",
    "optimizer",
    "lr",
    "regularization",
    "backward",
    "init",
    "training",
    "inference",
)


def subjects() -> tuple[Subject, ...]:
    """Every subject in this folder, in the order of the guides."""
    found = []
    for module in pkgutil.iter_modules(__path__):
        subject = getattr(import_module(f"{__name__}.{module.name}"), "SUBJECT", None)
        if isinstance(subject, Subject):
            found.append(subject)
    return tuple(sorted(found, key=lambda one: _place(one.name)))


def subject_module(name: str) -> ModuleType:
    """The file of the subject of this name."""
    known = [subject.name for subject in subjects()]
    if name not in known:
        raise UsageError(f"no step is called {name!r}; known are {listed(known, most=20)}")
    return import_module(f"{__name__}.{name}")


def _place(name: str) -> int:
    return GUIDE_ORDER.index(name) if name in GUIDE_ORDER else len(GUIDE_ORDER)
