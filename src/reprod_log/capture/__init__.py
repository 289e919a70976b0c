"""capture: watches a model while it runs and copies out what it computes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from reprod_log.frameworks import framework_of
from reprod_log.frameworks.nests import flatten
from reprod_log.frameworks.tensors import is_tensor, to_numpy

if TYPE_CHECKING:
    from reprod_log.capture.run import Run
    from reprod_log.capture.watching import watch

__all__ = ["Run", "flatten", "framework_of", "is_tensor", "to_numpy", "watch"]

# Copying a tensor out (the classic logger) should not load what watching needs.
_HOMES = {"Run": "reprod_log.capture.run", "watch": "reprod_log.capture.watching"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'reprod_log.capture' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
