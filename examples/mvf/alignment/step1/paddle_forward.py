"""Step 1: the logits of the fake clips in paddle, saved as forward_paddle.npy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import inputs
import paddle
from models.mvf_paddle import build_model
from settings import read_settings

from reprod_log import ReprodLogger

HERE = Path(__file__).resolve().parent


def main() -> None:
    settings = read_settings(__doc__)
    model = build_model(settings, inputs.load_weights(settings))
    clips, _ = inputs.load_clips(settings)
    with paddle.no_grad():
        logits = model(paddle.to_tensor(clips).astype(settings.dtype))
    logger = ReprodLogger()
    logger.add("logits", logits.numpy())
    logger.save(str(HERE / "forward_paddle.npy"))


if __name__ == "__main__":
    main()
