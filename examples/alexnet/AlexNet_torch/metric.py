"""Step 2: top-1 accuracy on sixteen made pictures, saved as metric_torch.npy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import inputs
import torch
from models.alexnet_torch import build_model
from recipe_torch import top1
from settings import read_settings

from reprod_log import ReprodLogger


def main() -> None:
    settings = read_settings(__doc__)
    model = build_model(settings, inputs.load_weights(settings))
    data = inputs.load_data(settings)
    with torch.no_grad():
        logits = model(torch.from_numpy(data["metric_data"]).to(next(model.parameters()).dtype))
        accuracy = top1(logits, torch.from_numpy(data["metric_label"]))
    print(f"top1 {accuracy.item():.4f}")
    logger = ReprodLogger()
    logger.add("top1", accuracy.numpy())
    logger.save(str(Path(__file__).with_name("metric_torch.npy")))


if __name__ == "__main__":
    main()
