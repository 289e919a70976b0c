"""A codebook between two convolutions: nearest vectors, gradients passed straight through; Adam, clipping by value."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as PF
import torch
import torch.nn.functional as TF
from paddle import nn as pnn
from torch import nn as tnn

from zoo.trial import Trial, arrays, with_weights

STEPS, WIDTH, CODES = 3, 6, 7


class TorchCodes(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.norm = tnn.Conv2d(3, WIDTH, 4, 2, 1), tnn.InstanceNorm2d(WIDTH, affine=True)
        self.codes = tnn.Embedding(CODES, WIDTH)
        self.up, self.last = tnn.ConvTranspose2d(WIDTH, WIDTH, 4, 2, 1), tnn.Conv2d(WIDTH, 3, 3, padding=1)

    def forward(self, image: Any) -> Any:
        x = self.norm(self.down(image)).permute(0, 2, 3, 1)
        far = (x[..., None, :] - self.codes.weight).pow(2).sum(-1)
        code = self.codes(far.argmin(-1))
        kept = TF.mse_loss(code, x.detach()) + 0.25 * TF.mse_loss(x, code.detach())
        x = (x + (code - x).detach()).permute(0, 3, 1, 2)
        return torch.sigmoid(self.last(TF.silu(self.up(x)))), kept


class PaddleCodes(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.norm = pnn.Conv2D(3, WIDTH, 4, 2, 1), pnn.InstanceNorm2D(WIDTH)
        self.codes = pnn.Embedding(CODES, WIDTH)
        self.up, self.last = pnn.Conv2DTranspose(WIDTH, WIDTH, 4, 2, 1), pnn.Conv2D(WIDTH, 3, 3, padding=1)

    def forward(self, image: Any) -> Any:
        x = self.norm(self.down(image))
        x = x.transpose([0, 2, 3, 1])
        far = (x.unsqueeze(-2) - self.codes.weight).pow(2).sum(-1)
        code = self.codes(far.argmin(-1))
        moved = PF.mse_loss(code, x.detach())
        held = PF.mse_loss(x, code.detach())
        x = x + (code - x).detach()
        x = x.transpose([0, 3, 1, 2])
        x = PF.silu(self.up(x))
        return PF.sigmoid(self.last(x)), moved + 0.25 * held


def torch_loss(outputs: Any, targets: Any) -> Any:
    return TF.l1_loss(outputs[0], targets) + outputs[1]


def paddle_loss(outputs: Any, targets: Any) -> Any:
    near = PF.l1_loss(outputs[0], targets)
    return near + outputs[1]


def torch_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    torch_loss(model(**inputs), targets).backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.02)
    optimizer.step()
    optimizer.zero_grad()


def torch_optimizer(model: Any) -> Any:
    return torch.optim.Adam(model.parameters(), 5e-3, betas=(0.9, 0.95), eps=1e-6)


def paddle_optimizer(model: Any) -> Any:
    return paddle.optimizer.Adam(
        5e-3,
        beta1=0.9,
        beta2=0.95,
        epsilon=1e-6,
        parameters=model.parameters(),
        grad_clip=paddle.nn.ClipGradByValue(0.02),
    )


def paddle_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    loss = paddle_loss(model(**inputs), targets)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()


def trial(seed: int = 0) -> Trial:
    reference, candidate = with_weights(TorchCodes, PaddleCodes, seed)
    some = arrays(seed)
    images = [some.random((2, 3, 8, 8)).astype(np.float32) for _ in range(STEPS)]
    return Trial(
        reference, candidate, [{"image": one} for one in images], images,
        optimizer=(torch_optimizer, paddle_optimizer), step=(torch_step, paddle_step),
    )  # fmt: skip
