import paddle
from paddle import nn
from paddle.nn import functional as F


class Attend(nn.Layer):
    def __init__(self, hidden: int, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.out_proj = nn.Linear(hidden, hidden)
        self.v_proj = nn.Linear(hidden, hidden)
        self.k_proj = nn.Linear(hidden, hidden)
        self.q_proj = nn.Linear(hidden, hidden)

    def forward(self, x: paddle.Tensor, keep: paddle.Tensor) -> paddle.Tensor:
        batch, length, hidden = x.shape
        shape = [batch, length, self.parts, hidden // self.parts]
        v = self.v_proj(x).reshape(shape).transpose([0, 2, 1, 3])
        q = self.q_proj(x).reshape(shape).transpose([0, 2, 1, 3])
        k = self.k_proj(x).reshape(shape).transpose([0, 2, 3, 1])
        weights = F.softmax(paddle.matmul(q, k) * (hidden // self.parts) ** -0.5 + keep, axis=-1)
        mixed = paddle.matmul(weights, v).transpose([0, 2, 1, 3]).reshape([batch, length, hidden])
        return self.out_proj(mixed)


class EncoderLayer(nn.Layer):
    def __init__(self, hidden: int, parts: int) -> None:
        super().__init__()
        self.norm2 = nn.LayerNorm(hidden, epsilon=1e-12)
        self.norm1 = nn.LayerNorm(hidden, epsilon=1e-12)
        self.linear2 = nn.Linear(4 * hidden, hidden)
        self.linear1 = nn.Linear(hidden, 4 * hidden)
        self.self_attn = Attend(hidden, parts)

    def forward(self, x: paddle.Tensor, keep: paddle.Tensor) -> paddle.Tensor:
        x = self.norm1(x + self.self_attn(x, keep))
        return self.norm2(x + self.linear2(F.gelu(self.linear1(x))))


class Body(nn.Layer):
    def __init__(self, depth: int, hidden: int, parts: int) -> None:
        super().__init__()
        self.layers = nn.LayerList([EncoderLayer(hidden, parts) for _ in range(depth)])
        self.embed_norm = nn.LayerNorm(hidden, epsilon=1e-12)
        self.segment = nn.Embedding(2, hidden)
        self.position = nn.Embedding(32, hidden)
        self.token = nn.Embedding(50, hidden, padding_idx=0)

    def forward(self, tokens: paddle.Tensor, segments: paddle.Tensor, keep: paddle.Tensor) -> paddle.Tensor:
        places = paddle.arange(tokens.shape[1], dtype="int64").unsqueeze(0)
        x = self.embed_norm(self.token(tokens) + self.position(places) + self.segment(segments))
        for layer in self.layers:
            x = layer(x, keep)
        return x


class SentenceModel(nn.Layer):
    def __init__(self, *, depth: int, hidden: int = 32, parts: int = 4) -> None:
        super().__init__()
        paddle.seed(1)
        self.answer = nn.Linear(hidden, 3)
        self.pool = nn.Linear(hidden, hidden)
        self.body = Body(depth, hidden, parts)

    def forward(self, tokens: paddle.Tensor, segments: paddle.Tensor, mask: paddle.Tensor) -> paddle.Tensor:
        keep = ((1.0 - mask) * -1e4).unsqueeze([1, 2])
        x = self.body(tokens, segments, keep)
        return self.answer(F.tanh(self.pool(x[:, 0])))
