"""PaddlePaddle optimizers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import wraps
from typing import Any

import paddle

from reprod_log.frameworks.hooks import Undo, replaced

_CANONICAL = {
    "velocity": "momentum_buffer",
    "momentum": "momentum_buffer",
    "moment1": "exp_avg",
    "moment2": "exp_avg_sq",
    "moment2_max": "max_exp_avg_sq",
    "mean_square": "square_avg",
    "mean_grad": "grad_avg",
    "inf_norm": "exp_inf",
    "_avg_squared_grad": "square_avg",
    "_avg_squared_update": "acc_delta",
    "prevs": "prev",
    "learning_rates": "step_size",
}
"""What torch calls the same thing; measured to be the same after three steps."""

_MOMENT = {"Adagrad": "sum", "Adamax": "exp_avg"}
"""`moment` means something else in each of these."""

_COUNTERS = frozenset(
    {"beta1_pow_acc", "beta2_pow_acc", "beta1_pow", "beta2_pow", "momentum_decay_pow", "rho"},
)
"""Powers of constants that stand in for the number of steps."""


def is_optimizer(thing: object) -> bool:
    return isinstance(thing, paddle.optimizer.Optimizer)


def optimizer_parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in _groups(optimizer) for parameter in group["params"]]


def _groups(optimizer: Any) -> list[dict[str, Any]]:
    groups = getattr(optimizer, "_param_groups", None) or optimizer._parameter_list or []
    if groups and isinstance(groups[0], dict):
        return list(groups)
    return [{"params": list(groups)}]


def learning_rates(optimizer: Any) -> list[float]:
    # A group's own `learning_rate` multiplies the optimizer's.
    rate = float(optimizer.get_lr())
    return [rate * float(group.get("learning_rate", 1.0)) for group in _groups(optimizer)]


def optimizer_settings(optimizer: Any) -> dict[str, Any]:
    own = {name.lstrip("_"): _plain(value) for name, value in vars(optimizer).items() if _is_setting(name, value)}
    own["learning_rate"] = float(optimizer.get_lr())
    own["grad_clip"] = _plain(optimizer._grad_clip)
    if getattr(optimizer, "regularization", None) is not None:
        own["regularization"] = _plain(optimizer.regularization)
    groups = [
        {name: _plain(value) for name, value in {**own, **group}.items() if name != "params"}
        for group in _groups(optimizer)
    ]
    multipliers = [float(one.optimize_attr.get("learning_rate", 1.0)) for one in optimizer_parameters(optimizer)]
    found: dict[str, Any] = {
        "type": type(optimizer).__name__,
        "groups": groups,
        "parameters_in_groups": [len(group["params"]) for group in _groups(optimizer)],
    }
    if any(multiplier != 1.0 for multiplier in multipliers):
        # ParamAttr(learning_rate=…): `get_lr()` does not show it.
        found["learning_rate_multipliers"] = multipliers
    return found


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


def optimizer_state(optimizer: Any, parameter: Any) -> list[tuple[str, Any, dict[str, Any]]]:
    name = parameter.name
    kept = {kind: one[name] for kind, one in optimizer._accumulators.items() if name in one}
    facts = _steps_taken(optimizer, kept)
    found = []
    for kind, value in kept.items():
        if kind in _COUNTERS or not _is_in_use(optimizer, kind):
            continue
        role = _MOMENT.get(type(optimizer).__name__, kind) if kind == "moment" else _CANONICAL.get(kind, kind)
        about = dict(facts)
        if kind == "momentum" and type(optimizer).__name__ == "RMSProp":
            # paddle keeps lr × what torch keeps.
            value, about["derived"] = value / float(optimizer.get_lr()), "momentum / lr"
        if kind == "mu_product":
            # One number, which paddle's NAdam keeps once for every element.
            value, about["derived"] = value.flatten()[0], "its first element"
        found.append((role, value, about))
    master = getattr(optimizer, "_master_weights", {}).get(name)
    if master is not None:
        found.append(("master_weight", master, facts))
    return found


def _is_in_use(optimizer: Any, kind: str) -> bool:
    """RMSProp keeps tensors for momentum and centering even when it uses neither."""
    if type(optimizer).__name__ != "RMSProp":
        return True
    if kind == "momentum":
        return bool(optimizer._momentum)
    return kind != "mean_grad" or bool(optimizer._centered)


def _steps_taken(optimizer: Any, kept: dict[str, Any]) -> dict[str, Any]:
    """The number of steps, from a power of beta1 that stands one step ahead."""
    power = kept.get("beta1_pow_acc")
    beta = getattr(optimizer, "_beta1", None)
    if power is None or not isinstance(beta, float) or not 0 < beta < 1:
        return {}
    value = float(power.item())
    return {"optimizer_step": round(math.log(value) / math.log(beta)) - 1} if 0 < value < 1 else {}


def on_step(
    optimizer: Any,
    before: Callable[[bool], None],
    clipped: Callable[[list[tuple[Any, Any]]], None],
    after: Callable[[], None],
) -> Undo:
    running = False

    def around(call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def instead(*args: Any, **kwargs: Any) -> Any:
            nonlocal running
            if running:
                return call(*args, **kwargs)
            running = True
            try:
                before(any(callable(value) and not is_tensor(value) for value in (*args, *kwargs.values())))
                with ExitStack() as undos:
                    for clip in _clips(optimizer):
                        undos.callback(_on_clip(clip, clipped))
                    result = call(*args, **kwargs)
                after()
            finally:
                running = False
            return result

        return instead

    undos = ExitStack()
    # `minimize` does not go through `step`.
    for name in ("step", "minimize"):
        undos.callback(replaced(optimizer, name, around(getattr(optimizer, name))))
    return undos.close


def is_tensor(value: object) -> bool:
    return isinstance(value, paddle.Tensor)


def _clips(optimizer: Any) -> list[Any]:
    clips = [optimizer._grad_clip, *(group.get("grad_clip") for group in _groups(optimizer))]
    return list({id(clip): clip for clip in clips if clip is not None}.values())


def _on_clip(clip: Any, clipped: Callable[[list[tuple[Any, Any]]], None]) -> Undo:
    """Clipping happens inside the step, and only some kinds of it leave their result in the parameter."""
    owner = type(clip)
    call = owner.__call__

    def instead(self: Any, params_grads: Any) -> Any:
        result = call(self, params_grads)
        if self is clip:
            clipped(list(result))
        return result

    return replaced(owner, "__call__", instead)


def convert_optimizer(optimizer: Any, dtype: str) -> None:
    # The learning rate is a tensor of the dtype that the parameters had; kernels refuse another than theirs.
    optimizer._dtype = getattr(paddle, dtype)
    optimizer._learning_rate_map.clear()
    for kept in optimizer._accumulators.values():
        for name, tensor in kept.items():
            if tensor.is_floating_point():
                kept[name] = tensor.astype(dtype)


def on_new_optimizer(found: Callable[[Any], None]) -> Undo:
    undos = ExitStack()
    # Some optimizers do not call their parent's constructor, so each class that has one of its own is heard.
    for owner in {paddle.optimizer.Optimizer, *_subclasses(paddle.optimizer.Optimizer)}:
        if "__init__" in vars(owner):
            undos.callback(replaced(owner, "__init__", _announcing(owner.__init__, found)))
    return undos.close


def _announcing(made: Callable[..., None], found: Callable[[Any], None]) -> Callable[..., None]:
    @wraps(made)
    def instead(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        found(self)

    return instead


def _subclasses(owner: Any) -> Iterator[Any]:
    for below in owner.__subclasses__():
        yield below
        yield from _subclasses(below)
