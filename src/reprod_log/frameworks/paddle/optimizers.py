"""PaddlePaddle optimizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle

from reprod_log.frameworks.contract import ParameterTreatment
from reprod_log.frameworks.hooked import Hooked
from reprod_log.frameworks.paddle.tensors import overwrite
from reprod_log.frameworks.tensors import to_numpy
from reprod_log.layers.optimizers import Slot, find_optimizer, kept_slot, steps_taken
from reprod_log.recording import Array


class PaddleOptimizers(Hooked):
    optimizer_class = paddle.optimizer.Optimizer

    def groups(self, optimizer: Any) -> list[dict[str, Any]]:
        groups = getattr(optimizer, "_param_groups", None) or optimizer._parameter_list or []
        if groups and isinstance(groups[0], dict):
            return list(groups)
        return [{"params": list(groups)}]

    def rates(self, optimizer: Any) -> list[float]:
        # A group's own `learning_rate` multiplies the optimizer's.
        rate = float(optimizer.get_lr())
        return [rate * float(group.get("learning_rate", 1.0)) for group in self.groups(optimizer)]

    def describe(self, optimizer: Any) -> dict[str, Any]:
        own = {name.lstrip("_"): _plain(value) for name, value in vars(optimizer).items() if _is_setting(name, value)}
        own["learning_rate"] = float(optimizer.get_lr())
        own["grad_clip"] = _plain(optimizer._grad_clip)
        if getattr(optimizer, "regularization", None) is not None:
            own["regularization"] = _plain(optimizer.regularization)
        groups = [
            {name: _plain(value) for name, value in {**own, **group}.items() if name != "params"}
            for group in self.groups(optimizer)
        ]
        multipliers = [float(one.optimize_attr.get("learning_rate", 1.0)) for one in self.parameters_of(optimizer)]
        found: dict[str, Any] = {
            "type": type(optimizer).__name__,
            "groups": groups,
            "parameters_in_groups": [len(group["params"]) for group in self.groups(optimizer)],
        }
        if any(multiplier != 1.0 for multiplier in multipliers):
            # ParamAttr(learning_rate=…): `get_lr()` does not show it.
            found["learning_rate_multipliers"] = multipliers
        return found

    def recorded_state(self, optimizer: Any, parameter: Any) -> list[tuple[str, Any, dict[str, Any]]]:
        name = parameter.name
        classes = [one.__name__ for one in type(optimizer).__mro__]
        kept = {native: one[name] for native, one in optimizer._accumulators.items() if name in one}
        facts = _steps_taken(optimizer, classes, kept)
        found = []
        for native, value in kept.items():
            known = kept_slot("paddle", classes, native)
            # RMSProp keeps tensors for momentum and centering even when it uses neither.
            if known is None or (known[1].option and not getattr(optimizer, f"_{known[1].option}", True)):
                continue
            role, slot = known
            about = dict(facts)
            if slot.factor == "lr":
                value, about["derived"] = value / float(optimizer.get_lr()), f"{native} / lr"
            if slot.shape == "first element":
                value, about["derived"] = value.flatten()[0], "its first element"
            found.append((role, value, about))
        master = getattr(optimizer, "_master_weights", {}).get(name)
        if master is not None:
            found.append(("master_weight", master, facts))
        return found

    def convert_optimizer(self, optimizer: Any, dtype: str) -> None:
        # The learning rate is a tensor of the dtype that the parameters had; kernels refuse another than theirs.
        optimizer._dtype = getattr(paddle, dtype)
        optimizer._learning_rate_map.clear()
        for kept in optimizer._accumulators.values():
            for name, tensor in kept.items():
                if tensor.is_floating_point():
                    kept[name] = tensor.astype(dtype)

    def treatments(self, optimizer: Any) -> list[ParameterTreatment]:
        rate = float(optimizer.get_lr())
        found = []
        for group in self.groups(optimizer):
            for parameter in group["params"]:
                # ParamAttr(learning_rate=…) and a group's own rate both end up here; get_lr() shows neither.
                factor = float(parameter.optimize_attr.get("learning_rate", 1.0))
                found.append(
                    ParameterTreatment(
                        parameter, rate * factor * _ratio(optimizer, parameter), **_decay(optimizer, group, parameter)
                    )
                )
        return found

    def constants(self, optimizer: Any, parameter: Any) -> dict[str, float]:
        # A parameter may have a factor of its own (ParamAttr(learning_rate=...)).
        factor = float(getattr(parameter, "optimize_attr", {}).get("learning_rate", 1.0))
        betas = {name: _number(getattr(optimizer, f"_{name}", 0.0)) for name in ("beta1", "beta2")}
        return {"lr": float(optimizer.get_lr()) * factor, **betas}

    def is_kept(self, optimizer: Any, parameter: Any, slot: Slot) -> bool:
        _create(optimizer, parameter)
        kept = optimizer._accumulators
        return any(_native(optimizer, name) == slot.native and parameter.name in kept[name] for name in kept)

    def read_slots(self, optimizer: Any, parameter: Any) -> dict[str, Array]:
        found = {}
        for name, by_parameter in optimizer._accumulators.items():
            if parameter.name in by_parameter:
                found[_native(optimizer, name)] = to_numpy(by_parameter[parameter.name])
        return found

    def write_slots(self, optimizer: Any, parameter: Any, slots: Mapping[str, Array]) -> None:
        _create(optimizer, parameter)
        for name, by_parameter in optimizer._accumulators.items():
            tensor = by_parameter.get(parameter.name)
            if tensor is None:
                continue
            plain = _native(optimizer, name)
            if plain in slots:
                overwrite(tensor, slots[plain])
            else:
                power = plain.endswith("_pow_acc")
                start = self.constants(optimizer, parameter)[plain.removesuffix("_pow_acc")] if power else 0.0
                overwrite(tensor, np.full([int(size) for size in tensor.shape], start))

    def clear(self, optimizer: Any) -> None:
        optimizer.clear_grad()


def _is_setting(name: str, value: Any) -> bool:
    internal = ("fus", "merged", "need_refuse", "helper", "name", "use_multi_tensor", "master_grad")
    return isinstance(value, (bool, int, float, str)) and not any(part in name for part in internal)


def _plain(value: Any) -> Any:
    if isinstance(value, paddle.Tensor):
        return value.item() if value.size == 1 else value.tolist()
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    # A clip, a regularizer, a schedule: its class and its numbers.
    own = getattr(value, "__dict__", {})
    numbers = {name.lstrip("_"): one for name, one in own.items() if isinstance(one, (bool, int, float, str))}
    return {"type": type(value).__name__, **numbers}


def _steps_taken(optimizer: Any, classes: list[str], kept: dict[str, Any]) -> dict[str, Any]:
    """The number of steps, as far as powers of settings tell."""
    row = find_optimizer("paddle", classes)
    if row is None:
        return {}
    column = row.columns["paddle"]
    settings = {setting: getattr(optimizer, f"_{setting}", None) for _, setting in column.counter.powers}
    powers = {name: float(kept[name].item()) for name, _ in column.counter.powers if name in kept}
    numbers = {name: value for name, value in settings.items() if isinstance(value, float)}
    steps = steps_taken(column, powers, numbers)
    return {} if steps is None else {"optimizer_step": int(steps)}


def _ratio(optimizer: Any, parameter: Any) -> float:
    ratio = getattr(optimizer, "_lr_ratio", None)
    return 1.0 if ratio is None else float(ratio(parameter))


def _decay(optimizer: Any, group: dict[str, Any], parameter: Any) -> dict[str, float]:
    found = _regularizer(optimizer, group, parameter)
    if isinstance(optimizer, paddle.optimizer.AdamW):
        wanted = optimizer._apply_decay_param_fun
        if wanted is None or wanted(parameter.name):
            found["decoupled"] = _number(group.get("weight_decay", optimizer._weight_decay))
    elif isinstance(optimizer, paddle.optimizer.Lamb):
        excluded = optimizer._exclude_from_weight_decay_fn
        if excluded is None or not excluded(parameter):
            found["decoupled"] = _number(optimizer._lamb_weight_decay)
    return found


def _regularizer(optimizer: Any, group: dict[str, Any], parameter: Any) -> dict[str, float]:
    """L1 and L2 terms: the parameter's own regularizer (ParamAttr) replaces the optimizer's."""
    own = getattr(parameter, "regularizer", None)
    if own is not None:
        return _coefficient(own)
    general = getattr(optimizer, "regularization", None)
    if general is not None:
        return _coefficient(general)
    if getattr(optimizer, "_regularization_method", "") == "l2_decay":
        # Momentum takes an L2 term into its own kernel.
        return {"l2": float(optimizer._regularization_coeff)}
    return {}


def _coefficient(regularizer: Any) -> dict[str, float]:
    kind = "l1" if isinstance(regularizer, paddle.regularizer.L1Decay) else "l2"
    return {kind: float(regularizer._coeff)}


def _number(value: Any) -> float:
    return float(value.item()) if isinstance(value, paddle.Tensor) else float(value or 0.0)


def _create(optimizer: Any, parameter: Any) -> None:
    # What the first step would do; there is no public way to it.
    optimizer._create_accumulators(paddle.static.default_main_program().global_block(), [parameter])


def _native(optimizer: Any, name: str) -> str:
    return name.removeprefix(f"{optimizer._name}_") if optimizer._name else name
