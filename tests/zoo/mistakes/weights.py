"""Weights that were carried over wrongly, not at all, or not shared."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import paddle
import torch

from reprod_log.transfer import transfer_weights
from zoo.bases import bert, cnn, gan, lstm, mlp, unet
from zoo.plants import setting, weight
from zoo.trial import Mistake, Trial, change_weight


class Shared(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(size, size), torch.nn.Linear(size, size)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


class Apart(paddle.nn.Layer):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.second = paddle.nn.Linear(size, size), paddle.nn.Linear(size, size)

    def forward(self, x):
        return self.second(paddle.tanh(self.first(x)))


def untie(trial: Trial) -> Trial:
    """Two layers that share their weight in the reference, and do not in the port."""
    size = trial.inputs[0]["x"].shape[-1]
    ours, theirs = Shared(size), Apart(size)
    transfer_weights(ours, theirs)
    theirs.second.weight.set_value(theirs.first.weight.numpy())
    losses = (lambda out, _: (out * out).mean(), lambda out, _: (out * out).mean())
    return replace(trial, reference=ours, candidate=theirs, loss=losses)


def exchange_query_and_key(trial: Trial) -> None:
    layer = trial.candidate.layers[0]
    query, key = layer.query.weight.numpy(), layer.key.weight.numpy()
    layer.query.weight.set_value(key)
    layer.key.weight.set_value(query)


def round_all(trial: Trial) -> None:
    for parameter in trial.candidate.parameters():
        change_weight(parameter, lambda w: w.astype(ml_dtypes.bfloat16).astype(np.float32))


def gates_in_another_order(w):
    return np.concatenate([w[12:24], w[:12], w[24:]])


def other_numbers(w):
    return np.random.default_rng(0).normal(size=w.shape) * 0.2


WEIGHTS = ("weights",)

MISTAKES = (
    Mistake(
        "bias_missing", cnn.trial, setting("fc1", bias=None), ("missing_parameter",), ("bias",), ("fc1",)
    ),
    # A bias that was never loaded and is zero.
    Mistake("bias_zero", mlp.trial, weight("body.bias", lambda w: w * 0), WEIGHTS, ("zero",), ("second",)),
    # A kernel flipped in space.
    Mistake(
        "conv_flipped", unet.trial, weight("fuse.weight", lambda w: w[:, :, ::-1, ::-1]),
        WEIGHTS, ("flipped",), ("fuse",),
    ),
    # A layer of the discriminator with its numbers in another order.
    Mistake(
        "gan_weights_twice", gan.trial, weight("discriminator.2.weight", lambda w: w[::-1]),
        WEIGHTS, ("order",), ("discriminator",),
    ),
    Mistake(
        "head_untied", mlp.trial, untie,
        ("tied_weights",), ("first.weight in place of second.weight",), ("first.weight", "second.weight"),
    ),
    # Gates of the LSTM in another order.
    Mistake(
        "lstm_gates", lstm.trial, weight("lstm.0.cell.weight_ih", gates_in_another_order),
        WEIGHTS, ("order",), ("lstm",),
    ),
    # PReLU's slope not loaded.
    Mistake(
        "prelu_slope", unet.trial, weight("prelu._weight", lambda w: w * 0 + 0.1),
        WEIGHTS, ("times", "not loaded"), ("prelu",),
    ),
    # One weight went through float16.
    Mistake(
        "weight_float16", lstm.trial, weight("mid.weight", lambda w: w.astype(np.float16)),
        WEIGHTS, ("float16",), ("mid",),
    ),
    # One layer that was not loaded.
    Mistake("weight_not_loaded", cnn.trial, weight("fc2.weight", other_numbers), WEIGHTS, ("not loaded",), ("fc2",)),
    # An embedding multiplied by sqrt(width).
    Mistake(
        "weight_scaled", bert.trial, weight("places.weight", lambda w: w * 4.0), WEIGHTS, ("times",), ("places",)
    ),
    # A square weight that was not transposed.
    Mistake(
        "weight_transposed", cnn.trial, weight("square.weight", lambda w: w.T),
        WEIGHTS, ("order",), ("square",), quick=True,
    ),
    # All weights went through bfloat16.
    Mistake("weights_bfloat16", unet.trial, round_all, WEIGHTS, ("bfloat16",), ("stem",)),
    Mistake(
        "weights_swapped", bert.trial, exchange_query_and_key,
        WEIGHTS, ("swapped",), ("layers.0.query", "layers.0.key"),
    ),
)  # fmt: skip
