"""Running a graph: ONNX Runtime for what a user gets, the reference evaluator of onnx for float64."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from reprod_log.errors import UsageError
from reprod_log.recording import Array

_NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_TYPES = ("to", "dtype", "output_dtype")
"""Attributes that hold the number of an element type."""


def marked(proto: Any, names: Iterable[str]) -> Any:
    """A copy of a model that also returns these tensors."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    known = {one.name for one in made.graph.output}
    made.graph.output.extend(onnx.helper.make_empty_tensor_value_info(one) for one in names if one not in known)
    return made


def run(proto: Any, given: Mapping[str, Array], dtype: str | None) -> dict[str, Array]:
    """Every output of a model by its name, in another precision than its own if asked for."""
    outputs = [one.name for one in proto.graph.output]
    if dtype is None:
        found = _session(proto).run(outputs, dict(given))
    elif dtype == "float64":
        found = ReferenceEvaluator(_in_double(proto)).run(outputs, dict(given))
    else:
        raise UsageError(f"graphs run as they are and in float64, not in {dtype}")
    return dict(zip(outputs, map(np.asarray, found), strict=True))


def _session(proto: Any) -> Any:
    # Not at the top: a graph can be looked at without the runtime.
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Fused kernels would hide the tensors between them.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), sess_options=options, providers=["CPUExecutionProvider"]
    )


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
