"""A small GAN with batch norm in train mode and two Adam optimizers that take turns within a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as PF
import torch
import torch.nn.functional as TF
from paddle import nn as pnn
from torch import nn as tnn

from reprod_log.transfer import transfer_weights
from zoo.bases.cnn import unbiased
from zoo.trial import Trial, arrays

STEPS = 3


def torch_models() -> dict[str, Any]:
    return {
        "generator": tnn.Sequential(
            tnn.Linear(6, 24), tnn.BatchNorm1d(24), tnn.ReLU(), tnn.Unflatten(1, (6, 2, 2)),
            tnn.ConvTranspose2d(6, 4, 4, 2, 1, bias=False), tnn.BatchNorm2d(4), tnn.LeakyReLU(0.2),
            tnn.ConvTranspose2d(4, 2, 4, 2, 1), tnn.Tanh(),
        ),
        "discriminator": tnn.Sequential(
            tnn.Conv2d(2, 6, 4, 2, 1), tnn.LeakyReLU(0.2), tnn.Conv2d(6, 8, 4, 2, 1, bias=False), tnn.BatchNorm2d(8),
            tnn.LeakyReLU(0.2), tnn.Flatten(), tnn.Linear(32, 1),
        ),
    }  # fmt: skip


def paddle_models() -> dict[str, Any]:
    return {
        "generator": pnn.Sequential(
            pnn.Linear(6, 24), unbiased(pnn.BatchNorm1D(24)), pnn.ReLU(), pnn.Unflatten(1, (6, 2, 2)),
            pnn.Conv2DTranspose(6, 4, 4, 2, 1, bias_attr=False), unbiased(pnn.BatchNorm2D(4)), pnn.LeakyReLU(0.2),
            pnn.Conv2DTranspose(4, 2, 4, 2, 1), pnn.Tanh(),
        ),
        "discriminator": pnn.Sequential(
            pnn.Conv2D(2, 6, 4, 2, 1), pnn.LeakyReLU(0.2), pnn.Conv2D(6, 8, 4, 2, 1, bias_attr=False),
            unbiased(pnn.BatchNorm2D(8)), pnn.LeakyReLU(0.2), pnn.Flatten(), pnn.Linear(32, 1),
        ),
    }  # fmt: skip


def torch_optimizers(models: Any) -> Any:
    return {name: torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.5, 0.999)) for name, model in models.items()}


def paddle_optimizers(models: Any, **other: Any) -> Any:
    return {
        name: paddle.optimizer.Adam(
            **{"learning_rate": 2e-3, "beta1": 0.5, "parameters": model.parameters(), **other.get(name, {})}
        )
        for name, model in models.items()
    }


def torch_step(models: Any, optimizers: Any, inputs: Any, targets: Any) -> None:
    generator, discriminator = models["generator"], models["discriminator"]
    fake = generator(inputs["noise"])
    real = TF.softplus(-discriminator(inputs["image"])).mean()
    (real + TF.softplus(discriminator(fake.detach())).mean()).backward()
    optimizers["discriminator"].step()
    optimizers["discriminator"].zero_grad()
    TF.softplus(-discriminator(fake)).mean().backward()
    optimizers["generator"].step()
    optimizers["generator"].zero_grad()
    optimizers["discriminator"].zero_grad()


def paddle_step(
    models: Any,
    optimizers: Any,
    inputs: Any,
    targets: Any,
    *,
    clear: bool = True,
    detach: bool = True,
    scale: float = 1,
) -> None:
    generator, discriminator = models["generator"], models["discriminator"]
    fake = generator(inputs["noise"])
    real = PF.softplus(-discriminator(inputs["image"])).mean()
    (real + scale * PF.softplus(discriminator(fake.detach() if detach else fake)).mean()).backward()
    optimizers["discriminator"].step()
    optimizers["discriminator"].clear_grad()
    PF.softplus(-discriminator(fake)).mean().backward()
    optimizers["generator"].step()
    optimizers["generator"].clear_grad()
    if clear:
        optimizers["discriminator"].clear_grad()


def trial(seed: int = 0) -> Trial:
    torch.manual_seed(seed)
    paddle.seed(seed + 100)
    reference, candidate = torch_models(), paddle_models()
    for name, model in reference.items():
        transfer_weights(model, candidate[name], on_difference="report")
    generator = arrays(seed)
    inputs = [
        {
            "noise": generator.normal(size=(4, 6)).astype(np.float32),
            "image": generator.normal(size=(4, 2, 8, 8)).astype(np.float32),
        }
        for _ in range(STEPS)
    ]
    return Trial(
        reference,
        candidate,
        inputs,
        None,
        optimizer=(torch_optimizers, paddle_optimizers),
        step=(torch_step, paddle_step),
    )
