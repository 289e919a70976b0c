"""The table of layer kinds. A new kind of layer, or another framework's form of one, is a row or a column here.

Classes and stored tensors of torch 2.13 and paddle 3.3; tests/layers holds every row against the installed versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reprod_log.layers import probes
from reprod_log.layers.rows import Column, LayerKind, Setting, TensorMap, same
from reprod_log.layers.transform import FLAT, SWAP, THREE, Transform

Settings = Mapping[str, Setting]


def _plain(kind: str, torch: str = "", paddle: str = "", **facts: Any) -> LayerKind:
    """A kind without tensors: the class names of each framework, apart by spaces."""
    settings: Mapping[str, Settings] = facts.pop("settings", {})
    limits: Mapping[str, float] = facts.pop("value_limit", {})
    batch_first = facts.pop("batch_first", {})
    columns = {
        framework: Column(
            tuple(classes.split()),
            settings=settings.get(framework, {}),
            value_limit=limits.get(framework),
            **({"batch_first": batch_first[framework]} if framework in batch_first else {}),
        )
        for framework, classes in (("torch", torch), ("paddle", paddle))
        if classes
    }
    return LayerKind(kind, columns, **facts)


_EPSILON = {"eps": Setting("epsilon")}
_DIM = {"torch": {"axis": Setting("dim")}}
_KSIZE = {"paddle": {"kernel_size": Setting("ksize")}}
_WINDOW = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
_POOL_ADVICE = {"count_include_pad": "advice.setting.count_include_pad"}
_MOMENTUM_ADVICE = {"momentum": "advice.setting.momentum"}

LINEAR = (
    LayerKind(
        "linear",
        {
            "torch": Column(("Linear", "LazyLinear"), same("weight", "bias"), split_input=1),
            # Only paddle.nn stores a linear weight as (in, out). fleet's split layers have pieces of a whole one's.
            "paddle": Column(
                ("Linear", "ColumnParallelLinear", "RowParallelLinear"),
                (TensorMap("weight", ("weight",), SWAP), *same("bias")),
                split_input=0,
                sizes=("in_features", "out_features"),
            ),
            "paddle.compat": Column(("Linear",), same("weight", "bias"), split_input=1),
        },
        row_wise=True,
        probe=probes.ROWS,
    ),
    LayerKind(
        "bilinear",
        {
            "torch": Column(("Bilinear",), same("weight", "bias")),
            # paddle keeps the bias as (1, out).
            "paddle": Column(
                ("Bilinear",), (*same("weight"), TensorMap("bias", ("bias",), Transform(flat=True, lead=1)))
            ),
        },
        probe=probes.TWO_ROWS,
    ),
    LayerKind(
        "embedding",
        {
            "torch": Column(("Embedding",), same("weight"), split_input=0),
            "paddle": Column(("Embedding", "VocabParallelEmbedding"), same("weight"), split_input=0),
        },
        compared=("padding_idx",),
        absent={"padding_idx": None},
        row_wise=True,
        scale_only=True,
        probe=probes.INDICES,
    ),
    LayerKind(
        "embedding_bag",
        {
            "torch": Column(("EmbeddingBag",), same("weight")),
            "paddle": Column(("EmbeddingBag",), same("weight")),
        },
        compared=("mode", "padding_idx"),
        absent={"padding_idx": None},
        scale_only=True,
        probe=probes.INDICES,
    ),
)

# Kernels are stored alike, plain or transposed; only paddle may expect channels last.
_KERNEL = same("weight", "bias")
_CONVOLUTION = ("kernel_size", "stride", "padding", "dilation", "groups", "padding_mode", "output_padding")
CONVOLUTIONS = tuple(
    LayerKind(
        kind,
        {"torch": Column((torch,), _KERNEL), "paddle": Column((paddle, torch), _KERNEL)},
        compared=_CONVOLUTION,
        probe=probe,
    )
    for n in (1, 2, 3)
    for kind, torch, paddle, probe in (
        (f"conv{n}d", f"Conv{n}d", f"Conv{n}D", probes.CONVOLVED),
        (f"conv_transpose{n}d", f"ConvTranspose{n}d", f"Conv{n}DTranspose", probes.CONVOLVED_BACK),
    )
)

_MOVED = (*same("weight", "bias"), *same("running_mean", "running_var", trained=False))
# paddle does not count batches; the count only matters for torch's momentum=None.
_COUNTED = (*_MOVED, *same("num_batches_tracked", optional=True, trained=False))
# Canonical is flat: paddle keeps the weight of several dimensions as one, torch does not.
_FLAT_WEIGHT = TensorMap("weight", ("weight",), FLAT)
_FLAT_AFFINE = (_FLAT_WEIGHT, TensorMap("bias", ("bias",), FLAT))
# torch's momentum is the share of the new value, paddle's the share of the old.
_OLD_SHARE = Setting("momentum", "kept")
NORMS = (
    LayerKind(
        "batchnorm",
        {
            "torch": Column(
                ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"),
                _COUNTED,
                broadcast=True,
            ),
            "paddle": Column(
                ("BatchNorm1D", "BatchNorm2D", "BatchNorm3D", "BatchNorm", "SyncBatchNorm"),
                (
                    *same("weight", "bias"),
                    TensorMap("_mean", ("running_mean",), trained=False),
                    TensorMap("_variance", ("running_var",), trained=False),
                ),
                settings={
                    "eps": Setting("epsilon"),
                    "momentum": Setting("momentum", "kept", float32=True),
                },
            ),
        },
        compared=("eps", "momentum", "use_global_stats"),
        absent={"use_global_stats": False},
        mode=True,
        moving={"running_mean": "momentum", "running_var": "momentum"},
        probe=probes.NORMALIZED_IMAGE,
        advice=_MOMENTUM_ADVICE,
    ),
    LayerKind(
        "layernorm",
        {
            "torch": Column(("LayerNorm",), _FLAT_AFFINE),
            "paddle": Column(("LayerNorm",), _FLAT_AFFINE, settings=_EPSILON),
        },
        compared=("eps", "normalized_shape"),
        row_wise=True,
        spans="normalized_shape",
        probe=probes.NORMALIZED_ROWS,
    ),
    LayerKind(
        "rmsnorm",
        {
            "torch": Column(("RMSNorm",), (_FLAT_WEIGHT,)),
            "paddle": Column(("RMSNorm",), (_FLAT_WEIGHT,), settings=_EPSILON),
        },
        compared=("eps", "normalized_shape"),
        row_wise=True,
        spans="normalized_shape",
        probe=probes.NORMALIZED_ROWS,
    ),
    LayerKind(
        "groupnorm",
        {
            "torch": Column(("GroupNorm",), same("weight", "bias")),
            "paddle": Column(("GroupNorm",), same("weight", "bias"), settings=_EPSILON),
        },
        compared=("eps", "num_groups"),
        probe=probes.NORMALIZED_IMAGE,
    ),
    LayerKind(
        "instancenorm",
        {
            "torch": Column(("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"), _COUNTED),
            "paddle": Column(
                ("InstanceNorm1D", "InstanceNorm2D", "InstanceNorm3D"),
                (TensorMap("scale", ("weight",)), *same("bias")),
                settings={**_EPSILON, "momentum": _OLD_SHARE},
            ),
        },
        compared=("eps", "momentum"),
        probe=probes.NORMALIZED_IMAGE,
        advice=_MOMENTUM_ADVICE,
    ),
    _plain(
        "local_response_norm", "LocalResponseNorm", "LocalResponseNorm", compared=("alpha", "beta", "k"),
    ),
    LayerKind(
        "spectral_norm",
        {
            "paddle": Column(
                ("SpectralNorm",), same("weight_u", "weight_v", trained=False), settings={"axis": Setting("dim")}
            )
        },
        compared=("axis", "eps"),
    ),
)  # fmt: skip

_GATES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_DIRECTIONS = ("", "_reverse")
# The cells' names, not the layer's own: with a projection paddle 3.3.1 gives those to the wrong tensors
# ("weight_ih_l0_reverse" is then the projection of the forward cell).
_CELLS = (("cell", ""), ("cell_fw", ""), ("cell_bw", "_reverse"))
_TORCH_LAYERS = same(*(f"{role}_l{{n}}{end}" for end in _DIRECTIONS for role in (*_GATES, "weight_hr")))
_PADDLE_LAYERS = (
    *(TensorMap(f"{{n}}.{cell}.{role}", (f"{role}_l{{n}}{end}",)) for cell, end in _CELLS for role in _GATES),
    *(TensorMap(f"{{n}}.{cell}.weight_ho", (f"weight_hr_l{{n}}{end}",), SWAP) for cell, end in _CELLS),
)
_PADDLE_SECOND_NAMES = same(*(f"{role}_l{{n}}{end}" for end in _DIRECTIONS for role in _GATES))
_SEQUENCE = ("output", "output.0", "input.0")
# Gate orders agree (i f g o, r z n); names and the projection's layout do not.
RECURRENT = (
    *(
        LayerKind(
            kind,
            {
                "torch": Column((torch,), _TORCH_LAYERS, batch_first="batch_first"),
                "paddle": Column(
                    (paddle,),
                    _PADDLE_LAYERS,
                    _PADDLE_SECOND_NAMES,
                    batch_first="not time_major",
                    scratch=("_dropout_state",),
                ),
            },
            compared=("num_layers", "dropout", "mode"),
            sequence=_SEQUENCE,
            states=True,
            probe=probes.SEQUENCE,
        )
        for kind, torch, paddle in (("rnn", "RNN", "SimpleRNN"), ("lstm", "LSTM", "LSTM"), ("gru", "GRU", "GRU"))
    ),
    *(
        LayerKind(
            kind,
            {
                "torch": Column((torch,), same(*_GATES)),
                "paddle": Column(
                    (paddle,),
                    (*same(*_GATES), TensorMap("weight_ho", ("weight_hr",), SWAP)),
                    settings={"nonlinearity": Setting("activation")},
                ),
            },
            compared=("nonlinearity",),
            output="state",
            probe=probes.STEP,
        )
        for kind, torch, paddle in (
            ("rnn_cell", "RNNCell", "SimpleRNNCell"),
            ("lstm_cell", "LSTMCell", "LSTMCell"),
            ("gru_cell", "GRUCell", "GRUCell"),
        )
    ),
)

_QKV = ("q", "k", "v")
# One packed matrix for queries, keys and values, or three where their widths differ.
_PACKED = (
    TensorMap("in_proj_weight", tuple(f"{x}.weight" for x in _QKV), THREE),
    TensorMap("in_proj_bias", tuple(f"{x}.bias" for x in _QKV), THREE),
    *(TensorMap(f"{x}_proj_{part}", (f"{x}.{part}",)) for part in ("weight", "bias") for x in _QKV),
    TensorMap("out_proj.weight", ("out.weight",)),
    TensorMap("out_proj.bias", ("out.bias",)),
    *same("bias_k", "bias_v"),
)
_FOUR_LINEAR = (
    *(TensorMap(f"{x}_proj.weight", (f"{x}.weight",), SWAP) for x in (*_QKV, "out")),
    *(TensorMap(f"{x}_proj.bias", (f"{x}.bias",)) for x in (*_QKV, "out")),
)
_TRANSFORMER: Mapping[str, Any] = {
    "sequence": _SEQUENCE,
    "batch_first": {"paddle": "always"},
    "settings": {"paddle": {"norm_first": Setting("normalize_before")}},
}
ATTENTION = (
    LayerKind(
        "multihead_attention",
        {
            "torch": Column(("MultiheadAttention",), _PACKED),
            "paddle": Column(("MultiHeadAttention",), _FOUR_LINEAR, batch_first="always"),
            "paddle.compat": Column(("MultiheadAttention",), _PACKED),
        },
        compared=("num_heads", "dropout"),
        sequence=(*_SEQUENCE, "input.1", "input.2", "input.query", "input.key", "input.value"),
        output="first",
        probe=probes.ATTENDED,
    ),
    _plain("transformer", "Transformer", "Transformer", **_TRANSFORMER),
    _plain("transformer_encoder", "TransformerEncoder", "TransformerEncoder", compared=("num_layers",), **_TRANSFORMER),
    _plain("transformer_decoder", "TransformerDecoder", "TransformerDecoder", compared=("num_layers",), **_TRANSFORMER),
    _plain(
        "transformer_encoder_layer", "TransformerEncoderLayer", "TransformerEncoderLayer",
        compared=("norm_first",), **_TRANSFORMER,
    ),
    _plain(
        "transformer_decoder_layer", "TransformerDecoderLayer", "TransformerDecoderLayer",
        compared=("norm_first",), **_TRANSFORMER,
    ),
)  # fmt: skip

DROPOUTS = (
    _plain(
        "dropout", "Dropout", "Dropout", compared=("p", "mode"), absent={"mode": "upscale_in_train"},
        row_wise=True, mode=True,
    ),
    _plain("dropout1d", "Dropout1d", compared=("p",), mode=True),
    _plain("dropout2d", "Dropout2d", "Dropout2D", compared=("p",), mode=True),
    _plain("dropout3d", "Dropout3d", "Dropout3D", compared=("p",), mode=True),
    _plain("alpha_dropout", "AlphaDropout", "AlphaDropout", compared=("p",), mode=True),
)  # fmt: skip

_MIN_MAX = {"min_val": Setting("min"), "max_val": Setting("max")}
_LOGITS = {"value_limit": {"paddle": 64.0}}
ACTIVATIONS = (
    _plain("relu", "ReLU", "ReLU", row_wise=True, kinked=True),
    _plain("relu6", "ReLU6", "ReLU6", compared=("min_val", "max_val"), row_wise=True, kinked=True),
    _plain("leaky_relu", "LeakyReLU", "LeakyReLU", compared=("negative_slope",), row_wise=True, kinked=True),
    LayerKind(
        "prelu",
        {
            "torch": Column(("PReLU",), same("weight")),
            # The name changed between paddle versions.
            "paddle": Column(("PReLU",), (TensorMap("_weight", ("weight",)), TensorMap("weight", ("weight",)))),
        },
        kinked=True,
        probe=probes.IMAGE,
    ),
    _plain("rrelu", "RReLU", "RReLU"),
    _plain("elu", "ELU", "ELU", compared=("alpha",), row_wise=True),
    _plain("celu", "CELU", "CELU", compared=("alpha",), row_wise=True),
    _plain("selu", "SELU", "SELU", compared=("alpha",), row_wise=True),
    _plain(
        "gelu", "GELU", "GELU", compared=("approximate",), row_wise=True,
        settings={"torch": {"approximate": Setting("approximate", "tanh")}},
        advice={"approximate": "advice.setting.approximate"},
    ),
    _plain("glu", "GLU", "GLU", compared=("axis",), settings=_DIM),
    _plain("silu", "SiLU", "Silu SiLU Swish", row_wise=True),
    _plain("mish", "Mish", "Mish", row_wise=True),
    _plain("sigmoid", "Sigmoid", "Sigmoid", row_wise=True),
    _plain("logsigmoid", "LogSigmoid", "LogSigmoid", row_wise=True),
    _plain("hardsigmoid", "Hardsigmoid", "Hardsigmoid", row_wise=True, kinked=True),
    _plain("hardswish", "Hardswish", "Hardswish", row_wise=True, kinked=True),
    _plain(
        "hardtanh", "Hardtanh", "Hardtanh", compared=("min_val", "max_val"), settings={"paddle": _MIN_MAX},
        row_wise=True, kinked=True,
    ),
    _plain(
        "hardshrink", "Hardshrink", "Hardshrink", compared=("lambd",),
        settings={"paddle": {"lambd": Setting("threshold")}},
    ),
    _plain(
        "softshrink", "Softshrink", "Softshrink", compared=("lambd",),
        settings={"paddle": {"lambd": Setting("threshold")}},
    ),
    _plain("tanhshrink", "Tanhshrink", "Tanhshrink"),
    _plain("tanh", "Tanh", "Tanh", row_wise=True),
    _plain("threshold", "Threshold", compared=("threshold", "value")),
    _plain("thresholded_relu", "", "ThresholdedReLU", compared=("threshold", "value")),
    _plain("softplus", "Softplus", "Softplus", compared=("beta", "threshold"), row_wise=True),
    _plain("softsign", "Softsign", "Softsign", row_wise=True),
    _plain("softmax", "Softmax", "Softmax", compared=("axis",), settings=_DIM, **_LOGITS),
    _plain("softmax2d", "Softmax2d", "Softmax2D", **_LOGITS),
    _plain("logsoftmax", "LogSoftmax", "LogSoftmax", compared=("axis",), settings=_DIM, **_LOGITS),
)  # fmt: skip

_NOT_EXCLUSIVE = {"count_include_pad": Setting("exclusive", "not")}
POOLS = (
    *(
        row
        for n, ksize in ((1, {}), (2, {"kernel_size": Setting("ksize")}), (3, {"kernel_size": Setting("ksize")}))
        for row in (
            _plain(
                f"maxpool{n}d", f"MaxPool{n}d", f"MaxPool{n}D", compared=_WINDOW,
                settings={"paddle": ksize},
            ),
            _plain(
                f"avgpool{n}d", f"AvgPool{n}d", f"AvgPool{n}D", compared=(*_WINDOW, "count_include_pad"),
                settings={"paddle": {**ksize, **_NOT_EXCLUSIVE}}, advice=_POOL_ADVICE,
            ),
            _plain(
                f"maxunpool{n}d", f"MaxUnpool{n}d", f"MaxUnPool{n}D", compared=("kernel_size", "stride", "padding"),
                settings=_KSIZE,
            ),
            _plain(
                f"adaptive_avgpool{n}d", f"AdaptiveAvgPool{n}d", f"AdaptiveAvgPool{n}D", compared=("output_size",)
            ),
            _plain(
                f"adaptive_maxpool{n}d", f"AdaptiveMaxPool{n}d", f"AdaptiveMaxPool{n}D", compared=("output_size",)
            ),
        )
    ),
    _plain("lppool1d", "LPPool1d", "LPPool1D", compared=("kernel_size", "stride", "padding", "ceil_mode")),
    _plain(
        "lppool2d", "LPPool2d", "LPPool2D", compared=("kernel_size", "stride", "padding", "ceil_mode"),
        settings=_KSIZE,
    ),
)  # fmt: skip

PADS = tuple(
    row
    for n in (1, 2, 3)
    for row in (
        _plain(
            f"pad{n}d",
            " ".join(f"{how}Pad{n}d" for how in ("Constant", "Reflection", "Replication", "Circular")),
            " ".join(f"{how}Pad{n}D" for how in ("Constant", "Reflection", "Replication", "Circular", "")),
            compared=("padding", "value", "mode"),
        ),
        _plain(f"zero_pad{n}d", f"ZeroPad{n}d", f"ZeroPad{n}D", compared=("padding", "value", "mode")),
    )
)

SHAPES = (
    _plain("identity", "Identity", "Identity", row_wise=True),
    _plain(
        "flatten", "Flatten", "Flatten", compared=("start_axis", "stop_axis"),
        settings={"torch": {"start_axis": Setting("start_dim"), "stop_axis": Setting("end_dim")}},
    ),
    _plain("unflatten", "Unflatten", "Unflatten", compared=("axis",), settings=_DIM),
    _plain("fold", "Fold", "Fold", compared=("output_size", "kernel_size", "stride", "padding", "dilation")),
    _plain("unfold", "Unfold", "Unfold", compared=("kernel_size", "stride", "padding", "dilation")),
    _plain(
        "upsample", "Upsample UpsamplingNearest2d UpsamplingBilinear2d",
        "Upsample UpsamplingNearest2D UpsamplingBilinear2D",
        compared=("scale_factor", "mode", "align_corners"), absent={"align_corners": False},
    ),
    _plain("pixel_shuffle", "PixelShuffle", "PixelShuffle", compared=("upscale_factor",)),
    _plain("pixel_unshuffle", "PixelUnshuffle", "PixelUnshuffle"),
    _plain("channel_shuffle", "ChannelShuffle", "ChannelShuffle", compared=("groups",)),
    _plain("cosine_similarity", "CosineSimilarity", "CosineSimilarity", compared=("axis", "eps"), settings=_DIM),
    _plain(
        "pairwise_distance", "PairwiseDistance", "PairwiseDistance", compared=("eps", "p"),
        settings={"paddle": _EPSILON},
    ),
)  # fmt: skip

_CLASSES = ("reduction", "ignore_index")
LOSSES = (
    _plain("l1_loss", "L1Loss", "L1Loss", compared=("reduction",)),
    _plain("mse_loss", "MSELoss", "MSELoss", compared=("reduction",)),
    _plain("smooth_l1_loss", "SmoothL1Loss", "SmoothL1Loss", compared=("reduction", "beta", "delta")),
    _plain("huber_loss", "HuberLoss", "HuberLoss", compared=("reduction", "delta")),
    _plain(
        "cross_entropy_loss", "CrossEntropyLoss", "CrossEntropyLoss",
        compared=(*_CLASSES, "label_smoothing", "axis"), **_LOGITS,
    ),
    _plain("nll_loss", "NLLLoss", "NLLLoss", compared=_CLASSES),
    _plain("bce_loss", "BCELoss", "BCELoss", compared=("reduction",)),
    _plain("bce_with_logits_loss", "BCEWithLogitsLoss", "BCEWithLogitsLoss", compared=("reduction",)),
    _plain("kl_div_loss", "KLDivLoss", "KLDivLoss", compared=("reduction",)),
    _plain("ctc_loss", "CTCLoss", "CTCLoss", compared=("reduction",)),
    _plain("margin_ranking_loss", "MarginRankingLoss", "MarginRankingLoss", compared=("reduction",)),
    _plain(
        "triplet_margin_loss", "TripletMarginLoss", "TripletMarginLoss", compared=("reduction", "p", "eps"),
        settings={"paddle": _EPSILON},
    ),
    _plain("cosine_embedding_loss", "CosineEmbeddingLoss", "CosineEmbeddingLoss", compared=("reduction",)),
    _plain("hinge_embedding_loss", "HingeEmbeddingLoss", "HingeEmbeddingLoss", compared=("reduction",)),
)  # fmt: skip

KINDS: tuple[LayerKind, ...] = (
    *LINEAR, *CONVOLUTIONS, *NORMS, *RECURRENT, *ATTENTION, *DROPOUTS, *ACTIVATIONS, *POOLS, *PADS, *SHAPES, *LOSSES,
)  # fmt: skip
