"""Activations with parameters of their own."""

import numpy as np

from reprod_log.layers.rule import LayerFacts, Layout, Probe, Rule, TensorMap, same
from reprod_log.layers.rules.convolution import move_channels_back, move_channels_in
from reprod_log.layers.transform import Array


def _image(layer: LayerFacts, random: np.random.Generator) -> tuple[Array, ...]:
    return (random.standard_normal((3, layer.shapes["weight"][0], 4, 5)),)


RULES = (
    Rule(
        "PReLU",
        (
            Layout("torch", ("PReLU",), same("weight")),
            # The name changed between paddle versions.
            Layout("paddle", ("PReLU",), (TensorMap("_weight", ("weight",)), TensorMap("weight", ("weight",)))),
        ),
        Probe(_image, move_channels_in, move_channels_back),
    ),
)
