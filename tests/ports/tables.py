"""All tables by name, and the halves into which they are split."""

from __future__ import annotations

import hashlib
import importlib
import pkgutil

from ports import families
from ports.port import Port


def all_ports() -> dict[str, Port]:
    made: dict[str, Port] = {}
    for one in pkgutil.iter_modules(families.__path__):
        for port in importlib.import_module(f"ports.families.{one.name}").PORTS:
            if port.name in made:
                raise ValueError(f"two ports are called {port.name!r}")
            made[port.name] = port
    return made


def half(port: str) -> str:
    """In which half a port and everything made from it is; by its name, so that it never changes."""
    return "scored" if hashlib.sha256(port.encode()).digest()[0] % 2 else "development"
