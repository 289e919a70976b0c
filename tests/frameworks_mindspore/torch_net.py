"""The network of net.py in torch, trained in the same way; writes its weights and its batch first."""

import sys

import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.act = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.LeakyReLU()
        self.norm, self.gelu, self.fc = nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(self.gelu(self.norm(self.act(self.bn(self.conv(x))).mean((2, 3)))))


torch.manual_seed(0)
net = Net().eval()
with torch.no_grad():
    net.bn.running_mean.normal_()
    net.bn.running_var.uniform_(0.5, 1.5)
images, targets = torch.randn(4, 3, 16, 16), torch.randn(4, 5)
NAMES = {
    "bn.weight": "bn.gamma", "bn.bias": "bn.beta", "bn.running_mean": "bn.moving_mean",
    "bn.running_var": "bn.moving_variance", "norm.weight": "norm.gamma", "norm.bias": "norm.beta",
}  # fmt: skip
state = {NAMES.get(name, name): value.numpy().copy() for name, value in net.state_dict().items()}
np.savez(sys.argv[1], images=images.numpy(), targets=targets.numpy(), **state)
optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
for _ in range(2):
    optimizer.zero_grad()
    ((net(images) - targets) ** 2).mean().backward()
    optimizer.step()
