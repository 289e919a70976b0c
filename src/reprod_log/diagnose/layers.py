"""Own, inherited or between: what running each layer alone says about where an error comes from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from reprod_log.verdict import Judgement

LayerState = Literal["sound", "own", "inside", "glue", "inherited"]
"""sound: right alone and in the program; own: wrong alone, and nothing inside it is; inside: wrong because a layer
inside it is; glue: wrong alone although all layers inside it are right, so the code between them is at fault;
inherited: right alone, wrong in the program because of what it was given."""


_ASPECTS = {"forward": 0, "backward": 1, "gradient": 1, "buffer": 2}
"""What of a layer can be wrong alone, the earliest in time first. A running variance that is wrong inside a block (an
accepted difference of two frameworks, say) does not explain why the block's output is."""
_RIGHT = 3


def layer_states(judgements: Iterable[Judgement]) -> dict[str, LayerState]:
    """The state of every layer that was run alone, in execution order, children before their parents."""
    alone: dict[str, int] = {}
    free: dict[str, bool] = {}
    for one in judgements:
        key = one.key
        if key.run == "isolated":
            layer = key.layer_alone
            aspect = _RIGHT if one.status.passed else _ASPECTS.get(key.phase, 0)
            alone[layer] = min(alone.get(layer, _RIGHT), aspect)
        elif not key.run and key.phase in ("forward", "backward") and not key.role.startswith("input"):
            free[key.path] = free.get(key.path, False) or not one.status.passed
    return {layer: _state(layer, alone, free) for layer in alone}


def _state(layer: str, alone: dict[str, int], free: dict[str, bool]) -> LayerState:
    inner = [path for path in alone if path != layer and (not layer or path.startswith(f"{layer}."))]
    if alone[layer] < _RIGHT:
        if any(alone[path] <= alone[layer] for path in inner):
            return "inside"
        return "glue" if inner else "own"
    return "inherited" if free.get(layer) else "sound"
