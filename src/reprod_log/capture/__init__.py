"""capture: watches a model while it runs and copies out what it computes."""

from reprod_log.capture.framework import framework_of
from reprod_log.capture.nested import flatten
from reprod_log.capture.run import Run
from reprod_log.capture.tensors import is_tensor, to_numpy
from reprod_log.capture.watch import watch

__all__ = ["Run", "flatten", "framework_of", "is_tensor", "to_numpy", "watch"]
