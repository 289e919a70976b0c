"""steps: the alignment steps by subject, one file each, and what can be done with several of them."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from reprod_log.steps.subject import Subject

GUIDE_ORDER = ("data", "forward", "metric", "loss", "lr", "backward", "training", "inference")


def subjects() -> tuple[Subject, ...]:
    """Every subject in this folder, in the order of the guides."""
    found = []
    for module in pkgutil.iter_modules(__path__):
        subject = getattr(import_module(f"{__name__}.{module.name}"), "SUBJECT", None)
        if isinstance(subject, Subject):
            found.append(subject)
    return tuple(sorted(found, key=lambda one: _place(one.name)))


def _place(name: str) -> int:
    return GUIDE_ORDER.index(name) if name in GUIDE_ORDER else len(GUIDE_ORDER)
