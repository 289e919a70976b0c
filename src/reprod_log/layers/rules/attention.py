"""Multi-head attention: q, k and v packed into one tensor (torch, paddle.compat) or three linear layers (paddle)."""

import numpy as np

from reprod_log.layers.rule import Arguments, LayerFacts, Layout, Probe, Rule, TensorMap, same
from reprod_log.layers.transform import SWAP, THREE, Array

_QKV = ("q", "k", "v")


def _packed() -> tuple[TensorMap, ...]:
    separate = [TensorMap(f"{x}_proj_{part}", (f"{x}.{part}",)) for part in ("weight", "bias") for x in _QKV]
    return (
        TensorMap("in_proj_weight", tuple(f"{x}.weight" for x in _QKV), THREE),
        TensorMap("in_proj_bias", tuple(f"{x}.bias" for x in _QKV), THREE),
        *separate,
        TensorMap("out_proj.weight", ("out.weight",)),
        TensorMap("out_proj.bias", ("out.bias",)),
        *same("bias_k", "bias_v"),
    )


def _split() -> tuple[TensorMap, ...]:
    names = (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("out_proj", "out"))
    weights = tuple(TensorMap(f"{native}.weight", (f"{role}.weight",), SWAP) for native, role in names)
    return weights + tuple(TensorMap(f"{native}.bias", (f"{role}.bias",)) for native, role in names)


def _sequences(layer: LayerFacts, random: np.random.Generator) -> tuple[Array, ...]:
    widths = [layer.shapes[f"{x}.weight"][1] for x in _QKV]
    lengths = (4, 5, 5)
    return tuple(random.standard_normal((2, n, width)) for n, width in zip(lengths, widths, strict=True))


def _time_first(layer: LayerFacts) -> bool:
    # paddle.nn's own layer has no such setting: always batch first.
    return layer.family != "paddle" and not layer.get("batch_first", default=False)


def _arrange(layer: LayerFacts, inputs: tuple[Array, ...]) -> Arguments:
    return tuple(x.swapaxes(0, 1) for x in inputs) if _time_first(layer) else inputs


def _restore(layer: LayerFacts, outputs: tuple[Array, ...]) -> tuple[Array, ...]:
    # The attention weights that may follow are averaged over heads in one family and not in the other.
    return (outputs[0].swapaxes(0, 1) if _time_first(layer) else outputs[0],)


RULES = (
    Rule(
        "MultiheadAttention",
        (
            Layout("torch", ("MultiheadAttention",), _packed()),
            Layout("paddle", ("MultiHeadAttention",), _split()),
            Layout("paddle.compat", ("MultiheadAttention",), _packed()),
        ),
        Probe(_sequences, _arrange, _restore),
    ),
)
