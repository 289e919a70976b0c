"""The module name of 1.0.1 for the comparer, with every name that it had."""

import os
import sys

import numpy as np

from reprod_log.classic.diff_helper import ReprodDiffHelper
from reprod_log.classic.difference import check_data, compute_diff
from reprod_log.classic.text import check_print_diff, init_logger

__all__ = ["ReprodDiffHelper", "check_data", "check_print_diff", "compute_diff", "init_logger", "np", "os", "sys"]
