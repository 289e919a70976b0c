"""How each framework keeps the state of an optimizer: names of moments, and how the number of steps is told. Data only.

The canonical state is torch's: moments by torch's names and a number of steps. Moments are laid out like their weights.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reprod_log.errors import TransferError
from reprod_log.layers.transform import Array

STEP = "step"


@dataclass(frozen=True)
class Slot:
    """One moment under its two names.

    `option` is the setting of torch's optimizer without which it keeps no such moment. `holds_rate`: paddle's copy
    has the learning rate multiplied in.
    """

    torch: str
    paddle: str
    option: str = ""
    holds_rate: bool = False


@dataclass(frozen=True)
class OptimizerRule:
    """One optimizer: its classes, its moments, and the powers by which paddle counts steps (after t: beta**(t+1))."""

    kind: str
    torch_class: str
    paddle_classes: tuple[str, ...]
    slots: tuple[Slot, ...]
    powers: tuple[tuple[str, str], ...] = ()
    # Whether torch keeps a step count at all.
    counted: bool = True


_ADAM = (Slot("exp_avg", "moment1"), Slot("exp_avg_sq", "moment2"), Slot("max_exp_avg_sq", "moment2_max", "amsgrad"))
_BETAS = (("beta1_pow_acc", "beta1"), ("beta2_pow_acc", "beta2"))

RULES = (
    OptimizerRule("SGD", "SGD", ("SGD", "Momentum"), (Slot("momentum_buffer", "velocity", "momentum"),), counted=False),
    OptimizerRule("AdamW", "AdamW", ("AdamW",), _ADAM, _BETAS),
    OptimizerRule("Adam", "Adam", ("Adam",), _ADAM, _BETAS),
    OptimizerRule(
        "Adamax", "Adamax", ("Adamax",), (Slot("exp_avg", "moment"), Slot("exp_inf", "inf_norm")), _BETAS[:1]
    ),
    OptimizerRule("Adagrad", "Adagrad", ("Adagrad",), (Slot("sum", "moment"),)),
    OptimizerRule(
        "RMSprop",
        "RMSprop",
        ("RMSProp",),
        (
            Slot("square_avg", "mean_square"),
            Slot("grad_avg", "mean_grad", "centered"),
            Slot("momentum_buffer", "momentum", "momentum", holds_rate=True),
        ),
    ),
    OptimizerRule(
        "Adadelta",
        "Adadelta",
        ("Adadelta",),
        (Slot("square_avg", "_avg_squared_grad"), Slot("acc_delta", "_avg_squared_update")),
    ),
)


def find_optimizer_rule(framework: str, class_names: list[str]) -> OptimizerRule | None:
    """The rule for the first of these class names (an optimizer's own and those it descends from)."""
    for name in class_names:
        for rule in RULES:
            if name in ((rule.torch_class,) if framework == "torch" else rule.paddle_classes):
                return rule
    return None


def to_canonical(
    rule: OptimizerRule, framework: str, state: Mapping[str, Array], settings: Mapping[str, float]
) -> dict[str, Array]:
    """A parameter's state under torch's names, with its number of steps where it can be told."""
    if framework == "torch":
        return dict(state)
    result = {}
    for slot in rule.slots:
        if slot.paddle in state:
            result[slot.torch] = state[slot.paddle] / _rate(slot, settings)
    steps = _steps(rule, state, settings)
    if steps is not None:
        result[STEP] = np.asarray(steps, np.float32)
    return result


def from_canonical(
    rule: OptimizerRule, framework: str, state: Mapping[str, Array], settings: Mapping[str, float]
) -> dict[str, Array]:
    """A parameter's state under the framework's own names."""
    if framework == "torch":
        kept = {slot.torch: state[slot.torch] for slot in rule.slots if slot.torch in state}
        return ({STEP: state.get(STEP, np.asarray(0.0, np.float32))} if rule.counted else {}) | kept
    result: dict[str, Array] = {
        slot.paddle: state[slot.torch] * _rate(slot, settings) for slot in rule.slots if slot.torch in state
    }
    for name, beta in rule.powers:
        result[name] = np.asarray([settings[beta] ** (float(state[STEP]) + 1.0)])
    return result


def _rate(slot: Slot, settings: Mapping[str, float]) -> Any:
    if not slot.holds_rate:
        return 1
    if not settings["lr"] > 0.0:
        raise TransferError(
            f"paddle keeps '{slot.paddle}' multiplied by the learning rate, which is {settings['lr']}: "
            "set it above zero before the transfer."
        )
    return settings["lr"]


def _steps(rule: OptimizerRule, state: Mapping[str, Array], settings: Mapping[str, float]) -> float | None:
    """The number of steps from the powers of beta: the first that has not yet vanished in float32."""
    steps = None
    for name, beta in rule.powers:
        if name not in state or not 0.0 < settings[beta] < 1.0:
            continue
        power = float(np.asarray(state[name]).reshape(-1)[0])
        # Below this the power has lost its precision; a step count that large makes every bias correction one.
        steps = round(math.log(max(power, 1e-30)) / math.log(settings[beta])) - 1
        if power > 1e-30:
            break
    return None if steps is None else float(steps)
