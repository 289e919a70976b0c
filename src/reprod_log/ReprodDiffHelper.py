"""The module name of 1.0.1 for the comparer."""

from reprod_log.classic.diff_helper import ReprodDiffHelper

__all__ = ["ReprodDiffHelper"]
