"""Makes body_weights.npz: everything below the head, in torch's layout (the pretrained body cannot be had here)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from settings import Settings, read_settings

HERE = Path(__file__).resolve().parent


def body_shapes(settings: Settings) -> dict[str, tuple[int, ...]]:
    """Returns name and shape of every parameter of the body, in torch's layout."""
    hidden, wide = settings.hidden, settings.feed_forward
    shapes: dict[str, tuple[int, ...]] = {
        "word.weight": (settings.vocabulary, hidden),
        "position.weight": (settings.positions, hidden),
        "token_type.weight": (settings.token_types, hidden),
        "embedding_norm.weight": (hidden,),
        "embedding_norm.bias": (hidden,),
        "projection.weight": (hidden, hidden),
        "projection.bias": (hidden,),
    }
    for index in range(settings.layers):
        shapes |= {
            f"layers.{index}.mixing_norm.weight": (hidden,),
            f"layers.{index}.mixing_norm.bias": (hidden,),
            f"layers.{index}.wide.weight": (wide, hidden),
            f"layers.{index}.wide.bias": (wide,),
            f"layers.{index}.narrow.weight": (hidden, wide),
            f"layers.{index}.narrow.bias": (hidden,),
            f"layers.{index}.output_norm.weight": (hidden,),
            f"layers.{index}.output_norm.bias": (hidden,),
        }
    return shapes | {"pooler.weight": (hidden, hidden), "pooler.bias": (hidden,)}


def draw_body(settings: Settings) -> dict[str, np.ndarray]:
    """Returns the weights below the head in torch's layout: deviation 0.02, no biases, neutral normalisations."""
    rng = np.random.default_rng(settings.body_seed)
    drawn: dict[str, np.ndarray] = {}
    for name, shape in body_shapes(settings).items():
        if name.endswith("bias"):
            drawn[name] = np.zeros(shape, np.float32)
        elif "norm" in name:
            drawn[name] = np.ones(shape, np.float32)
        else:
            drawn[name] = (rng.standard_normal(shape, dtype=np.float32) * np.float32(0.02)).astype(np.float32)
    # paddle's embedding gives zeros for the padding id whatever the row holds; torch gives the row. Equal only if zero.
    drawn["word.weight"][settings.padding_id] = 0.0
    return drawn


def generate_body_weights(settings: Settings) -> None:
    """Writes the file."""
    np.savez(HERE / f"body_weights{settings.suffix}.npz", **draw_body(settings))


if __name__ == "__main__":
    generate_body_weights(read_settings(__doc__))
