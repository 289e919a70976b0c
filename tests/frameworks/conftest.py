"""gear and twig, frameworks of one file each, made known as a package from outside would be: by an entry point."""

from __future__ import annotations

from importlib import metadata
from types import SimpleNamespace

import pytest

from reprod_log import frameworks
from reprod_log.layers import lookup


@pytest.fixture
def entry_points(monkeypatch):
    """Have these objects found as frameworks from outside, by name; forgotten again afterwards."""

    def known(**objects):
        points = [SimpleNamespace(name=name, value=name, load=lambda one=one: one) for name, one in objects.items()]
        found = {frameworks.GROUP: points}
        monkeypatch.setattr(metadata, "entry_points", lambda group: found.get(group, []))
        frameworks._known.cache_clear()

    yield known
    monkeypatch.undo()
    frameworks._known.cache_clear()
    for name in ("gear", "twig"):
        lookup.register(name, {})


@pytest.fixture
def gear(entry_points):
    import gear

    entry_points(gear=gear)
    return gear


@pytest.fixture
def twig(entry_points):
    import twig

    entry_points(twig=twig)
    return twig
