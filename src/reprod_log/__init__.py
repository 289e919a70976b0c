"""reprod_log: proves that a ported neural network computes the same thing, or says where it first goes wrong and why."""

from reprod_log.alignment import Alignment, align
from reprod_log.errors import ReprodLogError
from reprod_log.judge import Limit, Policy, Status
from reprod_log.record import Recording
from reprod_log.record.stores import load
from reprod_log.report import write_report

from . import compare, utils  # 1.0.1 offered both as attributes  # isort: skip
from .ReprodDiffHelper import ReprodDiffHelper  # isort: skip
from .ReprodLogger import ReprodLogger  # isort: skip

__version__ = "2.0.0.dev0"

__all__ = [
    "Alignment",
    "Limit",
    "Policy",
    "Recording",
    "ReprodDiffHelper",
    "ReprodLogError",
    "ReprodLogger",
    "Status",
    "align",
    "compare",
    "load",
    "utils",
    "write_report",
]
