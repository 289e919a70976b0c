"""PaddlePaddle: everything that reprod_log knows of it, by the parts of contract.py."""

from reprod_log.frameworks.contract import Framework
from reprod_log.frameworks.paddle import distributed, export, tensors
from reprod_log.frameworks.paddle.hooks import PaddleHooks
from reprod_log.frameworks.paddle.modules import PaddleModules
from reprod_log.frameworks.paddle.operators import PaddleOperators
from reprod_log.frameworks.paddle.optimizers import PaddleOptimizers
from reprod_log.frameworks.paddle.process import PaddleProcess


class Paddle(PaddleModules, PaddleHooks, PaddleOptimizers, PaddleProcess):
    operators = PaddleOperators()


FRAMEWORK = Framework("paddle", tensors, Paddle(), distributed=distributed, export=export)
