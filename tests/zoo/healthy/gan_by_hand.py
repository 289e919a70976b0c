"""The GAN with its losses written by log and exp, and with leaky slopes as a maximum."""

import paddle
from paddle import nn

from zoo.bases import gan
from zoo.trial import Healthy, Trial


class Leaky(nn.LeakyReLU):
    def forward(self, x):
        return paddle.maximum(x, self._negative_slope * x)


def softplus(x):
    return paddle.log(1.0 + paddle.exp(-x.abs())) + (x + x.abs()) / 2


def step(models, optimizers, inputs, targets):
    generator, discriminator = models["generator"], models["discriminator"]
    fake = generator(inputs["noise"])
    real = softplus(-discriminator(inputs["image"])).mean()
    (real + softplus(discriminator(fake.detach())).mean()).backward()
    optimizers["discriminator"].step()
    optimizers["discriminator"].clear_grad()
    softplus(-discriminator(fake)).mean().backward()
    optimizers["generator"].step()
    optimizers["generator"].clear_grad()
    optimizers["discriminator"].clear_grad()


def make(seed: int) -> Trial:
    trial = gan.trial(seed)
    for model in trial.candidate.values():
        for layer in model.sublayers():
            if isinstance(layer, nn.LeakyReLU):
                layer.__class__ = Leaky
    return trial.with_candidate_step(step)


HEALTHY = Healthy(make, seeds=tuple(range(10)))
