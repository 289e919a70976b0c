import paddle
from paddle import nn
from paddle.nn import functional as F


class ConvNorm(nn.Layer):
    def __init__(self, channels_in: int, channels_out: int, size: int, stride: int = 1) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2D(channels_out)
        self.conv = nn.Conv2D(channels_in, channels_out, size, stride=stride, padding=(size - 1) // 2, bias_attr=False)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.norm(self.conv(x))


class Unit(nn.Layer):
    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        changes = stride != 1 or channels_in != channels_out
        self.shortcut = ConvNorm(channels_in, channels_out, 1, stride) if changes else nn.Identity()
        self.second = ConvNorm(channels_out, channels_out, 3)
        self.first = ConvNorm(channels_in, channels_out, 3, stride)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        kept = self.shortcut(x)
        return F.relu(kept + self.second(F.relu(self.first(x))))


class ResidualNetwork(nn.Layer):
    def __init__(self, *, base: int = 8, num_classes: int = 10) -> None:
        super().__init__()
        paddle.seed(1)
        self.output = nn.Linear(8 * base, num_classes)
        self.units = nn.LayerList()
        channels = base
        for stage in range(4):
            wider = base * 2**stage
            self.units.append(Unit(channels, wider, 1 if stage == 0 else 2))
            self.units.append(Unit(wider, wider, 1))
            channels = wider
        self.stem = ConvNorm(3, base, 7, 2)

    def forward(self, image: paddle.Tensor) -> paddle.Tensor:
        x = F.max_pool2d(F.relu(self.stem(image)), 3, stride=2, padding=1)
        for unit in self.units:
            x = unit(x)
        return self.output(F.adaptive_avg_pool2d(x, 1).flatten(1))
