"""Rounding or defect? The reproductions' hardest cases, judged by the calibrated rule on two live models.

    python rounding_or_defect.py CASE [--full] [--report out.html]

Differences of 1e-4 in a correct port, and defects that hide below 1e-4: each case prints the largest difference of its
losses in float32 and in float64, what a fixed limit of 1e-6 says, what the calibrated rule says, and why.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log import Alignment, align_models, write_report
from reprod_log.steps import lr


def alexnet(full: bool) -> Alignment:
    """AlexNet from 0.8 of He's start: one ReLU lands on the other side of zero."""
    plan, settings = _example("alexnet", full)
    settings = replace(settings, init="he08")
    data, weights = plan.images(settings), plan.inputs.draw_weights(settings)
    sides = [side(settings, weights, settings, weights, data) for side in (plan.Torch, plan.Paddle)]
    return _judged(sides, (data["fake_data"],), data["fake_label"], steps=settings.iterations)


def discogan(full: bool, *, swapped: bool = False) -> Alignment:
    """DiscoGAN for twenty iterations: rounding that training makes larger."""
    plan, settings = _example("discogan", full)
    weights = plan.inputs.draw_weights(settings)
    shape = (settings.batch, 3, settings.image_size, settings.image_size)
    seeds = {"a": settings.seed_a, "b": settings.seed_b}
    pictures = {name: plan.inputs.gen_fake_data(seed, shape) for name, seed in seeds.items()}
    given = (plan.RIGHT, plan.CONVERTED if swapped else plan.RIGHT)
    sides = [
        side(settings, plan.chosen(weights, source), pictures)
        for side, source in zip((plan.Torch, plan.Paddle), given, strict=True)
    ]
    turns = [{**pictures, "turn": turn} for turn in range(5 if swapped else 20)]
    return _judged(sides, turns, None, steps=len(turns))


def swapped_generators(full: bool) -> Alignment:
    """DiscoGAN as published: both paddle generators have the weights of the second."""
    return discogan(full, swapped=True)


def fnet(full: bool, *, legacy: bool = False) -> Alignment:
    """FNet for ten iterations of AdamW."""
    plan, settings = _example("fnet", full)
    data = plan.tokens(np.random.default_rng(settings.data_seed), settings)
    body, head = plan.draw_body(settings), plan.draw_head(settings)
    sides = [side(settings, body, head, data) for side in (plan.Torch, plan.Paddle)]
    trainers = [sides[0].trainer(legacy=legacy), sides[1].trainer()]
    return _aligned(trainers, (data["ids"],), data["labels"], steps=settings.iterations)


def legacy_adamw(full: bool) -> Alignment:
    """FNet with the old AdamW of transformers on one side."""
    return fnet(full, legacy=True)


def num_cycles(full: bool) -> Alignment:
    """FNet's cosine schedule with half a wave on one side and a whole one on the other."""
    plan, settings = _example("fnet", full)
    sides = [side(settings, {}, {}, {}) for side in (plan.Torch, plan.Paddle)]
    schedules = (sides[0].schedules()["cosine"], sides[1].schedules(num_cycles=1.0)["cosine"])
    return lr.run(*schedules, steps=settings.total_steps)


def mvf(full: bool) -> Alignment:
    """MVF in train mode: batch statistics of few frames make float32 chaotic."""
    plan, settings = _example("mvf", full)
    data, weights = plan.clips(settings), plan.inputs.draw_weights(settings)
    trainers = [side(settings, weights, data).trainer() for side in (plan.Torch, plan.Paddle)]
    for one in trainers:
        one.model.train()
    # paddle's running variance has another divisor than torch's: a known difference of the frameworks.
    return _aligned(trainers, (data["clips"],), data["labels"], steps=settings.iterations, accept=["*running_var*"])


CASES: dict[str, Callable[[bool], Alignment]] = {
    one.__name__: one for one in (alexnet, discogan, fnet, mvf, legacy_adamw, num_cycles, swapped_generators)
}


def _example(name: str, full: bool) -> tuple[Any, Any]:
    """The plan of an example and its settings of this size."""
    sys.path.insert(0, str(Path(__file__).resolve().parent / name))
    plan = import_module("plan")
    return plan, plan.FULL if full else plan.SMALL


def _judged(sides: list[Any], inputs: Any, targets: Any, *, steps: int) -> Alignment:
    return _aligned([side.trainer() for side in sides], inputs, targets, steps=steps)


def _aligned(trainers: list[Any], inputs: Any, targets: Any, *, steps: int, accept: Any = ()) -> Alignment:
    ours, theirs = trainers
    return align_models(
        ours.model,
        theirs.model,
        inputs,
        targets=targets,
        loss=(ours.loss, theirs.loss),
        optimizer=(ours.optimizer, theirs.optimizer),
        step=(ours.step, theirs.step),
        steps=steps,
        detailed=2,
        transfer=False,
        accept=accept,
        progress=lambda what, done, total: print(f"  {done}/{total} {what}", file=sys.stderr),
    )


def summary(alignment: Alignment) -> str:
    """What the losses say, what a fixed limit says, what the rule says, and what was found."""

    def worst(run: str) -> float | None:
        rows = [row for row in alignment.comparison.rows if row.key.run == run]
        sizes = [
            row.measurement.max_abs for row in rows if row.key.phase in ("loss", "lr") and row.measurement is not None
        ]
        return max(sizes, default=None)

    narrow, wide = worst(""), worst("float64")
    assert narrow is not None
    basis = "rates are exact" if alignment.floor is None else alignment.floor.basis
    lines = [
        f"losses or rates differ by at most {narrow:.2g}" + ("" if wide is None else f", in float64 by {wide:.2g}"),
        f"a fixed limit of 1e-6 says: {'aligned' if narrow <= 1e-6 else 'not aligned'}",
        f"the rule says: {'aligned, rounding' if alignment.passed else 'a defect'} ({basis})",
    ]
    first = alignment.verdict.first_divergence
    if first is not None:
        lines.append(f"first: {first.key}: {first.reason}")
    lines += [f"{one.kind}: {one.cause}" for one in alignment.findings if one.kind != "doubt"]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--full", action="store_true", help="the real size: gigabytes and minutes")
    parser.add_argument("--report", type=Path, help="also write a report (.html, .md, .json)")
    options = parser.parse_args()
    alignment = CASES[options.case](options.full)
    print(f"{CASES[options.case].__doc__}\n{summary(alignment)}")
    if options.report is not None:
        write_report(alignment, options.report)
    return 0 if alignment.passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
