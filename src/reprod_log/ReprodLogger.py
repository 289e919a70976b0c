"""The module name of 1.0.1 for the logger."""

from reprod_log.classic.logger import ReprodLogger

__all__ = ["ReprodLogger"]
