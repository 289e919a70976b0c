"""A graph that was exported from Keras has its images with the channels last, and each of its layers alone as well."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import layers

from reprod_log import Status, align_models


def network(size):
    given = keras.Input((size, size, 3))
    x = layers.Conv2D(size, 3, padding="same", use_bias=False)(given)
    x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
    x = layers.DepthwiseConv2D(3, padding="same")(x)
    return keras.Model(given, layers.Dense(4)(layers.GlobalAveragePooling2D()(x)))


@pytest.mark.parametrize("size", [6, 8])
def test_graph_of_a_keras_model_is_aligned_with_it(size, tmp_path):
    keras.utils.set_random_seed(0)
    model, rows = network(size), np.random.default_rng(0).normal(size=(1, size, size, 3)).astype(np.float32)
    model(rows)
    model.export(tmp_path / "model.onnx", format="onnx", verbose=False)
    found = align_models(model, tmp_path / "model.onnx", rows)
    assert found.status is Status.PASS, str(found)
    assert {one.key.run.partition(".")[0] for one in found.verdict.judgements} == {"", "isolated"}
