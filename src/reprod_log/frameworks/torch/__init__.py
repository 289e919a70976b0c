"""PyTorch: everything that reprod_log knows of it, by the parts of contract.py."""

from reprod_log.frameworks.contract import Framework
from reprod_log.frameworks.torch import distributed, export, tensors
from reprod_log.frameworks.torch.hooks import TorchHooks
from reprod_log.frameworks.torch.modules import TorchModules
from reprod_log.frameworks.torch.operators import TorchOperators
from reprod_log.frameworks.torch.optimizers import TorchOptimizers
from reprod_log.frameworks.torch.process import TorchProcess


class Torch(TorchModules, TorchHooks, TorchOptimizers, TorchProcess):
    operators = TorchOperators()


FRAMEWORK = Framework("torch", tensors, Torch(), distributed=distributed, export=export)
