"""torch's optimizers: their state per parameter, read and written. The same functions as paddle's file."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from reprod_log.layers.optimizers import OptimizerColumn
from reprod_log.layers.transform import Array
from reprod_log.transfer.frameworks.torch import read


def parameters(optimizer: Any) -> list[Any]:
    """All parameters that the optimizer updates."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def settings(optimizer: Any, parameter: Any) -> dict[str, float]:
    """The learning rate and the betas for this parameter."""
    group = _group(optimizer, parameter)
    beta1, beta2 = group.get("betas", (0.0, 0.0))
    return {"lr": float(group["lr"]), "beta1": float(beta1), "beta2": float(beta2)}


def kept_moments(optimizer: Any, parameter: Any, column: OptimizerColumn) -> frozenset[str]:
    """The moments (by canonical names) that the optimizer keeps with its present settings."""
    group = _group(optimizer, parameter)
    return frozenset(name for name, slot in column.slots.items() if not slot.option or group.get(slot.option))


def read_state(optimizer: Any, parameter: Any) -> dict[str, Array]:
    """The state of one parameter by torch's names; empty before the first step."""
    state = optimizer.state.get(parameter, {})
    found = {}
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            found[name] = read(value)
        elif isinstance(value, (int, float)):
            found[name] = np.asarray(value, np.float32)
    return found


def write_state(optimizer: Any, parameter: Any, state: Mapping[str, Array]) -> None:
    """Replaces the state of one parameter; an empty one is as before the first step."""
    if not state:
        optimizer.state.pop(parameter, None)
        return
    optimizer.state[parameter] = {name: _placed(parameter, array) for name, array in state.items()}


def _group(optimizer: Any, parameter: Any) -> dict[str, Any]:
    return next(g for g in optimizer.param_groups if any(one is parameter for one in g["params"]))


def _placed(parameter: Any, array: Array) -> Any:
    tensor = torch.from_numpy(np.array(array, order="C"))
    if array.ndim == 0 and parameter.ndim > 0:
        # A step count: torch keeps it as a float on the CPU.
        return tensor.to(torch.float32)
    return tensor.to(device=parameter.device, dtype=parameter.dtype)
