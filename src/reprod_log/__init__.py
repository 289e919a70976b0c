"""Proves that a ported neural network computes the same thing, or says where it first goes wrong and why."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import compare, utils  # 1.0.1 offered both as attributes
from .errors import ReprodLogError
from .ReprodDiffHelper import ReprodDiffHelper
from .ReprodLogger import ReprodLogger

if TYPE_CHECKING:
    from reprod_log.alignment import Alignment, align
    from reprod_log.capture import watch
    from reprod_log.judge import CalibratedPolicy, Limit, Policy, Status
    from reprod_log.live.align_models import align_models
    from reprod_log.record import Recording
    from reprod_log.record.stores import load
    from reprod_log.report import write_report
    from reprod_log.transfer import transfer_weights

__version__ = "2.0.0.dev0"

__all__ = [
    "Alignment",
    "CalibratedPolicy",
    "Limit",
    "Policy",
    "Recording",
    "ReprodDiffHelper",
    "ReprodLogError",
    "ReprodLogger",
    "Status",
    "align",
    "align_models",
    "compare",
    "load",
    "transfer_weights",
    "utils",
    "watch",
    "write_report",
]

# The new engine is loaded at first use: a script that only logs should start as fast as it did.
_HOMES = {
    "Alignment": "reprod_log.alignment",
    "CalibratedPolicy": "reprod_log.judge",
    "Limit": "reprod_log.judge",
    "Policy": "reprod_log.judge",
    "Recording": "reprod_log.record",
    "Status": "reprod_log.judge",
    "align": "reprod_log.alignment",
    "align_models": "reprod_log.live.align_models",
    "load": "reprod_log.record.stores",
    "transfer_weights": "reprod_log.transfer",
    "watch": "reprod_log.capture",
    "write_report": "reprod_log.report",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'reprod_log' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
