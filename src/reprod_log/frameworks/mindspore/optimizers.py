"""MindSpore's optimizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mindspore import nn

from reprod_log.frameworks import contract
from reprod_log.recording import Array

_SLOTS: Mapping[str, Mapping[str, str]] = {
    "SGD": {"accum": "momentum_buffer"},
    "Momentum": {"moments": "momentum_buffer"},
    "Adam": {"moment1": "exp_avg", "moment2": "exp_avg_sq"},
    "AdamWeightDecay": {"moments1": "exp_avg", "moments2": "exp_avg_sq"},
    "RMSProp": {"ms": "square_avg"},
}
"""Lists of what an optimizer keeps for its parameters, with the canonical names."""
_KINDS = {"Momentum": "SGD", "AdamWeightDecay": "AdamW", "RMSProp": "RMSprop"}
"""What others call an optimizer."""
_WORDS = {"epsilon": "eps", "use_nesterov": "nesterov", "use_amsgrad": "amsgrad", "decay": "rho"}


class MindSporeOptimizers(contract.Optimizers):
    def is_optimizer(self, thing: object) -> bool:
        return isinstance(thing, nn.Optimizer)

    def parameters_of(self, optimizer: Any) -> list[Any]:
        return list(optimizer._parameters)

    def rates(self, optimizer: Any) -> list[float]:
        rate = optimizer.get_lr()
        rates = rate if isinstance(rate, (tuple, list)) else [rate]
        # They are kept as float32, which stand for the shortest number that is nearest to them.
        return list(dict.fromkeys(float(str(one.asnumpy().reshape(()))) for one in rates))

    def describe(self, optimizer: Any) -> dict[str, Any]:
        plain = {name: value for name, value in vars(optimizer).items() if isinstance(value, (bool, int, float))}
        known = {_WORDS.get(name, name): value for name, value in plain.items() if not name.startswith("_")}
        name = type(optimizer).__name__
        group = {
            word: known[word]
            for word in ("eps", "nesterov", "amsgrad", "rho", "dampening", "centered", "momentum")
            if word in known
        }
        momentum = optimizer._params.get("momentum")
        if momentum is not None:
            group["momentum"] = float(str(momentum.asnumpy().reshape(())))
        group["lr"] = self.rates(optimizer)[0]
        return {"type": _KINDS.get(name, name), "groups": [group]}

    def recorded_state(self, optimizer: Any, parameter: Any) -> list[tuple[str, Any, dict[str, Any]]]:
        places = [place for place, one in enumerate(optimizer._parameters) if one is parameter]
        if not places:
            return []
        facts = {"optimizer_step": int(optimizer.global_step.asnumpy().reshape(()))}
        slots = _SLOTS.get(type(optimizer).__name__, {})
        if "momentum" in optimizer._params and not float(optimizer._params["momentum"].asnumpy()):
            slots = {}
        return [(role, getattr(optimizer, name)[places[0]], facts) for name, role in slots.items()]

    def read_slots(self, optimizer: Any, parameter: Any) -> dict[str, Array]:
        return {role: value.asnumpy() for role, value, _ in self.recorded_state(optimizer, parameter)}

    def clear(self, optimizer: Any) -> None:
        pass  # gradients are not kept by parameters
