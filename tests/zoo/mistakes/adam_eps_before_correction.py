"""Adam whose epsilon is added before the bias correction on the torch side, as old libraries have it."""

from dataclasses import replace

import torch

from zoo.bases import unet
from zoo.trial import Mistake, Trial

EPS, BETAS = 1e-4, (0.9, 0.999)


class OldAdam(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 2e-3, "betas": BETAS, "eps": EPS})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state.update(count=0, mean=torch.zeros_like(parameter), square=torch.zeros_like(parameter))
                state["count"] += 1
                state["mean"].lerp_(parameter.grad, 1 - BETAS[0])
                state["square"].lerp_(parameter.grad**2, 1 - BETAS[1])
                rate = group["lr"] * (1 - BETAS[1] ** state["count"]) ** 0.5 / (1 - BETAS[0] ** state["count"])
                parameter.addcdiv_(state["mean"], state["square"].sqrt() + group["eps"], value=-rate)


def plant(trial: Trial) -> Trial:
    return replace(
        trial,
        optimizer=(
            lambda model: OldAdam(model.parameters()),
            lambda model: unet.paddle_optimizer(model, epsilon=EPS),
        ),
    )


MISTAKE = Mistake(
    unet.trial,
    plant,
    rules=("epsilon_place",),
    words=("before the bias correction",),
    place=("update", "optimizer/", "parameter"),
    quick=True,
)
