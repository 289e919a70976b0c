"""Settings of the whole suite."""

import pytest
from hypothesis import settings

# The same examples every time: a test that fails must fail again. Longer, random searches belong to fuzzing.
settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")

_LONG = ("examples", "steps", "zoo", "browser")
"""Folders whose files take longest."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, so that no process is left alone with one at the end."""
    items.sort(key=lambda item: item.path.parent.name not in _LONG)
