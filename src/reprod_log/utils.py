"""The module name of 1.0.1 for conversions and printing, with every name that it had."""

import logging
import os
import sys
from typing import Any, Union

import numpy as np

from reprod_log.classic.conversions import framework_of_1_0_1, np2paddle, np2torch, paddle2np, torch2np
from reprod_log.classic.text import check_print_diff, init_logger

__all__ = [
    "Union",
    "check_print_diff",
    "init_logger",
    "logging",
    "np",
    "np2paddle",
    "np2torch",
    "os",
    "paddle2np",
    "sys",
    "torch2np",
]


def __getattr__(name: str) -> Any:
    return framework_of_1_0_1(__name__, name)
