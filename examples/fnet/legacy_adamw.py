"""AdamW as the transformers library had it until 2024, in torch: the optimizer of the published backward check."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.optim import Optimizer


class LegacyAdamW(Optimizer):
    """Decoupled weight decay with two differences from torch's and paddle's AdamW.

    eps is added before the bias correction, so that at step 1 it weighs 1/sqrt(1 - beta2) = 31.6 times as much; and the
    decay comes after the update, so that it takes the updated weight.
    """

    def __init__(self, params: Iterable, *, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                self._update(parameter, group)

    def _update(self, parameter: torch.Tensor, group: dict) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["mean"] = torch.zeros_like(parameter)
            state["square"] = torch.zeros_like(parameter)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        state["mean"].mul_(beta1).add_(parameter.grad, alpha=1 - beta1)
        state["square"].mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
        correction = (1 - beta2 ** state["step"]) ** 0.5 / (1 - beta1 ** state["step"])
        parameter.addcdiv_(state["mean"], state["square"].sqrt().add_(group["eps"]), value=-group["lr"] * correction)
        parameter.add_(parameter, alpha=-group["lr"] * group["weight_decay"])
