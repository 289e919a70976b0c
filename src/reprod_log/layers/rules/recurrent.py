"""Recurrent layers and their cells. Gate orders agree (i f g o, r z n); names and the projection's layout do not."""

import numpy as np

from reprod_log.layers.rule import Arguments, LayerFacts, Layout, Probe, Rule, TensorMap, same
from reprod_log.layers.transform import SWAP, Array

_ROLES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _torch_maps() -> tuple[TensorMap, ...]:
    names = [f"{role}_l{{n}}{end}" for end in ("", "_reverse") for role in (*_ROLES, "weight_hr")]
    return same(*names)


def _paddle_maps() -> tuple[TensorMap, ...]:
    # The cells' names, not the layer's own: with a projection paddle 3.3.1 gives those to the wrong tensors
    # ("weight_ih_l0_reverse" is then the projection of the forward cell).
    cells = (("cell", ""), ("cell_fw", ""), ("cell_bw", "_reverse"))
    maps = [TensorMap(f"{{n}}.{cell}.{role}", (f"{role}_l{{n}}{end}",)) for cell, end in cells for role in _ROLES]
    maps += [TensorMap(f"{{n}}.{cell}.weight_ho", (f"weight_hr_l{{n}}{end}",), SWAP) for cell, end in cells]
    return tuple(maps)


def _paddle_second_names() -> tuple[TensorMap, ...]:
    return same(*(f"{role}_l{{n}}{end}" for end in ("", "_reverse") for role in _ROLES))


def _sequence(layer: LayerFacts, random: np.random.Generator) -> tuple[Array, ...]:
    return (random.standard_normal((2, 5, layer.shapes["weight_ih_l0"][1])),)


def _time_first(layer: LayerFacts) -> bool:
    if layer.family == "torch":
        return not layer.get("batch_first", default=False)
    return bool(layer.get("time_major", default=False))


def _arrange(layer: LayerFacts, inputs: tuple[Array, ...]) -> Arguments:
    return tuple(x.swapaxes(0, 1) for x in inputs) if _time_first(layer) else inputs


def _restore(layer: LayerFacts, outputs: tuple[Array, ...]) -> tuple[Array, ...]:
    sequence, *states = outputs
    return (sequence.swapaxes(0, 1) if _time_first(layer) else sequence, *states)


def _step(layer: LayerFacts, random: np.random.Generator) -> tuple[Array, ...]:
    (rows, features), state = layer.shapes["weight_ih"], layer.shapes["weight_hh"][1]
    x, h = random.standard_normal((3, features)), random.standard_normal((3, state))
    # States that are not zero: otherwise weight_hh would not show in the output.
    return (x, h, random.standard_normal((3, rows // 4))) if layer.class_name == "LSTMCell" else (x, h)


def _arrange_step(layer: LayerFacts, inputs: tuple[Array, ...]) -> Arguments:
    x, *states = inputs
    return (x, tuple(states)) if len(states) > 1 else inputs


def _restore_step(layer: LayerFacts, outputs: tuple[Array, ...]) -> tuple[Array, ...]:
    # paddle returns the output and then the states, of which the first is the output again.
    return outputs[1:] if layer.family == "paddle" else outputs


_SEQUENCE = Probe(_sequence, _arrange, _restore)
_STEP = Probe(_step, _arrange_step, _restore_step)


def _layer(kind: str, paddle_name: str) -> Rule:
    layouts = (
        Layout("torch", (kind,), _torch_maps()),
        Layout("paddle", (paddle_name,), _paddle_maps(), _paddle_second_names()),
    )
    return Rule(kind, layouts, _SEQUENCE)


def _cell(kind: str, paddle_name: str) -> Rule:
    projection = TensorMap("weight_ho", ("weight_hr",), SWAP)
    layouts = (
        Layout("torch", (kind,), same(*_ROLES)),
        Layout("paddle", (paddle_name,), (*same(*_ROLES), projection)),
    )
    return Rule(kind, layouts, _STEP)


RULES = (
    _layer("RNN", "SimpleRNN"),
    _layer("LSTM", "LSTM"),
    _layer("GRU", "GRU"),
    _cell("RNNCell", "SimpleRNNCell"),
    _cell("LSTMCell", "LSTMCell"),
    _cell("GRUCell", "GRUCell"),
)
