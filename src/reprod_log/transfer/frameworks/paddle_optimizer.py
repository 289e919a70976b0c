"""paddle's optimizers: their state per parameter, read and written. The same functions as torch's file."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle

from reprod_log.layers.optimizers import OptimizerColumn
from reprod_log.layers.transform import Array
from reprod_log.transfer.frameworks.paddle import read, shape, write


def parameters(optimizer: Any) -> list[Any]:
    """All parameters that the optimizer updates."""
    found = []
    for one in optimizer._parameter_list or []:
        found += list(one["params"]) if isinstance(one, dict) else [one]
    return found


def settings(optimizer: Any, parameter: Any) -> dict[str, float]:
    """The learning rate and the betas for this parameter."""
    # A parameter may have a factor of its own (ParamAttr(learning_rate=...)).
    factor = float(getattr(parameter, "optimize_attr", {}).get("learning_rate", 1.0))
    betas = {name: _number(getattr(optimizer, f"_{name}", 0.0)) for name in ("beta1", "beta2")}
    return {"lr": float(optimizer.get_lr()) * factor, **betas}


def kept_moments(optimizer: Any, parameter: Any, column: OptimizerColumn) -> frozenset[str]:
    """The moments (by canonical names) that the optimizer keeps with its present settings."""
    _create(optimizer, parameter)
    own = {_plain(optimizer, name) for name, kept in optimizer._accumulators.items() if parameter.name in kept}
    return frozenset(name for name, slot in column.slots.items() if slot.native in own)


def read_state(optimizer: Any, parameter: Any) -> dict[str, Array]:
    """The state of one parameter by paddle's names; empty before the first step."""
    found = {}
    for name, by_parameter in optimizer._accumulators.items():
        if parameter.name in by_parameter:
            found[_plain(optimizer, name)] = read(by_parameter[parameter.name])
    return found


def write_state(optimizer: Any, parameter: Any, state: Mapping[str, Array]) -> None:
    """Replaces the state of one parameter; an empty one is as before the first step."""
    _create(optimizer, parameter)
    for name, by_parameter in optimizer._accumulators.items():
        tensor = by_parameter.get(parameter.name)
        if tensor is None:
            continue
        plain = _plain(optimizer, name)
        if plain in state:
            write(tensor, state[plain])
        else:
            power = plain.endswith("_pow_acc")
            start = settings(optimizer, parameter)[plain.removesuffix("_pow_acc")] if power else 0.0
            write(tensor, np.full(shape(tensor), start))


def _create(optimizer: Any, parameter: Any) -> None:
    # What the first step would do; there is no public way to it.
    optimizer._create_accumulators(paddle.static.default_main_program().global_block(), [parameter])


def _plain(optimizer: Any, name: str) -> str:
    return name.removeprefix(f"{optimizer._name}_") if optimizer._name else name


def _number(value: Any) -> float:
    return float(value.item()) if isinstance(value, paddle.Tensor) else float(value)
