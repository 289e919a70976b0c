"""What listening costs in further frameworks: processor time of a listened run over that of a plain one.

    KERAS_BACKEND=torch python benchmarks/frameworks.py

In the environment of `make test-frameworks`. The ratio is of the fastest of several rounds, both ways within a round.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import onnx
import torch
from keras import layers

from reprod_log.frameworks.keras.programs import KerasPrograms
from reprod_log.frameworks.onnx.engines import marked, run
from reprod_log.frameworks.onnx.graphs import Graph
from reprod_log.frameworks.side import Masks, Scope, Side

ROUNDS = 7


def fastest(*ways: Callable[[], Any]) -> list[float]:
    """The least processor time of each way, all of them in every round."""
    found = [[] for _ in ways]
    for _ in range(ROUNDS):
        for times, way in zip(found, ways, strict=True):
            start = time.process_time()
            way()
            times.append(time.process_time() - start)
    return [min(times) for times in found]


def onnx_graph() -> float:
    """Every value of a graph of convolutions, beside its outputs alone; both un-optimised."""
    parts: list[Any] = [torch.nn.Conv2d(3, 32, 3, padding=1)]
    for _ in range(8):
        parts += [torch.nn.BatchNorm2d(32), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3, padding=1)]
    file = io.BytesIO()
    torch.onnx.export(torch.nn.Sequential(*parts).eval(), (torch.randn(4, 3, 64, 64),), file, dynamo=False)
    graph = Graph(onnx.load_from_string(file.getvalue()))
    given = {graph.inputs[0]: np.random.default_rng(0).normal(size=(4, 3, 64, 64)).astype(np.float32)}
    wanted = dict.fromkeys(one for region in graph.regions for one in region.outputs)
    full = marked(graph.proto, wanted)
    plain, listened = fastest(lambda: run(graph.proto, given, None), lambda: run(full, given, None))
    return listened / plain


def keras_step() -> float:
    """A forward and backward pass with every layer's output and its gradient, beside one without."""
    width = 256
    given = keras.Input((32, width))
    x = given
    for _ in range(4):
        y = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization(epsilon=1e-5)(x))
        x = layers.Add()([x, layers.Dense(width)(y)])
    model = keras.Model(given, layers.Dense(10)(x))
    rows = np.random.default_rng(0).normal(size=(16, 32, width)).astype(np.float32)
    side = Side(model, lambda outputs: keras.ops.mean(outputs**2))
    with KerasPrograms().begun(side, Scope()) as running:
        inputs, trained = running.inputs((rows,)), running.of_training(running.arrays)

        def step(taps: bool) -> Callable[[], Any]:
            def function(leaves: Mapping[str, Any], rest: Any, own: Any) -> tuple[Any, Any]:
                started = running.model.start({**running.arrays, **leaves}, running.scope)
                with started.listening(own) if taps else nullcontext():
                    value = side.loss_of(started(*rest), None)
                return value, value

            run = running.engine.prepared(function, running.taps, backward=True)

            def ready() -> Any:
                gradients = run(trained, inputs, Masks().draw).gradients
                return keras.ops.convert_to_numpy(next(iter(gradients.values())))

            # The first call compiles where the backend does.
            ready()
            return ready

        plain, listened = fastest(step(False), step(True))
    return listened / plain


if __name__ == "__main__":
    print(f"ONNX Runtime, every value: {onnx_graph():.2f}")
    print(f"Keras on {keras.backend.backend()}, every output and its gradient: {keras_step():.2f}")
