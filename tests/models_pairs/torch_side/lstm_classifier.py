import torch
from torch import nn


class TextClassifier(nn.Module):
    def __init__(self, *, width: int = 12, hidden: int = 10, classes: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(40, width)
        self.rnn = nn.LSTM(width, hidden, num_layers=2, bidirectional=True)
        self.norm = nn.LayerNorm(2 * hidden)
        self.fc1 = nn.Linear(2 * hidden, 2 * hidden)
        self.fc2 = nn.Linear(2 * hidden, 2 * hidden)
        self.fc3 = nn.Linear(2 * hidden, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x, _ = self.rnn(self.embedding(tokens).transpose(0, 1))
        x = self.norm(x.mean(dim=0))
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)
