import torch
from torch import nn


class Embeddings(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(50, width, padding_idx=0)
        self.position_embeddings = nn.Embedding(32, width)
        self.token_type_embeddings = nn.Embedding(2, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)
        self.register_buffer("position_ids", torch.arange(32)[None], persistent=False)

    def forward(self, tokens: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        positions = self.position_ids[:, : tokens.shape[1]]
        x = self.word_embeddings(tokens) + self.token_type_embeddings(segments) + self.position_embeddings(positions)
        return self.LayerNorm(x)


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (layer(x).view(shape).permute(0, 2, 1, 3) for layer in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5 + bias
        return (scores.softmax(-1) @ v).permute(0, 2, 1, 3).reshape(batch, length, width)


class Output(nn.Module):
    def __init__(self, inside: int, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inside, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.LayerNorm(self.dense(x) + residual)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({"self": SelfAttention(width, heads), "output": Output(width, width)})
        self.intermediate = nn.Linear(width, 4 * width)
        self.output = Output(4 * width, width)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        x = self.attention["output"](self.attention["self"](x, bias), x)
        return self.output(nn.functional.gelu(self.intermediate(x)), x)


class BertClassifier(nn.Module):
    def __init__(self, *, depth: int, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embeddings = Embeddings(width)
        self.encoder = nn.ModuleList([Layer(width, heads) for _ in range(depth)])
        self.pooler = nn.Linear(width, width)
        self.classifier = nn.Linear(width, 3)

    def forward(self, tokens: torch.Tensor, segments: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        bias = (1.0 - mask)[:, None, None, :] * -1e4
        x = self.embeddings(tokens, segments)
        for layer in self.encoder:
            x = layer(x, bias)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))
