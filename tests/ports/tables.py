"""All tables by name, and the halves into which they are split."""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
from functools import cache

from ports import families
from ports.exchanged import EXCHANGED, Exchanged
from ports.mistakes import MISTAKES
from ports.planting import Mistake
from ports.port import Port
from ports.stated import STATED, Stated

HALVES = ("development", "scored")


@cache
def all_ports() -> dict[str, Port]:
    made: dict[str, Port] = {}
    for one in pkgutil.iter_modules(families.__path__):
        for port in importlib.import_module(f"ports.families.{one.name}").PORTS:
            if port.name in made:
                raise ValueError(f"two ports are called {port.name!r}")
            made[port.name] = port
    return made


def all_mistakes() -> dict[str, Mistake]:
    return _by_name(MISTAKES)


def all_exchanged() -> dict[str, Exchanged]:
    return _by_name(EXCHANGED)


def all_stated() -> dict[str, Stated]:
    return _by_name(STATED)


def half(port: str) -> str:
    """In which half a port and every row made of it is: by the port's name, so that it never changes.

    By the port and not by the row: a mistake shown in development would show a port that is scored.
    """
    return HALVES[hashlib.sha256(port.encode()).digest()[0] % 2]


def _by_name(rows):
    made = {row.name: row for row in rows}
    if len(made) != len(rows):
        raise ValueError("two rows have one name")
    return made
