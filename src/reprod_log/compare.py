"""The module name of 1.0.1 for comparing dicts and models, with every name that it had."""

from typing import Any

import numpy as np

from reprod_log.classic.conversions import framework_of_1_0_1, np2paddle, np2torch, paddle2np, torch2np
from reprod_log.classic.difference import check_data, compute_diff
from reprod_log.classic.models import compare_forward, compare_loss_and_backward
from reprod_log.classic.text import check_print_diff

__all__ = [
    "check_data",
    "check_print_diff",
    "compare_forward",
    "compare_loss_and_backward",
    "compute_diff",
    "np",
    "np2paddle",
    "np2torch",
    "paddle2np",
    "torch2np",
]


def __getattr__(name: str) -> Any:
    return framework_of_1_0_1(__name__, name)
