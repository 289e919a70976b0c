"""Graphs in float32, what quantises them, and mistakes in quantised graphs."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from onnxruntime import quantization
from onnxruntime.quantization import QuantFormat, QuantType
from torch import nn
from torch.nn import functional


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(24, 48), nn.Linear(48, 48), nn.Linear(48, 48)
        self.act, self.head = nn.ReLU(), nn.Linear(48, 10)

    def forward(self, x):
        return self.head(torch.tanh(self.third(self.act(self.second(self.act(self.first(x)))))))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.act = nn.Conv2d(3, 12, 3, padding=1), nn.ReLU()
        self.first, self.second = nn.Conv2d(12, 12, 3, padding=1), nn.Conv2d(12, 12, 3, padding=1)
        self.third, self.pool = nn.Conv2d(12, 12, 3, padding=1, groups=4), nn.MaxPool2d(2)
        self.head = nn.Linear(12, 10)

    def forward(self, x):
        x = self.act(self.stem(x))
        x = self.act(x + self.second(self.act(self.first(x))))
        return self.head(functional.relu6(self.third(self.pool(x))).mean((2, 3)))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 32)
        self.norm, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)
        self.third, self.out = nn.Linear(32, 32), nn.Linear(32, 32)
        self.up, self.act, self.down = nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)
        self.head = nn.Linear(32, 40)

    def forward(self, tokens):
        x = self.embed(tokens)
        h = self.norm(x)
        q, k, v = (part(h).unflatten(-1, (4, 8)).transpose(1, 2) for part in (self.first, self.second, self.third))
        attention = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1)
        x = x + self.out((attention @ v).transpose(1, 2).flatten(2))
        x = x + self.down(self.act(self.up(self.norm2(x))))
        return self.head(x)


def batch(kind, seed):
    drawn = np.random.default_rng(seed)
    if kind is Transformer:
        return drawn.integers(0, 40, (8, 12))
    return drawn.standard_normal((8, 24) if kind is Mlp else (8, 3, 8, 8)).astype(np.float32)


def exported(kind, seed, *, scopes=False):
    """The model in evaluation mode, and its graph, with or without the exporter's notes on modules."""
    torch.manual_seed(seed)
    model = kind().eval()
    inputs = (torch.from_numpy(batch(kind, seed)),)
    if not scopes:
        file = io.BytesIO()
        torch.onnx.export(model, inputs, file, dynamo=False, input_names=["x"])
        return model, onnx.load_from_string(file.getvalue())
    made = torch.onnx.export(model, inputs, dynamo=True, verbose=False, input_names=["x"]).model_proto
    # What quantises a graph turns weights around, and keeps the shapes that are noted here.
    del made.graph.value_info[:]
    return model, made


class Calibration(quantization.CalibrationDataReader):
    """Other data than is compared on."""

    def __init__(self, kind):
        self.batches = iter([{"x": batch(kind, 100 + place)} for place in range(6)])

    def get_next(self):
        return next(self.batches, None)


UNSIGNED = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QUInt8}
SIGNED = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
WAYS = {
    "dynamic": {"weight_type": QuantType.QUInt8},
    "dynamic, channels": {"weight_type": QuantType.QInt8, "per_channel": True, "reduce_range": True},
    "rounding": {"quant_format": QuantFormat.QDQ, **SIGNED},
    "rounding, channels": {"quant_format": QuantFormat.QDQ, "per_channel": True, **SIGNED},
    "operators": {"quant_format": QuantFormat.QOperator, **UNSIGNED},
    "operators, channels": {
        "quant_format": QuantFormat.QOperator,
        "per_channel": True,
        "reduce_range": True,
        "activation_type": QuantType.QUInt8,
        "weight_type": QuantType.QInt8,
    },
}


def quantised(graph, kind, way):
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "before.onnx"), Path(folder, "after.onnx")
        onnx.save(graph, before)
        if way.startswith("dynamic"):
            quantization.quantize_dynamic(before, after, **WAYS[way])
        else:
            quantization.quantize_static(before, after, Calibration(kind), **WAYS[way])
        return onnx.load(after)


# ---- mistakes, each in one layer of a quantised graph ---------------------------------------------------------------


def _find(graph, name):
    return next(one for one in graph.graph.initializer if one.name == name)


def _change(graph, name, change):
    tensor = _find(graph, name)
    array = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(np.array(change(array), array.dtype), name))


def scale(graph):
    _change(graph, "second.weight_scale", lambda one: one * 1.1)
    return "second"


def zero_point(graph):
    _change(graph, "second.weight_zero_point", lambda one: one + 3)
    return "second"


def other_layer(graph):
    other = (
        "third"
        if _find(graph, "third.weight_quantized").dims == _find(graph, "second.weight_quantized").dims
        else "first"
    )
    _change(
        graph, "second.weight_quantized", lambda one: numpy_helper.to_array(_find(graph, f"{other}.weight_quantized"))
    )
    return "second"


def coarse(graph):
    """Weights in four bits that are stored in eight."""
    zero = int(numpy_helper.to_array(_find(graph, "second.weight_zero_point")).reshape(-1)[0])
    _change(
        graph,
        "second.weight_quantized",
        lambda one: np.clip(
            (one.astype(int) - zero) // 16 * 16 + zero,
            -128 if one.dtype == np.int8 else 0,
            127 if one.dtype == np.int8 else 255,
        ),
    )
    return "second"


def range_too_narrow(graph):
    """What the first layer gives: the second one takes it."""
    names = [one.name for one in graph.graph.initializer if one.name.endswith("_scale")]
    given = next(one for one in names if one.startswith(("/act/Relu_output_0", "/first/Gemm_output_0")))
    _change(graph, given, lambda one: one * 0.1)
    return "act|first"


def float_layer(graph):
    next(one for one in graph.graph.node if one.op_type == "Tanh").op_type = "Sigmoid"
    return "Tanh"


def read_otherwise(graph):
    """The layer reads its input by another scale than it was written by."""
    for node in graph.graph.node:
        named = node.name in ("/second/Gemm_quant", "/act/Relu_output_0_DequantizeLinear")
        if named and node.op_type in ("QGemm", "DequantizeLinear"):
            array = numpy_helper.to_array(_find(graph, node.input[1]))
            graph.graph.initializer.append(numpy_helper.from_array(np.array(array * 1.15, array.dtype), "another"))
            node.input[1] = "another"
            return "second"
    raise AssertionError


Mistake = Callable[[onnx.ModelProto], str]
MISTAKES: dict[str, Mistake] = {
    "scale": scale,
    "zero point": zero_point,
    "weights of another layer": other_layer,
    "four bits": coarse,
    "range too narrow": range_too_narrow,
    "float layer": float_layer,
    "read otherwise": read_otherwise,
}
STATIC = ("range too narrow", "read otherwise")
