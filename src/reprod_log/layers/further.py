"""Columns of further frameworks for the kinds of kinds.py, whose rows are written for torch and paddle."""

from __future__ import annotations

from collections.abc import Mapping

from reprod_log.layers.rows import Column

_ONNX_OPERATORS = {
    "linear": "Gemm", "embedding": "Gather", "batchnorm": "BatchNormalization", "layernorm": "LayerNormalization",
    "instancenorm": "InstanceNormalization", "groupnorm": "GroupNormalization", "rmsnorm": "RMSNormalization",
    "local_response_norm": "LRN", "multihead_attention": "Attention", "rnn": "RNN", "lstm": "LSTM", "gru": "GRU",
    "relu": "Relu", "leaky_relu": "LeakyRelu", "prelu": "PRelu", "elu": "Elu", "celu": "Celu", "selu": "Selu",
    "gelu": "Gelu", "silu": "Swish", "mish": "Mish", "sigmoid": "Sigmoid", "hardsigmoid": "HardSigmoid",
    "hardswish": "HardSwish", "tanh": "Tanh", "softplus": "Softplus", "softsign": "Softsign", "softmax": "Softmax",
    "logsoftmax": "LogSoftmax", "thresholded_relu": "ThresholdedRelu", "hardtanh": "Clip", "flatten": "Flatten",
    "identity": "Identity", "upsample": "Resize", "pixel_shuffle": "DepthToSpace", "pixel_unshuffle": "SpaceToDepth",
    "dropout": "Dropout",
    **{f"conv{n}d": f"Conv{n}d" for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": f"ConvTranspose{n}d" for n in (1, 2, 3)},
    **{f"maxpool{n}d": f"MaxPool{n}d" for n in (1, 2, 3)},
    **{f"avgpool{n}d": f"AveragePool{n}d" for n in (1, 2, 3)},
    "adaptive_avgpool2d": "GlobalAveragePool", "adaptive_maxpool2d": "GlobalMaxPool",
}  # fmt: skip
"""Operators by kind; those that work in one to three dimensions are told apart by that number. Weights belong to the
graph, so a column has no tensors."""

COLUMNS: Mapping[str, Mapping[str, Column]] = {
    "onnx": {kind: Column((name,)) for kind, name in _ONNX_OPERATORS.items()},
}
"""By framework and kind."""
