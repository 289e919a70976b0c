"""Linear and bilinear layers. Only paddle.nn stores a linear weight as (in, out); paddle.compat.nn follows torch."""

import numpy as np

from reprod_log.layers.rule import LayerFacts, Layout, Probe, Rule, TensorMap, same
from reprod_log.layers.transform import SWAP, Array, Transform


def _rows(layer: LayerFacts, random: np.random.Generator) -> tuple[Array, ...]:
    return (random.standard_normal((4, layer.shapes["weight"][1])),)


def _two_rows(layer: LayerFacts, random: np.random.Generator) -> tuple[Array, ...]:
    _, first, second = layer.shapes["weight"]
    return random.standard_normal((4, first)), random.standard_normal((4, second))


RULES = (
    Rule(
        "Linear",
        (
            Layout("torch", ("Linear",), same("weight", "bias")),
            # fleet's split layers have pieces of what a whole one has.
            Layout(
                "paddle",
                ("Linear", "ColumnParallelLinear", "RowParallelLinear"),
                (TensorMap("weight", ("weight",), SWAP), *same("bias")),
            ),
            Layout("paddle.compat", ("Linear",), same("weight", "bias")),
        ),
        Probe(_rows),
    ),
    Rule(
        "Bilinear",
        (
            Layout("torch", ("Bilinear",), same("weight", "bias")),
            # paddle keeps the bias as (1, out).
            Layout(
                "paddle", ("Bilinear",), (*same("weight"), TensorMap("bias", ("bias",), Transform(flat=True, lead=1)))
            ),
        ),
        Probe(_two_rows),
    ),
)
