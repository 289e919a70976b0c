"""Step 3: the cross entropy of the fake clips in paddle, saved as loss_paddle.npy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import argparse

import inputs
import paddle
from models.mvf_paddle import build_model
from recipe_paddle import build_loss
from settings import add_flags, from_flags

from reprod_log import ReprodLogger

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_flags(parser)
    parser.add_argument("--zero-fusion", action="store_true", help="plant a mistake: last fusion blind to time")
    flags = parser.parse_args()
    settings = from_flags(flags)

    weights = inputs.load_weights(settings)
    model = build_model(settings, inputs.without_last_time_view(weights) if flags.zero_fusion else weights)
    clips, labels = inputs.load_clips(settings)
    with paddle.no_grad():
        loss = build_loss()(model(paddle.to_tensor(clips).astype(settings.dtype)), paddle.to_tensor(labels))
    logger = ReprodLogger()
    logger.add("loss", loss.numpy())
    logger.save(str(HERE / "loss_paddle.npy"))


if __name__ == "__main__":
    main()
