"""FNet with a two-class head in paddle, and the layout rules that carry torch's body into it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F
from settings import Settings


class FNetLayer(nn.Layer):
    """Mixes tokens by a Fourier transform and features by a two-layer perceptron; each is added and normalised."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.mixing_norm = nn.LayerNorm(settings.hidden, epsilon=settings.norm_eps)
        self.wide = nn.Linear(settings.hidden, settings.feed_forward)
        self.narrow = nn.Linear(settings.feed_forward, settings.hidden)
        self.output_norm = nn.LayerNorm(settings.hidden, epsilon=settings.norm_eps)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x: Tensor) -> Tensor:
        mixed = paddle.fft.fftn(x, axes=(1, 2)).real()
        x = self.mixing_norm(x + mixed)
        fed = self.narrow(F.gelu(self.wide(x), approximate=True))
        return self.output_norm(self.dropout(fed) + x)


class FNet(nn.Layer):
    """Embeddings, Fourier layers, pooler and classifier; gives the logits of each sequence."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        hidden = settings.hidden
        self.word = nn.Embedding(settings.vocabulary, hidden, padding_idx=settings.padding_id)
        self.position = nn.Embedding(settings.positions, hidden)
        self.token_type = nn.Embedding(settings.token_types, hidden)
        self.embedding_norm = nn.LayerNorm(hidden, epsilon=settings.norm_eps)
        self.projection = nn.Linear(hidden, hidden)
        self.layers = nn.LayerList(FNetLayer(settings) for _ in range(settings.layers))
        self.pooler = nn.Linear(hidden, hidden)
        self.classifier = nn.Linear(hidden, settings.classes)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, ids: Tensor) -> Tensor:
        positions = paddle.arange(ids.shape[1]).unsqueeze(0)
        x = self.word(ids) + self.token_type(paddle.zeros_like(ids)) + self.position(positions)
        x = self.dropout(self.projection(self.embedding_norm(x)))
        for layer in self.layers:
            x = layer(x)
        pooled = paddle.tanh(self.pooler(x[:, 0]))
        return self.classifier(self.dropout(pooled))


def build_model(settings: Settings, body: Mapping[str, np.ndarray], classifier: Mapping[str, np.ndarray]) -> FNet:
    """Returns the model in eval mode with torch's body and paddle's own classifier file."""
    model = FNet(settings)
    model.to(dtype=settings.dtype)
    linear = {name for name, layer in model.named_sublayers() if isinstance(layer, nn.Linear)}
    left = {**body, **classifier}
    for name, parameter in model.named_parameters():
        array = left.pop(name)
        # By layer type, not by shape: the square matrices fit both ways. The classifier file has paddle's layout.
        if name.removesuffix(".weight") in linear and name not in classifier:
            array = array.T
        if tuple(parameter.shape) != array.shape:
            raise ValueError(f"{name} has shape {parameter.shape}, the stored weight {array.shape}")
        parameter.set_value(paddle.to_tensor(array).astype(parameter.dtype))
    if left:
        raise ValueError(f"weights without a parameter: {sorted(left)}")
    model.eval()
    return model
