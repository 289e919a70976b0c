import paddle
from paddle import nn
from paddle.nn import functional as F


class Mixer(nn.Layer):
    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.merge = nn.Linear(dim, dim)
        self.values = nn.Linear(dim, dim)
        self.queries = nn.Linear(dim, dim)
        self.keys = nn.Linear(dim, dim)

    def split(self, x: paddle.Tensor) -> paddle.Tensor:
        batch, length, dim = x.shape
        return x.reshape([batch, length, self.num_heads, dim // self.num_heads]).transpose([0, 2, 1, 3])

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        batch, length, dim = x.shape
        k = self.split(self.keys(x))
        q = self.split(self.queries(x))
        scores = paddle.matmul(q * (dim // self.num_heads) ** -0.5, k, transpose_y=True)
        v = self.split(self.values(x))
        mixed = paddle.matmul(F.softmax(scores, axis=-1), v)
        return self.merge(mixed.transpose([0, 2, 1, 3]).reshape([batch, length, dim]))


class Residual(nn.Layer):
    """A norm in front of a layer, and the input added to what comes out."""

    def __init__(self, dim: int, inner: nn.Layer) -> None:
        super().__init__()
        self.inner = inner
        self.before = nn.LayerNorm(dim, epsilon=1e-6)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return x + self.inner(self.before(x))


class Expansion(nn.Layer):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.down = nn.Linear(4 * dim, dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.nothing = nn.Identity()

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.nothing(self.down(F.gelu(self.up(x))))


class Trunk(nn.Layer):
    def __init__(self, depth: int, dim: int, num_heads: int) -> None:
        super().__init__()
        self.final = nn.LayerNorm(dim, epsilon=1e-6)
        layers = []
        for _ in range(depth):
            layers += [Residual(dim, Mixer(dim, num_heads)), Residual(dim, Expansion(dim))]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.final(self.layers(x))


class PatchClassifier(nn.Layer):
    def __init__(self, *, depth: int, dim: int = 24, num_heads: int = 4, size: int = 4, num_classes: int = 10) -> None:
        super().__init__()
        paddle.seed(1)
        self.classifier = nn.Linear(dim, num_classes)
        self.trunk = Trunk(depth, dim, num_heads)
        normal = nn.initializer.Normal(std=0.02)
        self.place = self.create_parameter([1, 17, dim], default_initializer=normal)
        self.summary = self.create_parameter([1, 1, dim], default_initializer=normal)
        self.to_tokens = nn.Conv2D(3, dim, size, stride=size)

    def forward(self, image: paddle.Tensor) -> paddle.Tensor:
        tokens = self.to_tokens(image).flatten(2).transpose([0, 2, 1])
        first = self.summary.expand([tokens.shape[0], 1, tokens.shape[2]])
        tokens = paddle.concat([first, tokens], axis=1) + self.place
        return self.classifier(self.trunk(tokens)[:, 0])
