"""Pairs of layers with equal settings and inputs to run them on, written by hand and not by the rules under test."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import torch
from paddle import nn as pn
from torch import nn as tn

Arrays = tuple[Any, ...]


@dataclass(frozen=True)
class LayerCase:
    """`call_torch` and `call_paddle` run a layer on tensors and return comparable output tensors."""

    kind: str
    build_torch: Callable[[], Any]
    build_paddle: Callable[[], Any]
    inputs: Callable[[np.random.Generator], Arrays]
    call_torch: Callable[..., list[Any]]
    call_paddle: Callable[..., list[Any]]


def plain(layer: Any, *x: Any) -> list[Any]:
    return [layer(*x)]


def case(
    kind: str,
    build_torch: Callable[[], Any],
    build_paddle: Callable[[], Any],
    *shapes: tuple[int, ...],
    call_torch: Callable[..., list[Any]] = plain,
    call_paddle: Callable[..., list[Any]] = plain,
) -> LayerCase:
    return LayerCase(
        kind,
        build_torch,
        build_paddle,
        lambda random: tuple(random.standard_normal(shape).astype(np.float32) for shape in shapes),
        call_torch,
        call_paddle,
    )


def indices(kind: str, build_torch: Callable[[], Any], build_paddle: Callable[[], Any]) -> LayerCase:
    return LayerCase(kind, build_torch, build_paddle, lambda random: (random.integers(0, 6, (2, 4)),), plain, plain)


def recurrent_torch(layer: Any, x: Any) -> list[Any]:
    sequence, states = layer(x if layer.batch_first else x.transpose(0, 1))
    sequence = sequence if layer.batch_first else sequence.transpose(0, 1)
    return [sequence, *(states if isinstance(states, tuple) else (states,))]


def recurrent_paddle(layer: Any, x: Any) -> list[Any]:
    x = x.transpose([1, 0, 2]) if layer.time_major else x
    sequence, states = layer(x)
    sequence = sequence.transpose([1, 0, 2]) if layer.time_major else sequence
    return [sequence, *(states if isinstance(states, (tuple, list)) else (states,))]


def lstm_cell_torch(layer: Any, x: Any, h: Any, c: Any) -> list[Any]:
    return list(layer(x, (h, c)))


def lstm_cell_paddle(layer: Any, x: Any, h: Any, c: Any) -> list[Any]:
    return list(layer(x, (h, c))[1])


def cell_paddle(layer: Any, x: Any, h: Any) -> list[Any]:
    return [layer(x, h)[0]]


def attention_torch(layer: Any, q: Any, k: Any, v: Any) -> list[Any]:
    if layer.batch_first:
        return [layer(q, k, v)[0]]
    return [layer(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1))[0].transpose(0, 1)]


def attention_compat(layer: Any, q: Any, k: Any, v: Any) -> list[Any]:
    first, second, third = (x.transpose([1, 0, 2]) for x in (q, k, v))
    return [layer(first, second, third)[0].transpose([1, 0, 2])]


def channels_last(layer: Any, x: Any) -> list[Any]:
    return [layer(x.transpose([0, 2, 3, 1])).transpose([0, 3, 1, 2])]


def normed_torch(layer: Any) -> Any:
    with torch.no_grad():
        for _ in range(2):
            layer.train()(
                torch.randn(8, 4, *[5] * int(type(layer).__name__[-2]))
            ) if layer.track_running_stats else None
    return layer


class ScaledLinearTorch(tn.Linear):
    """A user's own descendant of a known layer."""


class ScaledLinearPaddle(pn.Linear):
    """A user's own descendant of a known layer."""


def recurrent(kind: str, paddle_name: str, *, layers: int = 1, both: bool = False, **more: Any) -> LayerCase:
    batch_first = more.pop("batch_first", True)
    direction = "bidirect" if both else "forward"
    return case(
        kind,
        lambda: getattr(tn, kind)(3, 4, layers, bidirectional=both, batch_first=batch_first, **more),
        lambda: getattr(pn, paddle_name)(3, 4, layers, direction=direction, **more),
        (2, 5, 3),
        call_torch=recurrent_torch,
        call_paddle=recurrent_paddle,
    )


QKV = ((2, 4, 8), (2, 5, 8), (2, 5, 8))
OTHER_QKV = ((2, 4, 8), (2, 5, 6), (2, 5, 4))

CASES = {
    "linear": case("Linear", lambda: tn.Linear(3, 5), lambda: pn.Linear(3, 5), (4, 3)),
    "linear square": case("Linear", lambda: tn.Linear(4, 4), lambda: pn.Linear(4, 4), (3, 4)),
    "linear without bias": case(
        "Linear", lambda: tn.Linear(4, 4, bias=False), lambda: pn.Linear(4, 4, bias_attr=False), (3, 4)
    ),
    "linear of compat": case("Linear", lambda: tn.Linear(4, 4), lambda: paddle.compat.nn.Linear(4, 4), (3, 4)),
    "linear of one's own": case("Linear", lambda: ScaledLinearTorch(4, 4), lambda: ScaledLinearPaddle(4, 4), (3, 4)),
    "bilinear": case("Bilinear", lambda: tn.Bilinear(3, 4, 5), lambda: pn.Bilinear(3, 4, 5), (2, 3), (2, 4)),
    "conv1d": case("Conv1d", lambda: tn.Conv1d(4, 6, 3, groups=2), lambda: pn.Conv1D(4, 6, 3, groups=2), (2, 4, 9)),
    "conv2d": case(
        "Conv2d",
        lambda: tn.Conv2d(4, 6, 3, stride=2, padding=1, dilation=2),
        lambda: pn.Conv2D(4, 6, 3, stride=2, padding=1, dilation=2),
        (2, 4, 9, 9),
    ),
    "conv2d reflecting": case(
        "Conv2d",
        lambda: tn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"),
        lambda: pn.Conv2D(4, 6, 3, padding=1, padding_mode="reflect"),
        (2, 4, 7, 7),
    ),
    "conv2d channels last": case(
        "Conv2d",
        lambda: tn.Conv2d(4, 6, 3, padding=1),
        lambda: pn.Conv2D(4, 6, 3, padding=1, data_format="NHWC"),
        (2, 4, 6, 7),
        call_paddle=channels_last,
    ),
    "conv3d": case("Conv3d", lambda: tn.Conv3d(2, 3, 2), lambda: pn.Conv3D(2, 3, 2), (1, 2, 4, 4, 4)),
    "conv_transpose1d": case(
        "ConvTranspose1d", lambda: tn.ConvTranspose1d(4, 6, 3), lambda: pn.Conv1DTranspose(4, 6, 3), (2, 4, 5)
    ),
    "conv_transpose2d": case(
        "ConvTranspose2d",
        lambda: tn.ConvTranspose2d(4, 6, 3, stride=2, groups=2, output_padding=1),
        lambda: pn.Conv2DTranspose(4, 6, 3, stride=2, groups=2, output_padding=1),
        (2, 4, 5, 5),
    ),
    "conv_transpose3d": case(
        "ConvTranspose3d", lambda: tn.ConvTranspose3d(2, 3, 2), lambda: pn.Conv3DTranspose(2, 3, 2), (1, 2, 3, 3, 3)
    ),
    "batch_norm1d": case("BatchNorm", lambda: normed_torch(tn.BatchNorm1d(4)), lambda: pn.BatchNorm1D(4), (3, 4, 5)),
    "batch_norm2d": case("BatchNorm", lambda: normed_torch(tn.BatchNorm2d(4)), lambda: pn.BatchNorm2D(4), (3, 4, 5, 5)),
    "batch_norm3d": case(
        "BatchNorm", lambda: normed_torch(tn.BatchNorm3d(4)), lambda: pn.BatchNorm3D(4), (3, 4, 2, 2, 2)
    ),
    "batch_norm plain": case(
        "BatchNorm",
        lambda: normed_torch(tn.BatchNorm2d(4, affine=False)),
        lambda: pn.BatchNorm2D(4, weight_attr=False, bias_attr=False),
        (3, 4, 5, 5),
    ),
    "layer_norm": case("LayerNorm", lambda: tn.LayerNorm(6), lambda: pn.LayerNorm(6), (3, 6)),
    "layer_norm of two": case("LayerNorm", lambda: tn.LayerNorm([3, 4]), lambda: pn.LayerNorm([3, 4]), (2, 3, 4)),
    "group_norm": case("GroupNorm", lambda: tn.GroupNorm(2, 4), lambda: pn.GroupNorm(2, 4), (2, 4, 5, 5)),
    "instance_norm1d": case(
        "InstanceNorm", lambda: tn.InstanceNorm1d(4, affine=True), lambda: pn.InstanceNorm1D(4), (2, 4, 5)
    ),
    "instance_norm2d": case(
        "InstanceNorm", lambda: tn.InstanceNorm2d(4, affine=True), lambda: pn.InstanceNorm2D(4), (2, 4, 5, 5)
    ),
    "instance_norm3d": case(
        "InstanceNorm", lambda: tn.InstanceNorm3d(4, affine=True), lambda: pn.InstanceNorm3D(4), (2, 4, 3, 3, 3)
    ),
    "embedding": indices("Embedding", lambda: tn.Embedding(6, 3), lambda: pn.Embedding(6, 3)),
    "embedding padded": indices(
        "Embedding", lambda: tn.Embedding(6, 3, padding_idx=0), lambda: pn.Embedding(6, 3, padding_idx=0)
    ),
    "prelu": case("PReLU", lambda: tn.PReLU(4), lambda: pn.PReLU(4), (2, 4, 3, 3)),
    "prelu of one": case("PReLU", lambda: tn.PReLU(), lambda: pn.PReLU(), (2, 4, 3, 3)),
    "rnn": recurrent("RNN", "SimpleRNN", layers=2, both=True),
    "lstm": recurrent("LSTM", "LSTM"),
    "lstm deep": recurrent("LSTM", "LSTM", layers=2, both=True, batch_first=False),
    "lstm projected": recurrent("LSTM", "LSTM", layers=2, both=True, proj_size=2),
    "gru": recurrent("GRU", "GRU", layers=2, both=True),
    "rnn_cell": case(
        "RNNCell", lambda: tn.RNNCell(3, 4), lambda: pn.SimpleRNNCell(3, 4), (2, 3), (2, 4), call_paddle=cell_paddle
    ),
    "lstm_cell": case(
        "LSTMCell",
        lambda: tn.LSTMCell(3, 4),
        lambda: pn.LSTMCell(3, 4),
        (2, 3),
        (2, 4),
        (2, 4),
        call_torch=lstm_cell_torch,
        call_paddle=lstm_cell_paddle,
    ),
    "gru_cell": case(
        "GRUCell", lambda: tn.GRUCell(3, 4), lambda: pn.GRUCell(3, 4), (2, 3), (2, 4), call_paddle=cell_paddle
    ),
    "attention": case(
        "MultiheadAttention",
        lambda: tn.MultiheadAttention(8, 2),
        lambda: pn.MultiHeadAttention(8, 2),
        *QKV,
        call_torch=attention_torch,
    ),
    "attention without bias": case(
        "MultiheadAttention",
        lambda: tn.MultiheadAttention(8, 2, bias=False, batch_first=True),
        lambda: pn.MultiHeadAttention(8, 2, bias_attr=False),
        *QKV,
        call_torch=attention_torch,
    ),
    "attention of other widths": case(
        "MultiheadAttention",
        lambda: tn.MultiheadAttention(8, 2, kdim=6, vdim=4, batch_first=True),
        lambda: pn.MultiHeadAttention(8, 2, kdim=6, vdim=4),
        *OTHER_QKV,
        call_torch=attention_torch,
    ),
    "attention of compat": case(
        "MultiheadAttention",
        lambda: tn.MultiheadAttention(8, 2),
        lambda: paddle.compat.nn.MultiheadAttention(8, 2),
        *QKV,
        call_torch=attention_torch,
        call_paddle=attention_compat,
    ),
    "attention of compat, other widths": case(
        "MultiheadAttention",
        lambda: tn.MultiheadAttention(8, 2, kdim=6, vdim=4),
        lambda: paddle.compat.nn.MultiheadAttention(8, 2, kdim=6, vdim=4),
        *OTHER_QKV,
        call_torch=attention_torch,
        call_paddle=attention_compat,
    ),
    "weight norm": case(
        "Linear",
        lambda: tn.utils.parametrizations.weight_norm(tn.Linear(3, 4)),
        lambda: pn.utils.weight_norm(pn.Linear(3, 4), dim=1),
        (2, 3),
    ),
    "weight norm by hook": case(
        "Conv2d",
        lambda: tn.utils.weight_norm(tn.Conv2d(3, 4, 2)),
        lambda: pn.utils.weight_norm(pn.Conv2D(3, 4, 2)),
        (2, 3, 4, 4),
    ),
    "weight norm over all axes": case(
        "Conv2d",
        lambda: tn.utils.parametrizations.weight_norm(tn.Conv2d(3, 4, 2), dim=None),
        lambda: pn.utils.weight_norm(pn.Conv2D(3, 4, 2), dim=None),
        (2, 3, 4, 4),
    ),
    "spectral norm": case(
        "Linear",
        lambda: tn.utils.parametrizations.spectral_norm(tn.Linear(3, 4)),
        lambda: pn.utils.spectral_norm(pn.Linear(3, 4)),
        (2, 3),
    ),
    "spectral norm by hook": case(
        "Conv2d",
        lambda: tn.utils.spectral_norm(tn.Conv2d(3, 4, 2)),
        lambda: pn.utils.spectral_norm(pn.Conv2D(3, 4, 2)),
        (2, 3, 4, 4),
    ),
}
