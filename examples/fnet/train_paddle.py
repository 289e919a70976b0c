"""The losses of ten iterations in paddle, saved as bp_align_paddle.npy."""

from __future__ import annotations

import inputs
from models.fnet_paddle import build_model
from recipe_paddle import build_optimizer, train_some_iterations
from settings import ROOT, read_settings

from reprod_log import ReprodLogger


def main() -> None:
    settings = read_settings(__doc__)
    model = build_model(settings, inputs.load_body(settings), inputs.load_classifier(settings, side="paddle"))
    optimizer = build_optimizer(model, settings)
    ids, labels = inputs.load_data(settings)
    losses = train_some_iterations(model, optimizer, ids, labels, iterations=settings.iterations)

    logger = ReprodLogger()
    for index, loss in enumerate(losses):
        print(f"paddle loss_{index}: {loss.item()}")
        logger.add(f"loss_{index}", loss.numpy())
    logger.save(str(ROOT / "bp_align_paddle.npy"))


if __name__ == "__main__":
    main()
