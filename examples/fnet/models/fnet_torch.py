"""FNet with a two-class head in torch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from settings import Settings
from torch import Tensor, nn
from torch.nn import functional as F


class FNetLayer(nn.Module):
    """Mixes tokens by a Fourier transform and features by a two-layer perceptron; each is added and normalised."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.mixing_norm = nn.LayerNorm(settings.hidden, eps=settings.norm_eps)
        self.wide = nn.Linear(settings.hidden, settings.feed_forward)
        self.narrow = nn.Linear(settings.feed_forward, settings.hidden)
        self.output_norm = nn.LayerNorm(settings.hidden, eps=settings.norm_eps)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x: Tensor) -> Tensor:
        mixed = torch.fft.fftn(x, dim=(1, 2)).real
        x = self.mixing_norm(x + mixed)
        fed = self.narrow(F.gelu(self.wide(x), approximate="tanh"))
        return self.output_norm(self.dropout(fed) + x)


class FNet(nn.Module):
    """Embeddings, Fourier layers, pooler and classifier; gives the logits of each sequence."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        hidden = settings.hidden
        self.word = nn.Embedding(settings.vocabulary, hidden, padding_idx=settings.padding_id)
        self.position = nn.Embedding(settings.positions, hidden)
        self.token_type = nn.Embedding(settings.token_types, hidden)
        self.embedding_norm = nn.LayerNorm(hidden, eps=settings.norm_eps)
        self.projection = nn.Linear(hidden, hidden)
        self.layers = nn.ModuleList(FNetLayer(settings) for _ in range(settings.layers))
        self.pooler = nn.Linear(hidden, hidden)
        self.classifier = nn.Linear(hidden, settings.classes)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1]).unsqueeze(0)
        x = self.word(ids) + self.token_type(torch.zeros_like(ids)) + self.position(positions)
        x = self.dropout(self.projection(self.embedding_norm(x)))
        for layer in self.layers:
            x = layer(x)
        pooled = torch.tanh(self.pooler(x[:, 0]))
        return self.classifier(self.dropout(pooled))


def build_model(settings: Settings, body: Mapping[str, np.ndarray], classifier: Mapping[str, np.ndarray]) -> FNet:
    """Returns the model in eval mode with the given weights (dropout off: the two frameworks draw different masks)."""
    model = FNet(settings).to(getattr(torch, settings.dtype))
    arrays = {**body, **classifier}
    model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()}, strict=True)
    return model.eval()
