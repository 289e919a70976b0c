"""The losses of ten iterations in torch, saved as bp_align_torch.npy."""

from __future__ import annotations

import argparse

import inputs
from models.fnet_torch import build_model
from recipe_torch import build_optimizer, train_some_iterations
from settings import ROOT, add_flags, from_flags

from reprod_log import ReprodLogger


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_flags(parser)
    parser.add_argument("--legacy-adamw", action="store_true", help="the old AdamW of transformers")
    parser.add_argument("--output", default="bp_align_torch.npy", help="where the losses go")
    flags = parser.parse_args()
    settings = from_flags(flags)

    model = build_model(settings, inputs.load_body(settings), inputs.load_classifier(settings, side="torch"))
    optimizer = build_optimizer(model, settings, legacy=flags.legacy_adamw)
    ids, labels = inputs.load_data(settings)
    losses = train_some_iterations(model, optimizer, ids, labels, iterations=settings.iterations)

    logger = ReprodLogger()
    for index, loss in enumerate(losses):
        print(f"torch loss_{index}: {loss.item()}")
        logger.add(f"loss_{index}", loss.numpy())
    logger.save(str(ROOT / flags.output))


if __name__ == "__main__":
    main()
