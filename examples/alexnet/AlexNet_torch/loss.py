"""Step 3: the cross entropy of one fake picture, saved as loss_torch.npy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import inputs
import torch
from models.alexnet_torch import build_model
from recipe_torch import build_loss
from settings import read_settings

from reprod_log import ReprodLogger


def main() -> None:
    settings = read_settings(__doc__)
    model = build_model(settings, inputs.load_weights(settings))
    data = inputs.load_data(settings)
    with torch.no_grad():
        logits = model(torch.from_numpy(data["fake_data"]).to(next(model.parameters()).dtype))
        loss = build_loss()(logits, torch.from_numpy(data["fake_label"]))
    logger = ReprodLogger()
    logger.add("loss", loss.numpy())
    logger.save(str(Path(__file__).with_name("loss_torch.npy")))


if __name__ == "__main__":
    main()
