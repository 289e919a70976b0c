"""PaddlePaddle optimizers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import wraps
from typing import Any

import paddle

from reprod_log.frameworks.hooks import Undo, replaced
from reprod_log.layers.optimizers import find_optimizer, kept_slot, steps_taken


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
