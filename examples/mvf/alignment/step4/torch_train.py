"""Step 4: the losses of five iterations in torch, saved as bp_align_torch.npy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import inputs
import torch
from models.mvf_torch import build_model
from recipe_torch import build_optimizer, train_some_iterations
from settings import read_settings

from reprod_log import ReprodLogger

HERE = Path(__file__).resolve().parent


def main() -> None:
    settings = read_settings(__doc__)
    model = build_model(settings, inputs.load_weights(settings))
    optimizer = build_optimizer(model, settings, weight_decay=settings.weight_decay)
    clips, labels = inputs.load_clips(settings)
    losses = train_some_iterations(
        model,
        optimizer,
        torch.from_numpy(clips).to(getattr(torch, settings.dtype)),
        torch.from_numpy(labels),
        iterations=settings.iterations,
    )
    logger = ReprodLogger()
    for index, loss in enumerate(losses):
        print(f"torch loss_{index}: {loss.item()}")
        logger.add(f"loss_{index}", loss.numpy())
    logger.save(str(HERE / "bp_align_torch.npy"))


if __name__ == "__main__":
    main()
