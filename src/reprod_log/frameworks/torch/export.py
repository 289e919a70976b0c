"""PyTorch models exported to an engine."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reprod_log.errors import MissingPackage
from reprod_log.frameworks.hooked import Hooked


class TorchExport(Hooked):
    engines = ("export", "jit", "onnx")

    def export(self, model: Any, inputs: Any, folder: Path, engine: str) -> Callable[[Any], Any]:
        training = model.training
        model.eval()
        try:
            with torch.no_grad():
                return _EXPORTS[engine](model, inputs, folder)
        finally:
            model.train(training)


def _given(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, dict):
        return (), {name: torch.from_numpy(np.array(one)) for name, one in inputs.items()}
    several = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    return tuple(torch.from_numpy(np.array(one)) for one in several), {}


def _export(model: Any, inputs: Any, folder: Path) -> Callable[[Any], Any]:
    args, kwargs = _given(inputs)
    path = folder / "model.pt2"
    torch.export.save(torch.export.export(model, args, kwargs), path)
    return _caller(torch.export.load(path).module())


def _jit(model: Any, inputs: Any, folder: Path) -> Callable[[Any], Any]:
    args, kwargs = _given(inputs)
    path = folder / "model.jit.pt"
    if kwargs:
        torch.jit.trace(model, example_kwarg_inputs=kwargs).save(str(path))
    else:
        torch.jit.trace(model, args).save(str(path))
    return _caller(torch.jit.load(str(path)))


def _caller(engine: Any) -> Callable[[Any], Any]:
    def call(inputs: Any) -> Any:
        args, kwargs = _given(inputs)
        with torch.no_grad():
            return engine(*args, **kwargs)

    return call


def _onnx(model: Any, inputs: Any, folder: Path) -> Callable[[Any], Any]:
    try:
        onnxruntime = import_module("onnxruntime")
        import_module("onnx")
    except ImportError as error:
        needed = "engine 'onnx' needs onnx and onnxruntime: pip install onnx onnxruntime onnxscript"
        raise MissingPackage(needed) from error
    args, kwargs = _given(inputs)
    path = folder / "model.onnx"
    torch.onnx.export(model, args, str(path), kwargs=kwargs or None)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def call(given: Any) -> Any:
        values = given.values() if isinstance(given, dict) else given if isinstance(given, (tuple, list)) else (given,)
        feeds = {one.name: np.asarray(value) for one, value in zip(session.get_inputs(), values, strict=True)}
        outputs = session.run(None, feeds)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return call


_EXPORTS = {"export": _export, "jit": _jit, "onnx": _onnx}
