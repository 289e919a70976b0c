"""Step 4: the losses of five iterations on one fake picture and label, saved as bp_align_torch.npy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import argparse

import inputs
import numpy as np
from models.alexnet_torch import build_model
from recipe_torch import build_optimizer, train_some_iterations
from settings import add_flags, from_flags
from torch import Tensor, nn

from reprod_log import ReprodLogger

HERE = Path(__file__).resolve().parent
# The layers whose output goes straight into a ReLU.
RELU_INPUTS = ("conv1", "conv2", "conv3", "conv4", "conv5", "fc6", "fc7")


def record_relu_inputs(model: nn.Module) -> ReprodLogger:
    """Returns a logger that will hold every ReLU's input of every iteration, under iteration_0_conv1 and so on."""
    logger = ReprodLogger()

    def hook_for(name: str):
        calls = iter(range(10**9))

        def hook(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            logger.add(f"iteration_{next(calls)}_{name}", np.array(output.detach().numpy()))

        return hook

    for name in RELU_INPUTS:
        getattr(model, name).register_forward_hook(hook_for(name))
    return logger


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_flags(parser)
    parser.add_argument("--record-relu", action="store_true", help="also save every ReLU's input (check_kink.py)")
    flags = parser.parse_args()
    settings = from_flags(flags)

    model = build_model(settings, inputs.load_weights(settings))
    relu_inputs = record_relu_inputs(model) if flags.record_relu else None
    data = inputs.load_data(settings)
    losses = train_some_iterations(
        model,
        build_optimizer(model, settings, lr=settings.lr),
        data["fake_data"],
        data["fake_label"],
        iterations=settings.iterations,
    )

    logger = ReprodLogger()
    for index, loss in enumerate(losses):
        print(f"torch loss_{index}: {loss.item()}")
        logger.add(f"loss_{index}", loss.numpy())
    logger.save(str(HERE / "bp_align_torch.npy"))
    if relu_inputs is not None:
        relu_inputs.save(str(HERE / "relu_inputs_torch.npy"))


if __name__ == "__main__":
    main()
