"""PyTorch: everything that reprod_log knows of it. Each part is a file with the functions of contract.py."""

from reprod_log.frameworks.contract import Eager, Framework
from reprod_log.frameworks.torch import (
    distributed,
    emulation,
    export,
    hooks,
    modules,
    operators,
    optimizers,
    process,
    tensors,
)

FRAMEWORK = Framework(
    name="torch",
    tensors=tensors,
    parts=Eager(modules, hooks, optimizers, process, operators, emulation),
    distributed=distributed,
    export=export,
)
