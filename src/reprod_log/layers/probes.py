"""How layers of each family of kinds are run alone: the inputs made up for them, and the arrangement they expect."""

from __future__ import annotations

import re
from functools import partial

import numpy as np

from reprod_log.layers.rows import Arguments, LayerFacts, Probe
from reprod_log.recording import Array

Arrays = tuple[Array, ...]


def _move_channels_in(layer: LayerFacts, inputs: Arrays) -> Arrays:
    """The inputs with channels where the layer expects them."""
    return tuple(np.moveaxis(x, 1, -1) for x in inputs) if layer.column.channels_last(layer.settings) else inputs


def _move_channels_back(layer: LayerFacts, outputs: Arrays) -> Arrays:
    """The outputs with channels in dimension 1."""
    return tuple(np.moveaxis(x, -1, 1) for x in outputs) if layer.column.channels_last(layer.settings) else outputs


def _rows(layer: LayerFacts, random: np.random.Generator) -> Arrays:
    return (random.standard_normal((4, layer.shapes["weight"][1])),)


def _two_rows(layer: LayerFacts, random: np.random.Generator) -> Arrays:
    _, first, second = layer.shapes["weight"]
    return random.standard_normal((4, first)), random.standard_normal((4, second))


def _indices(layer: LayerFacts, random: np.random.Generator) -> Arrays:
    count = layer.shapes["weight"][0]
    # Every row of a small table; of a large one a sample with both ends, where a padding row usually lies.
    chosen = np.arange(count) if count <= 256 else np.append(random.integers(0, count, 254), (0, count - 1))
    return (chosen.astype(np.int64).reshape(1, -1),)


def _numbers(value: object, dimensions: int) -> list[int]:
    values = list(value) if isinstance(value, (tuple, list)) else [value] * dimensions
    return [number if isinstance(number, int) else 1 for number in (*values, *[1] * dimensions)][:dimensions]


def _convolved(layer: LayerFacts, random: np.random.Generator, *, transposed: bool) -> Arrays:
    weight = layer.shapes["weight"]
    kernel = weight[2:]
    channels = weight[0] if transposed else weight[1] * int(layer.settings.get("groups", 1))
    dilation = _numbers(layer.settings.get("dilation", 1), len(kernel))
    stride = _numbers(layer.settings.get("stride", 1), len(kernel))
    # Room for more than one position of the kernel, so that stride and padding show in the output.
    space = [d * (k - 1) + 1 + s for k, d, s in zip(kernel, dilation, stride, strict=True)]
    return (random.standard_normal((2, channels, *space)),)


def _normalized_image(layer: LayerFacts, random: np.random.Generator) -> Arrays:
    channels = next(iter(layer.shapes.values()))[0]
    found = re.search(r"(\d)[dD]$", layer.class_name)
    dimensions = int(found.group(1)) if found else 2
    # A mean and spread of its own per channel, so that running statistics show in the output.
    return (random.standard_normal((3, channels, *[4] * dimensions)) * 2.0 + 0.5,)


def _normalized_rows(layer: LayerFacts, random: np.random.Generator) -> Arrays:
    shape = layer.settings["normalized_shape"]
    sizes = [shape] if isinstance(shape, int) else list(shape)
    return (random.standard_normal((3, *sizes)) * 2.0 + 0.5,)


def _image(layer: LayerFacts, random: np.random.Generator) -> Arrays:
    return (random.standard_normal((3, layer.shapes["weight"][0], 4, 5)),)


def _sequence(layer: LayerFacts, random: np.random.Generator) -> Arrays:
    return (random.standard_normal((2, 5, layer.shapes["weight_ih_l0"][1])),)


def _attended(layer: LayerFacts, random: np.random.Generator) -> Arrays:
    widths = [layer.shapes[f"{x}.weight"][1] for x in ("q", "k", "v")]
    return tuple(random.standard_normal((2, n, width)) for n, width in zip((4, 5, 5), widths, strict=True))


def _time_in(layer: LayerFacts, inputs: Arrays) -> Arguments:
    return tuple(x.swapaxes(0, 1) for x in inputs) if layer.column.time_first(layer.settings) else inputs


def _time_back(layer: LayerFacts, outputs: Arrays) -> Arrays:
    sequence, *states = outputs
    return (sequence.swapaxes(0, 1) if layer.column.time_first(layer.settings) else sequence, *states)


def _attended_back(layer: LayerFacts, outputs: Arrays) -> Arrays:
    # The attention weights that may follow are averaged over heads in one framework and not in the other.
    return _time_back(layer, outputs)[:1]


def _step(layer: LayerFacts, random: np.random.Generator) -> Arrays:
    (rows, features), state = layer.shapes["weight_ih"], layer.shapes["weight_hh"][1]
    x, h = random.standard_normal((3, features)), random.standard_normal((3, state))
    # States that are not zero: otherwise weight_hh would not show in the output.
    return (x, h, random.standard_normal((3, rows // 4))) if layer.class_name == "LSTMCell" else (x, h)


def _step_in(layer: LayerFacts, inputs: Arrays) -> Arguments:
    x, *states = inputs
    return (x, tuple(states)) if len(states) > 1 else inputs


def _step_back(layer: LayerFacts, outputs: Arrays) -> Arrays:
    # Some frameworks return the output and then the states, of which the first is the output again.
    repeated = len(outputs) > 1 and np.array_equal(outputs[0], outputs[1], equal_nan=True)
    return outputs[1:] if repeated else outputs


ROWS = Probe(_rows)
TWO_ROWS = Probe(_two_rows)
INDICES = Probe(_indices)
CONVOLVED = Probe(partial(_convolved, transposed=False), _move_channels_in, _move_channels_back)
CONVOLVED_BACK = Probe(partial(_convolved, transposed=True), _move_channels_in, _move_channels_back)
NORMALIZED_IMAGE = Probe(_normalized_image, _move_channels_in, _move_channels_back)
NORMALIZED_ROWS = Probe(_normalized_rows)
IMAGE = Probe(_image, _move_channels_in, _move_channels_back)
SEQUENCE = Probe(_sequence, _time_in, _time_back)
ATTENDED = Probe(_attended, _time_in, _attended_back)
STEP = Probe(_step, _step_in, _step_back)
