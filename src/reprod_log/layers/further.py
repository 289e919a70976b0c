"""Columns of further frameworks for the kinds of kinds.py, whose rows are written for torch and paddle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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
    "linear": Column(("Linear", "Dense"), (TensorMap("kernel", ("weight",), SWAP), *same("bias"))),
    "embedding": Column(("Embed",), (TensorMap("embedding", ("weight",)),)),
    **{
        f"{kind}{n}d": Column(
            classes, (TensorMap("kernel", ("weight",), Transform(axes=_KERNEL_AXES[n])), *same("bias")), channels="last"
        )
        for n in (1, 2, 3)
        for kind, classes in (("conv", (f"Conv{n}d",)), ("conv_transpose", (f"ConvTranspose{n}d",)))
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
    "prelu": Column(("PReLU",), (TensorMap("negative_slope", ("weight",), FLAT),), channels="last"),
    "multihead_attention": Column(
        ("MultiHeadAttention", "MultiHeadDotProductAttention", "SelfAttention"),
        (
            *(
                TensorMap(f"{name}.kernel", (f"{name[0]}.weight",), Transform(axes=(1, 0), fold=1))
                for name in ("query", "key", "value")
            ),
            *(TensorMap(f"{name}.bias", (f"{name[0]}.bias",), FLAT) for name in ("query", "key", "value")),
            TensorMap("out.kernel", ("out.weight",), Transform(axes=(1, 0), fold=0)),
            TensorMap("out.bias", ("out.bias",)),
        ),
        batch_first="always",
    ),
    "dropout": Column(("Dropout",), settings={"p": Setting("rate")}),
}
"""Modules of NNX and linen; convolutions are told apart by the number of their dimensions."""
_FLAX_MIRRORED = {
    f"conv_transpose{n}d": Column(
        (f"ConvTranspose{n}d",),
        (TensorMap("kernel", ("weight",), Transform(axes=axes, mirrored=True)), *same("bias")),
        channels="last",
    )
    for n, axes in ((1, (1, 2, 0)), (2, (2, 3, 0, 1)), (3, (3, 4, 0, 1, 2)))
}
"""Transposed convolutions without `transpose_kernel`, which have the kernel of the plain convolution."""

_OFFSET = (TensorMap("scale", ("weight",), FLAT), TensorMap("offset", ("bias",), FLAT))
_HAIKU = {
    "linear": Column(("Linear",), (TensorMap("w", ("weight",), SWAP), TensorMap("b", ("bias",)))),
    "embedding": Column(("Embed",), (TensorMap("embeddings", ("weight",)),)),
    **{
        f"conv{n}d": Column(
            (f"Conv{n}d",),
            (TensorMap("w", ("weight",), Transform(axes=_KERNEL_AXES[n])), TensorMap("b", ("bias",), FLAT)),
        )
        for n in (1, 2, 3)
    },
    "batchnorm": Column(
        ("BatchNorm",),
        (
            *_OFFSET,
            TensorMap("mean_ema.average", ("running_mean",), FLAT, trained=False),
            TensorMap("var_ema.average", ("running_var",), FLAT, trained=False),
            *(
                TensorMap(f"{one}.{name}", (f"{one}.{name}",), optional=True, trained=False)
                for one in ("mean_ema", "var_ema")
                for name in ("hidden", "counter")
            ),
        ),
        channels="last",
    ),
    "layernorm": Column(("LayerNorm",), _OFFSET),
    "rmsnorm": Column(("RMSNorm",), _OFFSET[:1]),
    "groupnorm": Column(("GroupNorm",), _OFFSET, settings={"num_groups": Setting("groups")}, channels="last"),
}

_EQUINOX = {
    "linear": Column(("Linear",), same("weight", "bias")),
    "embedding": Column(("Embedding",), same("weight")),
    **{
        f"conv{n}d": Column((f"Conv{n}d",), (*same("weight"), TensorMap("bias", ("bias",), FLAT)), channels="first")
        for n in (1, 2, 3)
    },
    **{
        f"conv_transpose{n}d": Column(
            (f"ConvTranspose{n}d",),
            (
                TensorMap("weight", ("weight",), Transform(axes=(1, 0, *range(2, n + 2)), mirrored=True)),
                TensorMap("bias", ("bias",), FLAT),
            ),
            channels="first",
        )
        for n in (1, 2, 3)
    },
    "batchnorm": Column(
        ("BatchNorm",),
        (
            *same("weight", "bias"),
            TensorMap("batch_state_index.0", ("running_mean",), trained=False),
            TensorMap("batch_state_index.1", ("running_var",), trained=False),
            TensorMap("batch_counter", ("batch_counter",), optional=True, trained=False),
        ),
        settings={"momentum": Setting("momentum", "kept")},
        channels="first",
    ),
    "layernorm": Column(("LayerNorm",), (TensorMap("weight", ("weight",), FLAT), TensorMap("bias", ("bias",), FLAT))),
    "rmsnorm": Column(("RMSNorm",), (TensorMap("weight", ("weight",), FLAT),)),
    "groupnorm": Column(
        ("GroupNorm",), same("weight", "bias"), settings={"num_groups": Setting("groups")}, channels="first"
    ),
    "prelu": Column(("PReLU",), (TensorMap("negative_slope", ("weight",), FLAT),)),
    "dropout": Column(("Dropout",)),
}
"""Layers take one example; what is recorded has the batch before it, and channels are first as in torch."""

_KERAS_AFFINE = (TensorMap("gamma", ("weight",), FLAT), TensorMap("beta", ("bias",), FLAT))
_KERAS = {
    "linear": Column(("Dense",), (TensorMap("kernel", ("weight",), SWAP), *same("bias"))),
    "embedding": Column(("Embedding",), (TensorMap("embeddings", ("weight",)),)),
    **{
        f"{kind}{n}d": Column(
            (name, *more),
            (
                TensorMap("kernel", ("weight",), Transform(axes=_KERNEL_AXES[n])),
                # With one output for each channel, which is how it is nearly always used.
                TensorMap("depthwise_kernel", ("weight",), Transform(axes=(n, n + 1, *range(n)))),
                *same("bias"),
            ),
        )
        for n in (1, 2, 3)
        for kind, name, more in (
            ("conv", f"Conv{n}D", (f"DepthwiseConv{n}D",)),
            ("conv_transpose", f"Conv{n}DTranspose", ()),
        )
    },
    "batchnorm": Column(
        ("BatchNormalization",),
        (
            TensorMap("gamma", ("weight",)),
            TensorMap("beta", ("bias",)),
            TensorMap("moving_mean", ("running_mean",), trained=False),
            TensorMap("moving_variance", ("running_var",), trained=False),
        ),
        settings={**_EPSILON, "momentum": Setting("momentum", "kept")},
    ),
    "layernorm": Column(("LayerNormalization",), _KERAS_AFFINE, settings=_EPSILON),
    "rmsnorm": Column(("RMSNormalization",), _SCALE[:1], settings=_EPSILON),
    "groupnorm": Column(
        ("GroupNormalization",), _KERAS_AFFINE, settings={**_EPSILON, "num_groups": Setting("groups")}
    ),
    "prelu": Column(("PReLU",), (TensorMap("alpha", ("weight",), FLAT),)),
    "dropout": Column(("Dropout",), settings={"p": Setting("rate")}),
    "flatten": Column(("Flatten",)),
    "identity": Column(("Identity",)),
    "upsample": Column(("UpSampling2D",), settings={"scale_factor": Setting("size"), "mode": Setting("interpolation")}),
    **{f"maxpool{n}d": Column((f"MaxPooling{n}D",)) for n in (1, 2, 3)},
    **{f"avgpool{n}d": Column((f"AveragePooling{n}D",)) for n in (1, 2, 3)},
    **{f"adaptive_avgpool{n}d": Column((f"GlobalAveragePooling{n}D",)) for n in (1, 2, 3)},
    **{f"adaptive_maxpool{n}d": Column((f"GlobalMaxPooling{n}D",)) for n in (1, 2, 3)},
    **{f"zero_pad{n}d": Column((f"ZeroPadding{n}D",)) for n in (1, 2, 3)},
    **{
        kind: Column(tuple(names.split()))
        for kind, names in {
            "relu": "ReLU relu", "relu6": "relu6", "leaky_relu": "LeakyReLU leaky_relu", "elu": "ELU elu",
            "celu": "celu", "selu": "selu", "gelu": "gelu", "silu": "silu swish", "mish": "mish",
            "sigmoid": "sigmoid", "hardsigmoid": "hard_sigmoid", "hardswish": "hard_silu hard_swish", "tanh": "tanh",
            "softplus": "softplus", "softsign": "softsign", "softmax": "Softmax softmax", "logsoftmax": "log_softmax",
        }.items()
    },
}  # fmt: skip
"""Layers of Keras, and its functions where a layer ends in one."""

_MINDSPORE_AFFINE = (TensorMap("gamma", ("weight",)), TensorMap("beta", ("bias",)))
_MINDSPORE = {
    "linear": Column(("Dense", "Linear"), same("weight", "bias")),
    "embedding": Column(
        ("Embedding",), (TensorMap("embedding_table", ("weight",)),), settings={"padding_idx": Setting("padding_idx")}
    ),
    **{
        f"{kind}{n}d": Column((f"{name}{n}d{end}",), same("weight", "bias"), settings={"groups": Setting("group")})
        for n in (1, 2, 3)
        for kind, name, end in (("conv", "Conv", ""), ("conv_transpose", "Conv", "Transpose"))
    },
    "batchnorm": Column(
        ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"),
        (
            *_MINDSPORE_AFFINE,
            TensorMap("moving_mean", ("running_mean",), trained=False),
            TensorMap("moving_variance", ("running_var",), trained=False),
        ),
    ),
    "layernorm": Column(
        ("LayerNorm",), tuple(replace(one, transform=FLAT) for one in _MINDSPORE_AFFINE), settings=_EPSILON
    ),
    "groupnorm": Column(("GroupNorm",), _MINDSPORE_AFFINE),
    "dropout": Column(("Dropout",)),
    "gelu": Column(("GELU",), settings={"approximate": Setting("approximate", "tanh")}),
    "leaky_relu": Column(("LeakyReLU",), settings={"negative_slope": Setting("alpha")}),
    **{f"maxpool{n}d": Column((f"MaxPool{n}d",)) for n in (1, 2, 3)},
    **{f"avgpool{n}d": Column((f"AvgPool{n}d",)) for n in (1, 2, 3)},
    **{
        kind: Column((name,))
        for kind, name in {
            "relu": "ReLU", "relu6": "ReLU6", "elu": "ELU", "celu": "CELU", "selu": "SeLU", "silu": "SiLU",
            "mish": "Mish", "sigmoid": "Sigmoid", "hardsigmoid": "HSigmoid", "hardswish": "HSwish", "tanh": "Tanh",
            "softmax": "Softmax", "logsoftmax": "LogSoftmax", "flatten": "Flatten", "identity": "Identity",
        }.items()
    },
}  # fmt: skip
"""Cells of MindSpore, which keep their tensors as torch does, under some other names."""

COLUMNS: Mapping[str, Mapping[str, Column]] = {
    "mindspore": _MINDSPORE,
    "keras": _KERAS,
    "flax": _FLAX,
    "flax.mirrored": _FLAX_MIRRORED,
    "haiku": _HAIKU,
    "equinox": _EQUINOX,
    "onnx": {kind: Column((name,)) for kind, name in _ONNX_OPERATORS.items()},
}
"""By framework and kind."""
