"""Look-up tables. Stored alike everywhere; torch's bag sums the rows and has no partner in paddle.nn."""

import numpy as np

from reprod_log.layers.rule import LayerFacts, Layout, Probe, Rule, same
from reprod_log.layers.transform import Array


def _rows(layer: LayerFacts, random: np.random.Generator) -> tuple[Array, ...]:
    count = layer.shapes["weight"][0]
    # Every row of a small table; of a large one a sample with both ends, where a padding row usually lies.
    chosen = np.arange(count) if count <= 256 else np.append(random.integers(0, count, 254), (0, count - 1))
    return (chosen.astype(np.int64).reshape(1, -1),)


RULES = (
    Rule(
        "Embedding",
        (
            Layout("torch", ("Embedding",), same("weight")),
            Layout("paddle", ("Embedding", "VocabParallelEmbedding"), same("weight")),
        ),
        Probe(_rows),
        scale_only=True,
    ),
    Rule(
        "EmbeddingBag",
        (Layout("torch", ("EmbeddingBag",), same("weight")), Layout("paddle", ("EmbeddingBag",), same("weight"))),
        Probe(_rows),
        scale_only=True,
    ),
)
