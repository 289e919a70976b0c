"""Batch, layer, group, instance and root-mean-square normalization."""

import re

import numpy as np

from reprod_log.layers.rule import LayerFacts, Layout, Probe, Rule, TensorMap, same
from reprod_log.layers.rules.convolution import move_channels_back, move_channels_in
from reprod_log.layers.transform import FLAT, Array


def _dimensions(layer: LayerFacts) -> int:
    found = re.search(r"(\d)[dD]$", layer.class_name)
    return int(found.group(1)) if found else 2


def _image(layer: LayerFacts, random: np.random.Generator) -> tuple[Array, ...]:
    channels = next(iter(layer.shapes.values()))[0]
    # A mean and spread of its own per channel, so that running statistics show in the output.
    x = random.standard_normal((3, channels, *[4] * _dimensions(layer)))
    return (x * 2.0 + 0.5,)


def _normalized(layer: LayerFacts, random: np.random.Generator) -> tuple[Array, ...]:
    shape = layer.get("normalized_shape", "_normalized_shape")
    sizes = [shape] if isinstance(shape, int) else list(shape)
    return (random.standard_normal((3, *sizes)) * 2.0 + 0.5,)


_IMAGE = Probe(_image, move_channels_in, move_channels_back)

RULES = (
    Rule(
        "BatchNorm",
        (
            Layout(
                "torch",
                ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"),
                # paddle does not count batches; the count only matters for torch's momentum=None.
                (*same("weight", "bias", "running_mean", "running_var"), *same("num_batches_tracked", optional=True)),
            ),
            Layout(
                "paddle",
                ("BatchNorm1D", "BatchNorm2D", "BatchNorm3D", "BatchNorm", "SyncBatchNorm"),
                (
                    *same("weight", "bias"),
                    TensorMap("_mean", ("running_mean",)),
                    TensorMap("_variance", ("running_var",)),
                ),
            ),
        ),
        _IMAGE,
    ),
    Rule(
        "LayerNorm",
        (
            # Canonical is flat: paddle keeps the weight of several dimensions as one, torch does not.
            Layout(
                "torch",
                ("LayerNorm",),
                (TensorMap("weight", ("weight",), FLAT), TensorMap("bias", ("bias",), FLAT)),
            ),
            Layout(
                "paddle",
                ("LayerNorm",),
                (TensorMap("weight", ("weight",), FLAT), TensorMap("bias", ("bias",), FLAT)),
            ),
        ),
        Probe(_normalized),
    ),
    Rule(
        "GroupNorm",
        (
            Layout("torch", ("GroupNorm",), same("weight", "bias")),
            Layout("paddle", ("GroupNorm",), same("weight", "bias")),
        ),
        _IMAGE,
    ),
    Rule(
        "InstanceNorm",
        (
            Layout(
                "torch",
                ("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"),
                (*same("weight", "bias", "running_mean", "running_var"), *same("num_batches_tracked", optional=True)),
            ),
            Layout(
                "paddle",
                ("InstanceNorm1D", "InstanceNorm2D", "InstanceNorm3D"),
                (TensorMap("scale", ("weight",)), *same("bias")),
            ),
        ),
        _IMAGE,
    ),
    Rule(
        "RMSNorm",
        (
            Layout("torch", ("RMSNorm",), (TensorMap("weight", ("weight",), FLAT),)),
            Layout("paddle", ("RMSNorm",), (TensorMap("weight", ("weight",), FLAT),)),
        ),
        Probe(_normalized),
    ),
)
