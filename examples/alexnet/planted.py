"""A mistake planted in the port, found, named and fixed: `python planted.py [FOLDER]` writes a report of each state.

The port asks for paddle's other kind of dropout, which halves what passes through it in eval mode. Shapes agree, the
loss looks plausible, training would work.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import inputs
import numpy as np
from models import alexnet_paddle, alexnet_torch
from paddle import nn
from recipe_paddle import build_loss as paddle_loss
from recipe_torch import build_loss as torch_loss
from settings import SMALL

from reprod_log import Alignment, align_models, write_report
from reprod_log.cli import run

SETTINGS = replace(SMALL, image_size=64, hidden=128, classes=100)


class Port(alexnet_paddle.AlexNet):
    """The port as someone in a hurry wrote it."""

    def __init__(self, *, fixed: bool) -> None:
        super().__init__(SETTINGS)
        self.dropout = nn.Dropout(0.5, mode="upscale_in_train" if fixed else "downscale_in_infer")
        self.eval()


def compared(*, fixed: bool) -> Alignment:
    """Both models on four pictures, forward and backward; weights are transferred."""
    pictures = np.random.default_rng(0).normal(size=(4, 3, 64, 64)).astype(np.float32)
    reference: Any = alexnet_torch.build_model(SETTINGS, inputs.draw_weights(SETTINGS))
    losses = torch_loss(), paddle_loss()
    return align_models(reference, Port(fixed=fixed), pictures, targets=np.arange(4), loss=losses)


def main() -> None:
    """Prints the first screen of the wrong port and of the fixed one."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    folder.mkdir(parents=True, exist_ok=True)
    for name, fixed in (("mistake", False), ("fixed", True)):
        print(f"\nAlexNet, {'fixed as the report says' if fixed else 'ported with a mistake'}:\n", flush=True)
        found = compared(fixed=fixed)
        saved = found.save(folder / f"{name}.json")
        run(["report", str(saved)])
        write_report(found, folder / f"{name}.html")
    print(f"\nopen {folder / 'report.html'}   the right port, ten steps" if (folder / "report.html").exists() else "")
    print(f"open {folder / 'mistake.html'}  the mistake: where, why, what to do")
    print(f"open {folder / 'fixed.html'}    the same port, fixed")


if __name__ == "__main__":
    main()
