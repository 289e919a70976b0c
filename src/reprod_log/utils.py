"""The module name of 1.0.1 for conversions and printing."""

from reprod_log.classic.conversions import np2paddle, np2torch, paddle2np, torch2np
from reprod_log.classic.text import check_print_diff, init_logger

__all__ = ["check_print_diff", "init_logger", "np2paddle", "np2torch", "paddle2np", "torch2np"]
