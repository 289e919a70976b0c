"""PaddlePaddle: everything that reprod_log knows of it. Each part is a file with the functions of contract.py."""

from reprod_log.frameworks.contract import Eager, Framework
from reprod_log.frameworks.paddle import distributed, export, hooks, modules, operators, optimizers, process, tensors

FRAMEWORK = Framework(
    name="paddle",
    tensors=tensors,
    parts=Eager(modules, hooks, optimizers, process, operators),
    distributed=distributed,
    export=export,
)
