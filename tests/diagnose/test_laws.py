"""Rules of update, run again: each gives what the optimizer does, and a changed one is found by its updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from reprod_log.diagnose.laws import Decay, Law, Trace, candidates, fitted, laws_of

STEPS, RATE = 4, 1e-2
RNG = np.random.default_rng(0)
GRADIENTS = RNG.normal(size=(STEPS, 30))
START = RNG.normal(size=30)


def trace(make: Any) -> Trace:
    """What an optimizer of torch does with the same gradients, in float64."""
    parameter = torch.nn.Parameter(torch.tensor(START))
    optimizer = make([parameter])
    before, updates = [], []
    for gradient in GRADIENTS:
        before.append(parameter.detach().numpy().copy())
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
        updates.append(parameter.detach().numpy() - before[-1])
    rooms = ((1e-12, 1e-12),) * STEPS
    return Trace(tuple(GRADIENTS), tuple(before), tuple(updates), (RATE,) * STEPS, rooms)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, RATE, momentum=0.9, nesterov=True, weight_decay=0.1),
    "dampened": lambda p: torch.optim.SGD(p, RATE, momentum=0.8, dampening=0.5),
    "adam": lambda p: torch.optim.Adam(p, RATE, (0.8, 0.95), 1e-4, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, RATE, (0.8, 0.95), 1e-4, weight_decay=0.1, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, RATE, 0.9, 1e-3, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, RATE, eps=1e-3, initial_accumulator_value=0.1),
    "adamax": lambda p: torch.optim.Adamax(p, RATE, (0.8, 0.95), 1e-3, weight_decay=0.1),
    "adadelta": lambda p: torch.optim.Adadelta(p, RATE, 0.95, 1e-3),
    "maximize": lambda p: torch.optim.Adam(p, RATE, maximize=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rule_of_recorded_settings_gives_the_updates(name: str) -> None:
    made = OPTIMIZERS[name]([torch.nn.Parameter(torch.zeros(1))])
    claimed = laws_of({"type": type(made).__name__, "groups": [{**made.param_groups[0], "params": None}]})
    assert any(trace(OPTIMIZERS[name]).obeys(law, decay) for law, decay in claimed)


def test_decay_and_changed_settings_are_found_without_any_settings() -> None:
    seen = {"w": trace(lambda p: torch.optim.AdamW(p, RATE, (0.5, 0.99), 1e-5, weight_decay=0.37))}
    found = fitted(seen, candidates([Law("adam", beta1=0.9, beta2=0.99, eps=1e-8)]), {"w": [Decay()]})
    assert found is not None
    assert (found.law.beta1, found.law.beta2, found.law.eps) == (0.5, 0.99, 1e-5)
    assert found.decays["w"] == Decay(0.37)


def test_updates_that_follow_no_rule_are_not_explained() -> None:
    seen = trace(OPTIMIZERS["adam"])
    noise = tuple(one + 1e-6 * RNG.normal(size=one.shape) for one in seen.updates)
    wrong = Trace(seen.gradients, seen.before, noise, seen.rates, seen.room)
    known = [law for law, _ in laws_of({"type": "Adam", "groups": [{"betas": [0.8, 0.95], "eps": 1e-4}]})]
    assert fitted({"w": wrong}, candidates(known, also=False), {"w": [Decay(0.1, True)]}) is None


class Lamb(torch.optim.Optimizer):
    """Adam whose step, with its decay, is made as long as the weights are."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})
        self.mean, self.square, self.count = torch.zeros(30), torch.zeros(30), 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        (weight,) = self.param_groups[0]["params"]
        self.count += 1
        self.mean = 0.9 * self.mean + 0.1 * weight.grad
        self.square = 0.99 * self.square + 0.01 * weight.grad**2
        way = self.mean / (1 - 0.9**self.count) / ((self.square / (1 - 0.99**self.count)).sqrt() + 1e-6)
        way = way + 0.05 * weight
        weight.sub_(RATE * weight.norm() / way.norm() * way)


def test_trust_ratio_and_its_decay_are_found_without_any_settings() -> None:
    found = fitted({"w": trace(Lamb)}, candidates(()), {"w": [Decay()]})
    assert found is not None
    assert (found.law.trust_ratio, found.law.beta2, found.law.eps) == (True, 0.99, 1e-6)
    assert found.decays["w"] == Decay(0.05)
