"""The module name of 1.0.1 for comparing dicts and models, with every name that it had."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

import reprod_log
from reprod_log.classic.conversions import framework_of_1_0_1, np2paddle, np2torch, paddle2np, torch2np
from reprod_log.classic.difference import check_data, compute_diff
from reprod_log.classic.models import compare_forward, compare_loss_and_backward
from reprod_log.classic.text import check_print_diff

if TYPE_CHECKING:
    from reprod_log.alignment import Alignment

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


class _Compare(ModuleType):
    """The module, which can also be called: `from reprod_log import compare` is what people try first."""

    def __call__(self, reference: Any, candidate: Any, **options: Any) -> "Alignment":
        """The same as `align`."""
        # Through the package, which loads the engine at first use: scripts of 1.0.1 need nothing of it.
        return reprod_log.align(reference, candidate, **options)


sys.modules[__name__].__class__ = _Compare
