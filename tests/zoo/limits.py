"""The smallest error of one layer that each rule still sees: its output times 1 + d, for smaller and smaller d.

python tests/zoo/limits.py [--seeds 2]
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from zoo.outcome import RULES, run
from zoo.trial import Trial

SIZES = (1e-3, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6, 3e-7, 1e-7)
ALL_RULES = (*RULES, "V, as SUSPECT")


def bases() -> dict[str, tuple[Callable[[int], Trial], Callable[[Any], Any]]]:
    """Each architecture with the layer of its port that is made wrong."""
    from zoo.bases import bert, cnn, gan, lstm, mlp, resnet, unet

    return {
        "mlp": (mlp.trial, lambda model: model.sublayers()[0]),
        "cnn": (cnn.trial, lambda model: model.conv2),
        "resnet": (resnet.trial, lambda model: model.blocks[1].conv2),
        "bert": (bert.trial, lambda model: model.layers[0].out),
        "gan": (gan.trial, lambda models: models["generator"][4]),
        "lstm": (lstm.trial, lambda model: model.mid),
        "unet": (unet.trial, lambda model: model.down),
    }


def seen(make: Callable[[int], Trial], layer: Callable[[Any], Any], size: float, seed: int) -> set[str]:
    trial = make(seed)
    layer(trial.candidate).register_forward_post_hook(lambda module, given, output: output * (1.0 + size))
    outcome = run(trial, "limit", seed)
    found = {rule for rule in RULES if outcome.first[rule]}
    return found | {"V, as SUSPECT"} if outcome.suspect or "V" in found else found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    columns: dict[str, dict[str, str]] = {}
    for name, (make, layer) in bases().items():
        healthy = [run(make(seed), name, seed) for seed in range(options.seeds)]
        always = {rule for rule in RULES if any(one.first[rule] for one in healthy)}
        limits = dict.fromkeys(ALL_RULES, "-")
        for size in SIZES:
            found = set.intersection(*(seen(make, layer, size, seed) for seed in range(options.seeds)))
            limits |= dict.fromkeys(found, f"{size:g}")
            print(name, size, sorted(found), file=sys.stderr, flush=True)
        columns[name] = limits | dict.fromkeys(always, "always alarms")
    print("| rule | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
    for rule in ALL_RULES:
        print(f"| {rule} | " + " | ".join(limits[rule] for limits in columns.values()) + " |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
