"""Running a graph: ONNX Runtime or OpenVINO for what a user gets, the reference evaluator of onnx for float64."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from reprod_log.errors import CaptureError, UsageError, listed
from reprod_log.recording import Array

_NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
RUNTIME = "onnxruntime"
"""The engine that runs a graph unless another one is asked for."""
_TYPES = ("to", "dtype", "output_dtype")
"""Attributes that hold the number of an element type."""


def marked(proto: Any, names: Iterable[str]) -> Any:
    """A copy of a model that also returns these tensors."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    known = {one.name for one in made.graph.output}
    made.graph.output.extend(onnx.helper.make_empty_tensor_value_info(one) for one in names if one not in known)
    return made


def run(proto: Any, given: Mapping[str, Array], dtype: str | None, engine: str = RUNTIME) -> dict[str, Array]:
    """Every output of a model by its name, in another precision than its own if asked for."""
    outputs = [one.name for one in proto.graph.output]
    if dtype is None:
        found = ENGINES[engine](proto, outputs, given)
    elif dtype == "float64":
        found = ReferenceEvaluator(_in_double(proto)).run(outputs, dict(given))
    else:
        raise UsageError(f"graphs run as they are and in float64, not in {dtype}")
    return dict(zip(outputs, map(np.asarray, found), strict=True))


def _by_runtime(proto: Any, outputs: Sequence[str], given: Mapping[str, Array]) -> list[Any]:
    # Not at the top: a graph can be looked at without the runtime.
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Fused kernels would hide the tensors between them.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), sess_options=options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(list(outputs), dict(given)))


def _by_openvino(proto: Any, outputs: Sequence[str], given: Mapping[str, Array]) -> list[Any]:
    try:
        # Not at the top: who runs graphs by ONNX Runtime need not have it.
        import openvino
    except ImportError as error:
        raise UsageError("openvino is not installed: pip install openvino") from error

    core = openvino.Core()
    # A processor may compute in a narrower type, which would be another question.
    settings = {"INFERENCE_PRECISION_HINT": "f32", "EXECUTION_MODE_HINT": "ACCURACY"}
    program = core.compile_model(core.read_model(proto.SerializeToString()), "CPU", settings)
    results = program({name: np.ascontiguousarray(one) for name, one in given.items()})
    # Tensors that are equal by construction are one, with several names.
    found = {name: results[port] for port in program.outputs for name in port.names}
    lost = [name for name in outputs if name not in found]
    if lost:
        raise CaptureError(f"OpenVINO gives no values for {listed(lost)}")
    return [np.array(found[name]) for name in outputs]


ENGINES: Mapping[str, Callable[[Any, Sequence[str], Mapping[str, Array]], list[Any]]] = {
    RUNTIME: _by_runtime,
    "openvino": _by_openvino,
}


def _in_double(proto: Any) -> Any:
    """The model with double in the place of every narrower floating type."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    _widen_graph(made.graph)
    for function in made.functions:
        for node in function.node:
            _widen_node(node)
    return made


def _widen_graph(graph: Any) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in _NARROW:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in graph.node:
        _widen_node(node)


def _widen_node(node: Any) -> None:
    for attribute in node.attribute:
        if attribute.name in _TYPES and attribute.i in _NARROW:
            attribute.i = TensorProto.DOUBLE
        if attribute.HasField("t"):
            _widen_tensor(attribute.t)
        if attribute.HasField("g"):
            _widen_graph(attribute.g)
        for graph in attribute.graphs:
            _widen_graph(graph)
    if node.op_type == "Constant":
        _widen_constant(node)


def _widen_constant(node: Any) -> None:
    """A constant given as plain numbers is of single precision by definition."""
    for attribute in list(node.attribute):
        if attribute.name in ("value_float", "value_floats"):
            value = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            node.attribute.remove(attribute)
            tensor = numpy_helper.from_array(np.asarray(value, np.float64))
            node.attribute.append(onnx.helper.make_attribute("value", tensor))


def _widen_tensor(tensor: Any) -> None:
    if tensor.data_type in _NARROW:
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), name))
