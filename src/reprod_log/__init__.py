"""Proves that a ported neural network computes the same thing, or finds where it first differs and why."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import compare, utils  # 1.0.1 offered both as attributes
from .errors import ReprodLogError
from .ReprodDiffHelper import ReprodDiffHelper
from .ReprodLogger import ReprodLogger
from .version import __version__ as __version__

if TYPE_CHECKING:
    from reprod_log.alignment import Alignment, align
    from reprod_log.alignment.blocks import Blocks
    from reprod_log.alignment.models import align_models
    from reprod_log.capture import watch
    from reprod_log.recording import Recording
    from reprod_log.recording.program import join_passes
    from reprod_log.recording.stores import load
    from reprod_log.report import write_report
    from reprod_log.transfer import transfer_weights
    from reprod_log.verdict import CalibratedPolicy, Limit, Policy, Status

__all__ = [
    "Alignment",
    "Blocks",
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
    "join_passes",
    "load",
    "transfer_weights",
    "utils",
    "watch",
    "write_report",
]

# The new engine is loaded at first use: a script that only logs should start as fast as it did.
_HOMES = {
    "Alignment": "reprod_log.alignment",
    "Blocks": "reprod_log.alignment.blocks",
    "CalibratedPolicy": "reprod_log.verdict",
    "Limit": "reprod_log.verdict",
    "Policy": "reprod_log.verdict",
    "Recording": "reprod_log.recording",
    "Status": "reprod_log.verdict",
    "align": "reprod_log.alignment",
    "align_models": "reprod_log.alignment.models",
    "join_passes": "reprod_log.recording.program",
    "load": "reprod_log.recording.stores",
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
