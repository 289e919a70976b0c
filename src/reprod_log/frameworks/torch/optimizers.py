"""PyTorch optimizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from reprod_log.frameworks.contract import ParameterTreatment
from reprod_log.frameworks.hooked import Hooked
from reprod_log.frameworks.tensors import to_numpy
from reprod_log.layers.optimizers import Slot, is_decoupled
from reprod_log.recording import Array


class TorchOptimizers(Hooked):
    optimizer_class = torch.optim.Optimizer

    def groups(self, optimizer: Any) -> list[dict[str, Any]]:
        return list(optimizer.param_groups)

    def rates(self, optimizer: Any) -> list[float]:
        # A tensor when the optimizer is capturable.
        return [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]

    def describe(self, optimizer: Any) -> dict[str, Any]:
        groups = []
        for group in optimizer.param_groups:
            groups.append(
                {name: _plain(value) for name, value in group.items() if name not in ("params", "param_names")}
            )
        sizes = [len(group["params"]) for group in optimizer.param_groups]
        return {"type": type(optimizer).__name__, "groups": groups, "parameters_in_groups": sizes}

    def recorded_state(self, optimizer: Any, parameter: Any) -> list[tuple[str, Any, dict[str, Any]]]:
        # `state` is a defaultdict: asking for what is not there would add it.
        state = optimizer.state.get(parameter)
        if not state:
            return []
        step = state.get("step")
        facts = {} if step is None else {"optimizer_step": int(step)}
        return [
            (name, value, dict(facts))
            for name, value in state.items()
            if name != "step" and isinstance(value, torch.Tensor)
        ]

    def convert_optimizer(self, optimizer: Any, dtype: str) -> None:
        for state in optimizer.state.values():
            for name, value in state.items():
                if name != "step" and isinstance(value, torch.Tensor) and value.is_floating_point():
                    state[name] = value.to(getattr(torch, dtype))

    def treatments(self, optimizer: Any) -> list[ParameterTreatment]:
        found = []
        for group in optimizer.param_groups:
            decay = float(group.get("weight_decay", 0.0))
            decoupled = is_decoupled("torch", [one.__name__ for one in type(optimizer).__mro__], group)
            for parameter in group["params"]:
                found.append(
                    ParameterTreatment(
                        parameter,
                        float(group.get("lr", 0.0)),
                        l2=0.0 if decoupled else decay,
                        decoupled=decay if decoupled else 0.0,
                    )
                )
        return found

    def constants(self, optimizer: Any, parameter: Any) -> dict[str, float]:
        group = _group(optimizer, parameter)
        beta1, beta2 = group.get("betas", (0.0, 0.0))
        return {"lr": float(group["lr"]), "beta1": float(beta1), "beta2": float(beta2)}

    def is_kept(self, optimizer: Any, parameter: Any, slot: Slot) -> bool:
        return not slot.option or bool(_group(optimizer, parameter).get(slot.option))

    def read_slots(self, optimizer: Any, parameter: Any) -> dict[str, Array]:
        found = {}
        for name, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor):
                found[name] = to_numpy(value)
            elif isinstance(value, (int, float)):
                found[name] = np.asarray(value, np.float32)
        return found

    def write_slots(self, optimizer: Any, parameter: Any, slots: Mapping[str, Array]) -> None:
        if not slots:
            optimizer.state.pop(parameter, None)
            return
        optimizer.state[parameter] = {name: _placed(parameter, array) for name, array in slots.items()}

    def clear(self, optimizer: Any) -> None:
        optimizer.zero_grad()


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else value.tolist()
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)


def _group(optimizer: Any, parameter: Any) -> dict[str, Any]:
    return next(group for group in optimizer.param_groups if any(one is parameter for one in group["params"]))


def _placed(parameter: Any, array: Array) -> Any:
    tensor = torch.from_numpy(np.array(array, order="C"))
    if array.ndim == 0 and parameter.ndim > 0:
        # A step count: torch keeps it as a float on the CPU.
        return tensor.to(torch.float32)
    return tensor.to(device=parameter.device, dtype=parameter.dtype)
