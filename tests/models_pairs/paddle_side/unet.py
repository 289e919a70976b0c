import paddle
from paddle import nn
from paddle.nn import functional as F


class Pair(nn.Layer):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.norm_b = nn.GroupNorm(4, outside)
        self.norm_a = nn.GroupNorm(4, outside)
        self.conv_b = nn.Conv2D(outside, outside, 3, padding=1)
        self.conv_a = nn.Conv2D(inside, outside, 3, padding=1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = F.relu(self.norm_a(self.conv_a(x)))
        return F.relu(self.norm_b(self.conv_b(x)))


class Level(nn.Layer):
    """One level of the U: down, everything below it, up, and the skip connection around."""

    def __init__(self, inside: int, outside: int, below: nn.Layer) -> None:
        super().__init__()
        self.merge = Pair(2 * outside, outside)
        self.upsample = nn.Conv2DTranspose(2 * outside, outside, 2, stride=2)
        self.below = below
        self.encode = Pair(inside, outside)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        kept = self.encode(x)
        deep = self.below(F.max_pool2d(kept, 2))
        return self.merge(paddle.concat([kept, self.upsample(deep)], axis=1))


class Segmenter(nn.Layer):
    def __init__(self, *, base: int = 8, num_classes: int = 2) -> None:
        super().__init__()
        paddle.seed(1)
        self.mask_head = nn.Conv2D(base, num_classes, 1)
        self.body = Level(3, base, Level(base, 2 * base, Pair(2 * base, 4 * base)))

    def forward(self, image: paddle.Tensor) -> paddle.Tensor:
        return self.mask_head(self.body(image))
