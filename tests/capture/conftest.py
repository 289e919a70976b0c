"""A small laboratory: the same few things in torch and in paddle, so that each test is written once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pytest
import torch


class Lab:
    """What a test needs of one framework."""

    name: str
    nn: Any
    functional: Any
    Module: Any
    bias_gradient = "fc1.bias"

    def tensor(self, *shape: int, seed: int = 0, dtype: str = "float32") -> Any:
        return self.of(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


class TorchLab(Lab):
    name = "torch"
    nn = torch.nn
    functional = torch.nn.functional
    Module = torch.nn.Module
    autograd = torch.autograd

    def of(self, array):
        return torch.from_numpy(np.ascontiguousarray(array))

    def seed(self, number):
        torch.manual_seed(number)

    def relu(self, inplace=False):
        return torch.nn.ReLU(inplace=inplace)

    def conv(self, *sizes, **more):
        return torch.nn.Conv2d(*sizes, **more)

    def batchnorm(self, size):
        return torch.nn.BatchNorm2d(size)

    def sgd(self, parameters, lr=0.1, **more):
        return torch.optim.SGD(parameters, lr=lr, **more)

    def adamw(self, parameters, lr=0.1, **more):
        return torch.optim.AdamW(parameters, lr=lr, **more)

    def zero(self, optimizer):
        optimizer.zero_grad()

    def checkpoint(self, function, *inputs, reentrant):
        return torch.utils.checkpoint.checkpoint(function, *inputs, use_reentrant=reentrant)

    def no_grad(self):
        return torch.no_grad()

    def freeze(self, parameter):
        parameter.requires_grad_(False)

    def add_in_place(self, tensor, number):
        return tensor.add_(number)

    def encoder(self):
        return torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)

    def draw(self):
        return torch.rand(8).numpy().tobytes()

    def hooks(self, module):
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules())


class PaddleLab(Lab):
    name = "paddle"
    nn = paddle.nn
    functional = paddle.nn.functional
    Module = paddle.nn.Layer

    def of(self, array):
        return paddle.to_tensor(array)

    def seed(self, number):
        paddle.seed(number)

    def relu(self, inplace=False):
        return InplaceReLU() if inplace else paddle.nn.ReLU()

    def conv(self, *sizes, **more):
        return paddle.nn.Conv2D(*sizes, **more)

    def batchnorm(self, size):
        return paddle.nn.BatchNorm2D(size)

    def sgd(self, parameters, lr=0.1, momentum=0.0):
        if momentum:
            return paddle.optimizer.Momentum(parameters=list(parameters), learning_rate=lr, momentum=momentum)
        return paddle.optimizer.SGD(parameters=list(parameters), learning_rate=lr)

    def adamw(self, parameters, lr=0.1, **more):
        return paddle.optimizer.AdamW(parameters=list(parameters), learning_rate=lr, **more)

    def zero(self, optimizer):
        optimizer.clear_grad()

    def checkpoint(self, function, *inputs, reentrant):
        from paddle.distributed.fleet.utils import recompute

        return recompute(function, *inputs, use_reentrant=reentrant)

    def no_grad(self):
        return paddle.no_grad()

    def freeze(self, parameter):
        parameter.stop_gradient = True

    def add_in_place(self, tensor, number):
        return tensor.add_(paddle.to_tensor(float(number)))

    def encoder(self):
        return paddle.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1)

    def draw(self):
        return paddle.rand([8]).numpy().tobytes()

    def hooks(self, module):
        layers = module.sublayers(include_self=True)
        return sum(len(one._forward_post_hooks) + len(one._forward_pre_hooks) for one in layers)


class InplaceReLU(paddle.nn.Layer):
    def forward(self, x):
        return paddle.nn.functional.relu_(x)


def _models(lab: Lab) -> SimpleNamespace:
    """Models that are the same in both frameworks."""

    class Mlp(lab.Module):
        def __init__(self, inplace=False):
            super().__init__()
            self.fc1 = lab.nn.Linear(3, 4)
            self.act = lab.relu(inplace)
            self.fc2 = lab.nn.Linear(4, 2)

        def forward(self, x):
            return self.fc2(self.act(self.fc1(x)))

    class Cnn(lab.Module):
        def __init__(self):
            super().__init__()
            self.conv = lab.conv(2, 4, 3, padding=1)
            self.bn = lab.batchnorm(4)
            self.act = lab.relu(True)
            self.drop = lab.nn.Dropout(0.3)
            self.head = lab.nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.drop(self.act(self.bn(self.conv(x)))).mean((2, 3)))

    return SimpleNamespace(Mlp=Mlp, Cnn=Cnn)


@pytest.fixture(params=[TorchLab, PaddleLab], ids=["torch", "paddle"])
def lab(request):
    made = request.param()
    made.seed(0)
    made.models = _models(made)
    return made


def train(lab, model, optimizer, *, steps=2, shape=(5, 3)):
    """A plain loop; gives the losses' bits."""
    losses = []
    for step in range(steps):
        lab.zero(optimizer)
        loss = (model(lab.tensor(*shape, seed=step)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().numpy().tobytes())
    return losses


@pytest.fixture
def trained():
    return train
