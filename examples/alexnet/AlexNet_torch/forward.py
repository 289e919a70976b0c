"""Step 1: the logits of one fake picture, saved as forward_torch.npy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import inputs
import torch
from models.alexnet_torch import build_model
from settings import read_settings

from reprod_log import ReprodLogger


def main() -> None:
    settings = read_settings(__doc__)
    model = build_model(settings, inputs.load_weights(settings))
    image = torch.from_numpy(inputs.load_data(settings)["fake_data"]).to(next(model.parameters()).dtype)
    with torch.no_grad():
        logits = model(image)
    logger = ReprodLogger()
    logger.add("logits", logits.numpy())
    logger.save(str(Path(__file__).with_name("forward_torch.npy")))


if __name__ == "__main__":
    main()
