"""The module name of 1.0.1 for the logger, with every name that it had."""

import os

import numpy as np

from reprod_log.classic.logger import ReprodLogger

__all__ = ["ReprodLogger", "np", "os"]
