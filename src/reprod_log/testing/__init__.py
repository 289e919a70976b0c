"""testing: alignment inside a test suite: `assert_aligned`, and the fixture `reprod`, which keeps baselines."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reprod_log.testing.aligned import assert_aligned

__all__ = ["assert_aligned"]


# Loaded at first use: pytest loads this package in every run of every project that has it installed.
def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("reprod_log.testing.aligned"), name)
    raise AttributeError(f"module 'reprod_log.testing' has no attribute {name!r}")
