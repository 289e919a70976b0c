"""Step 1: the logits of the fake clips in torch, saved as forward_torch.npy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import inputs
import torch
from models.mvf_torch import build_model
from settings import read_settings

from reprod_log import ReprodLogger

HERE = Path(__file__).resolve().parent


def main() -> None:
    settings = read_settings(__doc__)
    model = build_model(settings, inputs.load_weights(settings))
    clips, _ = inputs.load_clips(settings)
    with torch.no_grad():
        logits = model(torch.from_numpy(clips).to(getattr(torch, settings.dtype)))
    logger = ReprodLogger()
    logger.add("logits", logits.numpy())
    logger.save(str(HERE / "forward_torch.npy"))


if __name__ == "__main__":
    main()
