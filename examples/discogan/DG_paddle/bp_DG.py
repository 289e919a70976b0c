"""The losses of five iterations on two fake batches, saved as bp_paddle.npy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import argparse
from collections.abc import Mapping

import inputs
import numpy as np
import paddle
from models.discogan_paddle import build_networks
from recipe_paddle import train_some_iterations
from settings import add_flags, from_flags

from reprod_log import ReprodLogger

HERE = Path(__file__).resolve().parent


def published_weights(weights: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, Mapping[str, np.ndarray]]:
    """Returns the weights as the published script loads them: generator_B twice and discriminator_B twice."""
    # The published script asks for the same two networks as torch's, but its converter writes all four into one dict:
    # the last generator and the last discriminator overwrite the first ones.
    return {
        "generator_A": weights["generator_B"],
        "generator_B": weights["generator_B"],
        "discriminator_A": weights["discriminator_B"],
        "discriminator_B": weights["discriminator_B"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_flags(parser)
    parser.add_argument("--as-published", action="store_true", help="load the weights as the published script does")
    flags = parser.parse_args()
    settings = from_flags(flags)

    weights = inputs.load_weights(settings)
    networks = build_networks(settings, published_weights(weights) if flags.as_published else weights)
    a, b = (paddle.to_tensor(array).astype(settings.dtype) for array in inputs.load_data(settings))
    generator_losses, discriminator_losses = train_some_iterations(networks, a, b, settings)

    logger = ReprodLogger()
    for kind, losses in (("gen", generator_losses), ("dis", discriminator_losses)):
        for index, loss in enumerate(losses):
            print(f"paddle {kind} loss {index}: {loss.item()}")
            logger.add(f"{kind}_loss_{index}", loss.numpy())
    logger.save(str(HERE / "bp_paddle.npy"))


if __name__ == "__main__":
    main()
