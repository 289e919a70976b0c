"""MindSpore in pynative mode: cells are watched like modules; gradients come from value_and_grad and grad."""

from __future__ import annotations

from reprod_log.frameworks.contract import Eager, Framework
from reprod_log.frameworks.mindspore.cells import Cells
from reprod_log.frameworks.mindspore.hooks import MindSporeHooks
from reprod_log.frameworks.mindspore.optimizers import MindSporeOptimizers
from reprod_log.frameworks.mindspore.tensors import MindSporeProcess, MindSporeTensors

FRAMEWORK = Framework(
    "mindspore", MindSporeTensors(), Eager(Cells(), MindSporeHooks(), MindSporeOptimizers(), MindSporeProcess())
)
