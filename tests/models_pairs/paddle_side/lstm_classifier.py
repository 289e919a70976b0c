import paddle
from paddle import nn
from paddle.nn import functional as F


class Decision(nn.Layer):
    def __init__(self, size: int, num_classes: int) -> None:
        super().__init__()
        self.last = nn.Linear(size, num_classes)
        self.deep = nn.Linear(size, size)
        self.shallow = nn.Linear(size, size)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.last(F.relu(self.deep(F.relu(self.shallow(x)))))


class ReviewModel(nn.Layer):
    def __init__(self, *, size: int = 12, hidden_size: int = 10, num_classes: int = 4) -> None:
        super().__init__()
        paddle.seed(1)
        self.decision = Decision(2 * hidden_size, num_classes)
        self.scale = nn.LayerNorm(2 * hidden_size)
        self.reader = nn.LSTM(size, hidden_size, num_layers=2, direction="bidirect")
        self.lookup = nn.Embedding(40, size)

    def forward(self, tokens: paddle.Tensor) -> paddle.Tensor:
        sequence, _ = self.reader(self.lookup(tokens))
        return self.decision(self.scale(sequence.mean(axis=1)))
