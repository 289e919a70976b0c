"""Step 4: the losses of five iterations in paddle, saved as bp_align_paddle.npy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import argparse

import inputs
import paddle
from models.mvf_paddle import build_model
from recipe_paddle import build_optimizer, train_some_iterations
from settings import add_flags, from_flags

from reprod_log import ReprodLogger

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_flags(parser)
    parser.add_argument("--no-weight-decay", action="store_true", help="plant a mistake: the optimizer without decay")
    parser.add_argument("--zero-fusion", action="store_true", help="plant a mistake: last fusion blind to time")
    flags = parser.parse_args()
    settings = from_flags(flags)

    weights = inputs.load_weights(settings)
    model = build_model(settings, inputs.without_last_time_view(weights) if flags.zero_fusion else weights)
    decay = 0.0 if flags.no_weight_decay else settings.weight_decay
    optimizer = build_optimizer(model, settings, weight_decay=decay)
    clips, labels = inputs.load_clips(settings)
    losses = train_some_iterations(
        model,
        optimizer,
        paddle.to_tensor(clips).astype(settings.dtype),
        paddle.to_tensor(labels),
        iterations=settings.iterations,
    )
    logger = ReprodLogger()
    for index, loss in enumerate(losses):
        print(f"paddle loss_{index}: {loss.item()}")
        logger.add(f"loss_{index}", loss.numpy())
    logger.save(str(HERE / "bp_align_paddle.npy"))


if __name__ == "__main__":
    main()
