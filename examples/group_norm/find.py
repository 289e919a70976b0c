"""Find a real defect: the input gradient of paddle 3.3.1's group norm without affine weights, on the CPU.

    python examples/group_norm/find.py

The two networks below are the same. Their outputs agree, their losses agree, and they train differently.
"""

from __future__ import annotations

import numpy as np
import paddle
import torch

from reprod_log.alignment.models import align_models


class TorchNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.GroupNorm(2, 8, affine=False)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


class PaddleNet(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv = paddle.nn.Conv2D(3, 8, 3, padding=1)
        self.norm = paddle.nn.GroupNorm(2, 8, weight_attr=False, bias_attr=False)
        self.head = paddle.nn.Linear(8, 5)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.head(paddle.nn.functional.relu(self.norm(self.conv(x))).mean((2, 3)))


def main() -> None:
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    alignment = align_models(
        TorchNet(),
        PaddleNet(),
        (generator.normal(size=(2, 3, 6, 6)).astype(np.float32),),
        targets=generator.integers(0, 5, 2),
        loss=(torch.nn.functional.cross_entropy, paddle.nn.functional.cross_entropy),
    )
    print(alignment)
    for finding in alignment.findings:
        cause, evidence, _ = finding.sentences()
        print(f"[{finding.confidence}] {cause}\n    {evidence}")


if __name__ == "__main__":
    main()
