"""PaddlePaddle models exported to an engine."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from reprod_log.frameworks.hooked import Hooked
from reprod_log.recording import Array


class PaddleExport(Hooked):
    engines = ("inference", "jit")

    def export(self, model: Any, inputs: Any, folder: Path, engine: str) -> Callable[[Any], Any]:
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
