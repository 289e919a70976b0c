"""Optimizers with another setting, rule, clipping or choice of parameters."""

from dataclasses import replace

import paddle
import torch

from zoo.bases import bert, cnn, gan, lstm, mlp, unet
from zoo.plants import optimizer
from zoo.trial import Mistake, Plant, Trial

EPS, BETAS = 1e-4, (0.9, 0.999)


class OldAdam(torch.optim.Optimizer):
    """Adam whose epsilon is added before the bias correction, as old libraries have it."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 2e-3, "betas": BETAS, "eps": EPS})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state.update(count=0, mean=torch.zeros_like(parameter), square=torch.zeros_like(parameter))
                state["count"] += 1
                state["mean"].lerp_(parameter.grad, 1 - BETAS[0])
                state["square"].lerp_(parameter.grad**2, 1 - BETAS[1])
                rate = group["lr"] * (1 - BETAS[1] ** state["count"]) ** 0.5 / (1 - BETAS[0] ** state["count"])
                parameter.addcdiv_(state["mean"], state["square"].sqrt() + group["eps"], value=-rate)


def old_reference(trial: Trial) -> Trial:
    return replace(
        trial,
        optimizer=(
            lambda model: OldAdam(model.parameters()),
            lambda model: unet.paddle_optimizer(model, epsilon=EPS),
        ),
    )


def rmsprop(model):
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(0.5, 12)
    return paddle.optimizer.RMSProp(schedule, parameters=model.parameters()), schedule


def all_but_one(model):
    chosen = [parameter for parameter in model.parameters() if parameter is not model.square.weight]
    return cnn.paddle_optimizer(model, parameters=chosen)


def own_rate(trial: Trial) -> None:
    trial.candidate.conv2.weight.optimize_attr["learning_rate"] = 0.1


def clip(make, kind, limit: float) -> Plant:
    """Gradients clipped in another way."""
    return optimizer(lambda model: make(model, grad_clip=kind(limit)))


SETTING = ("optimizer_setting",)
UPDATE = ("update", "optimizer/", "parameter")

MISTAKES = (
    Mistake("adam_beta1", lstm.trial, optimizer(lstm.paddle_optimizer, beta1=0.9), SETTING, ("beta1",), UPDATE),
    Mistake("adam_beta2", bert.trial, optimizer(bert.paddle_optimizer, beta2=0.999), SETTING, ("beta2",), UPDATE),
    Mistake("adam_eps", bert.trial, optimizer(bert.paddle_optimizer, epsilon=1e-8), SETTING, ("eps",), UPDATE),
    Mistake(
        "adam_eps_before_correction", unet.trial, old_reference,
        SETTING, ("before the bias correction",), UPDATE,
    ),
    # Adam with L2 in place of AdamW.
    Mistake(
        "adam_for_adamw", bert.trial, optimizer(bert.paddle_optimizer, kind=paddle.optimizer.Adam),
        ("update_fit",), ("coupled",), UPDATE,
    ),
    Mistake(
        "adam_l2_missing", lstm.trial, optimizer(lstm.paddle_optimizer, weight_decay=None), SETTING, ("decay",), UPDATE
    ),
    Mistake(
        "clip_by_value", cnn.trial, clip(cnn.paddle_optimizer, paddle.nn.ClipGradByValue, 0.05),
        ("clipping",), ("by value",), ("clip",),
    ),
    Mistake(
        "clip_missing", cnn.trial, optimizer(cnn.paddle_optimizer, grad_clip=None),
        ("clipping",), ("no clipping",), ("clip", "update"), quick=True,
    ),
    # Clipped at another norm.
    Mistake(
        "clip_other_norm", bert.trial, clip(bert.paddle_optimizer, paddle.nn.ClipGradByGlobalNorm, 0.25),
        ("clipping",), ("global norm",), ("clip",),
    ),
    # Each tensor clipped by itself.
    Mistake(
        "clip_per_tensor", cnn.trial, clip(cnn.paddle_optimizer, paddle.nn.ClipGradByNorm, 0.8),
        ("clipping",), ("per tensor",), ("clip",),
    ),
    Mistake(
        "decay_missing", cnn.trial, optimizer(cnn.paddle_optimizer, weight_decay=None),
        ("optimizer_setting", "update_fit"), ("decay",), UPDATE,
    ),
    # Decay on biases and norms too.
    Mistake(
        "decay_on_biases", bert.trial, optimizer(bert.paddle_optimizer, apply_decay_param_fun=None),
        ("update_fit",), ("decay is applied",), UPDATE, quick=True,
    ),
    # Half the weight decay.
    Mistake(
        "decay_wrong", cnn.trial, optimizer(cnn.paddle_optimizer, weight_decay=5e-3),
        ("optimizer_setting", "update_fit"), ("decay",), UPDATE,
    ),
    # The discriminator's Adam with the default beta1.
    Mistake(
        "gan_betas", gan.trial, optimizer(gan.paddle_optimizers, discriminator={"beta1": 0.9}),
        SETTING, ("beta1",), UPDATE,
    ),
    Mistake(
        "momentum_missing", cnn.trial, optimizer(cnn.paddle_optimizer, momentum=0.0),
        SETTING, ("momentum",), UPDATE,
    ),
    Mistake(
        "nesterov", cnn.trial, optimizer(cnn.paddle_optimizer, use_nesterov=True), SETTING, ("nesterov",), UPDATE
    ),
    # One layer not given to the optimizer.
    Mistake(
        "parameter_left_out", cnn.trial, optimizer(all_but_one),
        ("update_fit",), ("does not train",), (*UPDATE, "clip"),
    ),
    # A layer with a learning rate of its own.
    Mistake("parameter_rate", cnn.trial, own_rate, ("update_fit",), ("learning rate of",), UPDATE),
    # RMSProp in place of SGD.
    Mistake("rmsprop_for_sgd", mlp.trial, optimizer(rmsprop), SETTING, ("kinds",), UPDATE),
)  # fmt: skip
