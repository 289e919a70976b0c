"""Losses that are computed, weighted or scaled in another way."""

import paddle.nn.functional as PF

from zoo.bases import cnn, gan, lstm, mlp
from zoo.plants import loss, step
from zoo.trial import Mistake


def of_probabilities(outputs, targets):
    return PF.cross_entropy(PF.softmax(outputs), targets)


def of_smoothed_labels(outputs, targets):
    return PF.cross_entropy(outputs, targets, label_smoothing=0.1)


def half(outputs, targets):
    return 0.5 * lstm.paddle_loss(outputs, targets)


def squared_errors_added_up(outputs, targets):
    return PF.mse_loss(outputs, targets, reduction="sum")


def added_up(outputs, targets):
    return PF.cross_entropy(outputs, targets, reduction="sum")


def huber(outputs, targets):
    return PF.smooth_l1_loss(outputs, targets)


def step_of_another_weight(models, optimizers, inputs, targets):
    gan.paddle_step(models, optimizers, inputs, targets, scale=0.5)


def step_that_is_never_unscaled(model, optimizer, inputs, targets):
    value = cnn.paddle_loss(model(**inputs), targets)
    (value * 8).backward()
    optimizer.step()
    optimizer.clear_grad()


PLACE = ("loss/loss", "backward", "gradient")

MISTAKES = (
    # Softmax before a loss that has its own.
    Mistake("double_softmax", cnn.trial, loss(of_probabilities), ("loss_function",), ("softmax",), PLACE),
    # One term of the loss has another weight.
    Mistake(
        "gan_term_weight", gan.trial, step(step_of_another_weight),
        ("loss_function",), ("different weight",), ("loss", "backward", "gradient"),
    ),
    Mistake("label_smoothing", cnn.trial, loss(of_smoothed_labels), ("loss_function",), ("smoothing",), PLACE),
    Mistake("loss_halved", lstm.trial, loss(half), ("loss_scale",), ("0.5",), PLACE),
    # Squared errors summed over the outputs.
    Mistake("loss_mse_sum", mlp.trial, loss(squared_errors_added_up), ("loss_scale",), ("sum",), PLACE),
    # A sum in place of a mean.
    Mistake("loss_sum", cnn.trial, loss(added_up), ("loss_scale",), ("sum",), PLACE, quick=True),
    # The loss is scaled by 8 for the backward pass and never unscaled.
    Mistake("scaler_not_undone", cnn.trial, step(step_that_is_never_unscaled), ("loss_scale",), ("8",), PLACE),
    # Huber in place of the squared error.
    Mistake("smooth_l1", mlp.trial, loss(huber), ("loss_function",), ("another loss",), PLACE),
)  # fmt: skip
