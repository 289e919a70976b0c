"""Columns of further frameworks for the kinds of kinds.py, whose rows are written for torch and paddle."""

from __future__ import annotations

from collections.abc import Mapping

from reprod_log.layers.rows import Column, Setting, TensorMap, same
from reprod_log.layers.transform import FLAT, SWAP, Transform

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

_KERNEL_AXES = {1: (2, 1, 0), 2: (3, 2, 0, 1), 3: (4, 3, 0, 1, 2)}
_SCALE = (TensorMap("scale", ("weight",), FLAT), TensorMap("bias", ("bias",), FLAT))
_EPSILON = {"eps": Setting("epsilon")}
_FLAX = {
    "linear": Column(("Linear",), (TensorMap("kernel", ("weight",), SWAP), *same("bias"))),
    "embedding": Column(("Embed",), (TensorMap("embedding", ("weight",)),)),
    **{
        f"{kind}{n}d": Column(
            (f"{name}{n}d",),
            (TensorMap("kernel", ("weight",), Transform(axes=_KERNEL_AXES[n])), *same("bias")),
            channels="last",
        )
        for n in (1, 2, 3)
        for kind, name in (("conv", "Conv"), ("conv_transpose", "ConvTranspose"))
    },
    "batchnorm": Column(
        ("BatchNorm",),
        (
            TensorMap("scale", ("weight",)),
            *same("bias"),
            TensorMap("mean", ("running_mean",), trained=False),
            TensorMap("var", ("running_var",), trained=False),
        ),
        settings={**_EPSILON, "momentum": Setting("momentum", "kept")},
        channels="last",
    ),
    "layernorm": Column(("LayerNorm",), _SCALE, settings=_EPSILON),
    "rmsnorm": Column(("RMSNorm",), _SCALE[:1], settings=_EPSILON),
    "groupnorm": Column(
        ("GroupNorm",), (TensorMap("scale", ("weight",)), *same("bias")), settings=_EPSILON, channels="last"
    ),
    "dropout": Column(("Dropout",), settings={"p": Setting("rate")}),
}
"""Modules of NNX; convolutions are told apart by the number of their dimensions."""

COLUMNS: Mapping[str, Mapping[str, Column]] = {
    "flax": _FLAX,
    "onnx": {kind: Column((name,)) for kind, name in _ONNX_OPERATORS.items()},
}
"""By framework and kind."""
