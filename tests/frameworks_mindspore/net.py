"""Trains a network in MindSpore and records it, in its own environment: python net.py WEIGHTS.npz OUT [mistake]."""

import sys

import mindspore as ms
import numpy as np
from mindspore import nn

from reprod_log import watch

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
weights, out, mistake = sys.argv[1], sys.argv[2], (sys.argv[3:] or [""])[0]


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        mode = {"pad_mode": "same"} if mistake == "padding" else {"pad_mode": "pad", "padding": 1}
        self.conv = nn.Conv2d(3, 8, 3, stride=2, has_bias=True, **mode)
        self.bn = nn.BatchNorm2d(8, eps=1e-3 if mistake == "eps" else 1e-5)
        self.act = nn.LeakyReLU(0.2 if mistake == "slope" else 0.01)
        self.norm = nn.LayerNorm((8,), epsilon=1e-7 if mistake == "norm" else 1e-5)
        self.gelu, self.fc = nn.GELU(approximate=mistake == "gelu"), nn.Dense(8, 5)

    def construct(self, x):
        x = self.act(self.bn(self.conv(x)))
        return self.fc(self.gelu(self.norm(x.mean((2, 3)))))


net = Net()
net.set_train(False)
data = np.load(weights)
for parameter in net.get_parameters():
    parameter.set_data(ms.Tensor(data[parameter.name]))
optimizer = nn.SGD(net.trainable_params(), 0.06 if mistake == "rate" else 0.05, momentum=0.9)
images, targets = ms.Tensor(data["images"]), ms.Tensor(data["targets"])


def loss(x, y):
    return ((net(x) - y) ** 2).mean()


step = ms.value_and_grad(loss, None, net.trainable_params())
with watch(net, optimizer=optimizer, save=out):
    for _ in range(2):
        _, gradients = step(images, targets)
        optimizer(gradients)
