"""Convolutions, plain and transposed. All families store the kernel alike; only paddle may expect channels last."""

from collections.abc import Callable

import numpy as np

from reprod_log.layers.rule import LayerFacts, Layout, Probe, Rule, same
from reprod_log.layers.transform import Array

Inputs = Callable[[LayerFacts, np.random.Generator], tuple[Array, ...]]


def channels_last(layer: LayerFacts) -> bool:
    """Whether the layer expects its channels in the last dimension."""
    layout = layer.get("_data_format", "data_format", default="")
    return isinstance(layout, str) and len(layout) > 2 and layout.endswith("C")


def move_channels_in(layer: LayerFacts, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
    """The inputs with channels where the layer expects them."""
    return tuple(np.moveaxis(x, 1, -1) for x in inputs) if channels_last(layer) else inputs


def move_channels_back(layer: LayerFacts, outputs: tuple[Array, ...]) -> tuple[Array, ...]:
    """The outputs with channels in dimension 1."""
    return tuple(np.moveaxis(x, -1, 1) for x in outputs) if channels_last(layer) else outputs


def _numbers(value: object, dimensions: int) -> list[int]:
    values = list(value) if isinstance(value, (tuple, list)) else [value] * dimensions
    return [number if isinstance(number, int) else 1 for number in (*values, *[1] * dimensions)][:dimensions]


def _image(transposed: bool) -> Inputs:
    def inputs(layer: LayerFacts, random: np.random.Generator) -> tuple[Array, ...]:
        weight = layer.shapes["weight"]
        kernel = weight[2:]
        groups = int(layer.get("groups", "_groups", default=1))
        channels = weight[0] if transposed else weight[1] * groups
        dilation = _numbers(layer.get("dilation", "_dilation", default=1), len(kernel))
        stride = _numbers(layer.get("stride", "_stride", default=1), len(kernel))
        # Room for more than one position of the kernel, so that stride and padding show in the output.
        space = [d * (k - 1) + 1 + s for k, d, s in zip(kernel, dilation, stride, strict=True)]
        return (random.standard_normal((2, channels, *space)),)

    return inputs


def _rules() -> tuple[Rule, ...]:
    rules = []
    for n in (1, 2, 3):
        plain = (f"Conv{n}D", f"Conv{n}d")
        turned = (f"Conv{n}DTranspose", f"ConvTranspose{n}d")
        for names, transposed in ((plain, False), (turned, True)):
            paddle_name, torch_name = names
            rules.append(
                Rule(
                    torch_name,
                    (
                        Layout("torch", (torch_name,), same("weight", "bias")),
                        Layout("paddle", tuple(dict.fromkeys((paddle_name, torch_name))), same("weight", "bias")),
                    ),
                    Probe(_image(transposed), move_channels_in, move_channels_back),
                )
            )
    return tuple(rules)


RULES = _rules()
