"""PaddlePaddle."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from reprod_log.capture import to_numpy
from reprod_log.recording import Array
from reprod_log.steps.frameworks import Pull

ENGINES = ("inference", "jit")


def pulls(optimizer: Any) -> list[Pull]:
    rate = float(optimizer.get_lr())
    found = []
    for group in _groups(optimizer):
        for parameter in group["params"]:
            # ParamAttr(learning_rate=…) and a group's own rate both end up here; get_lr() shows neither.
            factor = float(parameter.optimize_attr.get("learning_rate", 1.0))
            found.append(
                Pull(parameter, rate * factor * _ratio(optimizer, parameter), **_decay(optimizer, group, parameter))
            )
    return found


def _groups(optimizer: Any) -> list[dict[str, Any]]:
    groups = getattr(optimizer, "_param_groups", None) or optimizer._parameter_list or []
    return list(groups) if groups and isinstance(groups[0], dict) else [{"params": list(groups)}]


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


def penalty_gradients(value: Any, parameters: Sequence[Any]) -> list[Array | None]:
    gradients = paddle.grad(value, list(parameters), allow_unused=True)
    return [None if one is None else to_numpy(one) for one in gradients]


def export(model: Any, inputs: Any, folder: Path, engine: str) -> Callable[[Any], Any]:
    training = model.training
    model.eval()
    try:
        path = str(folder / "model")
        arrays = _in_order(model, inputs)
        specs = [paddle.static.InputSpec(shape=list(one.shape), dtype=str(one.dtype)) for one in arrays]
        paddle.jit.save(model, path, input_spec=specs)
    finally:
        if training:
            model.train()
    if engine == "jit":
        loaded = paddle.jit.load(path)
        loaded.eval()
        return lambda given: loaded(*(paddle.to_tensor(one) for one in _in_order(model, given)))
    return _predictor(path, model)


def _predictor(path: str, model: Any) -> Callable[[Any], Any]:
    from paddle import inference

    program = next(one for one in (Path(f"{path}.json"), Path(f"{path}.pdmodel")) if one.exists())
    config = inference.Config(str(program), f"{path}.pdiparams")
    config.disable_glog_info()
    predictor = inference.create_predictor(config)

    def call(given: Any) -> Any:
        for name, array in zip(predictor.get_input_names(), _in_order(model, given), strict=True):
            predictor.get_input_handle(name).copy_from_cpu(np.ascontiguousarray(array))
        predictor.run()
        outputs = [predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return call


def _in_order(model: Any, inputs: Any) -> list[Array]:
    """The inputs in the order in which forward takes them."""
    if isinstance(inputs, dict):
        taken = list(inspect.signature(type(model).forward).parameters)
        return [np.asarray(inputs[name]) for name in sorted(inputs, key=taken.index)]
    several = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    return [np.asarray(one) for one in several]
