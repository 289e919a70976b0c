"""Ports of which a person stated something, right or wrong: weights loaded by their own hand, or a map of names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Stated:
    """`loaded`: weights by the hand-written converter, with transfer=False. `rename`: the map that is given."""

    port: str
    formulation: str
    loaded: bool = True
    rename: Mapping[str, str] = field(default_factory=dict)
    crossed: tuple[str, str] | None = None
    """Two weights of the candidate that the hand-written loading exchanged: the port must not pass."""
    wrong: bool = False
    """Whether the map is wrong: the port must not pass."""

    @property
    def correct(self) -> bool:
        return self.crossed is None and not self.wrong

    @property
    def name(self) -> str:
        how = "loaded" if self.loaded else "renamed"
        return f"{self.port}/{self.formulation} {how}{'' if self.correct else ' wrongly'}"


_LOADED = (
    "pad_outside/inside", "causal_chomp/left", "gated_dilated/packed", "point_conv/linear", "text_conv/two_d",
    "plain_conv/unfold", "patches/linear", "squeeze_excite/last", "small_unet/split", "inception/packed",
    "channels_first/last", "mixer/einsum", "attention_framework/packed", "attention_separate/head_tensors",
    "attention_interleaved/packed", "grouped_queries/falcon", "cross_attention/packed", "swin_windows/stored",
    "rotary/pairs", "layer_normed/functional", "rms_upcast/flat", "instance_normed/groups", "weight_normed/removed",
    "batch_normed/folded", "crossing_digits/flat", "fused_lstm/gates", "fused_gru/cells", "both_ways/apart",
    "speaker/gates", "swiglu/packed", "experts/stacked", "lora/merged", "tied/parameter", "with_pooler/other",
    "llama/fused", "gpt/tuple", "vae/dict", "clip/stacked", "with_average/flat", "several_models/bare", "momentum/bare",
)  # fmt: skip

_RENAMED: dict[str, dict[str, str]] = {
    "channels_first/between": {"stem": "l0", "depth": "l1", "norm": "l2", "head": "l3"},
    "small_unet/nested": {
        "down1": "net.enter", "down2": "net.inner.enter", "middle": "net.inner.inner.0", "up": "net.inner.inner.2",
        "merge": "net.leave.0", "out": "net.leave.2",
    },
    "super_resolution/reshape": {
        "head": "enter", "blocks.0": "block3", "blocks.1": "block2", "blocks.2": "block1", "tail": "leave",
    },
    "encoder_layer/hand": {
        "words": "emb", "layer.norm1": "norm2", "layer.norm2": "norm1", "layer.linear1": "fc_in",
        "layer.linear2": "fc_out", "head": "cls",
    },
    "plain_conv/functional": {
        "conv.weight": "w1", "conv.bias": "b1", "deep.weight": "w2", "fc.weight": "w3", "fc.bias": "b3",
    },
    "momentum/bare": {"fc1.weight": "first", "fc1.bias": "first_b", "fc2.weight": "last", "fc2.bias": "last_b"},
    "graph/first": {"lin1.weight": "W1", "lin1.bias": "b1", "lin2.weight": "W2", "lin2.bias": "b2"},
    "several_models/named": {"generator.0": "generator.hidden", "generator.2": "generator.out"},
    "linear_attention/einsum": {"q": "theta", "k": "phi", "v": "g"},
    "additive_attention/named": {"query": "W", "key": "U", "score": "v"},
    "swiglu/separate": {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"},
    "tower/flat": {
        "block.left.0": "fc5", "block.left.2": "fc4", "block.right.0": "fc3", "block.right.2": "fc2", "join": "fc1",
    },
    "vae/named": {
        "encoder": "enc", "mu": "mean", "logvar": "log_variance", "decoder.0": "dec1", "decoder.2": "dec2",
    },
    "sets/flat": {"phi1": "l3", "phi2": "l1", "rho1": "l2", "rho2": "l0"},
    "with_average/none": {"net.0": "model.0", "net.2": "model.2"},
    "features/list": {"hour": "tables.0", "user": "tables.1", "item": "tables.2"},
}  # fmt: skip

_CROSSED = {
    "attention_separate/scaled_dot": ("query.weight", "key.weight"),
    "swiglu/separate": ("w1.weight", "w3.weight"),
    "vae/named": ("mean.weight", "log_variance.weight"),
    "two_layers/cells": ("cells.0.weight_hh", "cells.1.weight_hh"),
    "super_resolution/reshape": ("block1.weight", "block2.weight"),
    "tower/flat": ("fc5.weight", "fc4.weight"),
    "mixer/conv": ("norm1.weight", "norm2.weight"),
    "features/list": ("tables.0.weight", "tables.1.weight"),
}

_WRONG = {
    "swiglu/separate": {"gate_proj": "w3", "down_proj": "w2", "up_proj": "w1"},
    "linear_attention/einsum": {"q": "phi", "k": "theta", "v": "g"},
    "super_resolution/reshape": {"blocks.0": "block1", "blocks.2": "block3"},
    "sets/flat": {"phi1": "l3", "phi2": "l2", "rho1": "l1", "rho2": "l0"},
}

STATED = (
    *(Stated(*name.split("/")) for name in _LOADED),
    *(Stated(*name.split("/"), loaded=False, rename=names) for name, names in _RENAMED.items()),
    *(Stated(*name.split("/"), crossed=weights) for name, weights in _CROSSED.items()),
    *(Stated(*name.split("/"), loaded=False, rename=names, wrong=True) for name, names in _WRONG.items()),
)
