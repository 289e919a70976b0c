"""What the pages' examples need and do not show: files in the reader's folder, models in the reader's program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from blocks import ROOT

from reprod_log import Recording, align


def original(page: Path) -> Path | None:
    """The English page of which `page` is a translation."""
    if page.name == "README.zh-CN.md":
        return ROOT / "README.md"
    chinese = ROOT / "docs" / "zh"
    return ROOT / "docs" / page.relative_to(chinese) if page.is_relative_to(chinese) else None


def two_logs(folder: Path) -> dict[str, Any]:
    """forward_torch.npy and forward_paddle.npy, which agree but for the loss."""
    logits = np.random.default_rng(0).normal(size=(4, 10)).astype("float32")
    for name, loss in (("torch", 2.302585), ("paddle", 2.312585)):
        values = {"logits": logits * np.float32(1 + 1e-7), "loss": np.float32(loss)}
        Recording.from_arrays(values).save(folder / f"forward_{name}.npy")
    return {"model": lambda x: x, "x": logits}


def hand_in(folder: Path) -> dict[str, Any]:
    """log_reprod/, as the guides ask for it: three steps, of which the backward pass is not aligned."""
    rng = np.random.default_rng(0)
    for step in ("forward", "loss", "bp_align"):
        values = {f"{step}_{place}": rng.normal(size=8).astype("float32") for place in range(3)}
        for side in ("torch", "paddle"):
            if side == "paddle":
                factor = np.float32(1.001 if step == "bp_align" else 1 + 2e-7)
                values = {key: value * factor for key, value in values.items()}
            Recording.from_arrays(values).save(folder / "log_reprod" / f"{step}_{side}.npy")
    return {}


def recordings(folder: Path) -> dict[str, Any]:
    """ref/ and cand/, recordings of three training steps in float32 and float64, and saved.json, how they compare."""
    sys.path.insert(0, str(ROOT / "tests" / "report"))
    try:
        from made_alignments import broken, model_values, provenance, rounded
    finally:
        sys.path.pop(0)
    values = model_values(steps=3, blocks=1)
    for name, framework, exact in (("ref", "torch", values), ("cand", "paddle", broken(values, "layer1.0.conv2"))):
        entries = {**rounded(exact, 1), **{f"float64@{key}": value for key, value in exact.items()}}
        Recording.from_arrays(entries, provenance=provenance(framework)).save(folder / name)
    align(folder / "ref", folder / "cand").save(folder / "saved.json")
    return {}


def folder_of_files(folder: Path) -> dict[str, Any]:
    """All of the files above."""
    return {**recordings(folder), **two_logs(folder), **hand_in(folder)}


def two_models(folder: Path) -> dict[str, Any]:
    """A model in torch and its port, a schedule for each, and what they are fed."""
    import paddle
    import torch

    torch_model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    paddle_model = paddle.nn.Sequential(paddle.nn.Linear(6, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 3))
    torch_optimizer = torch.optim.SGD(torch_model.parameters(), 0.1)
    paddle_scheduler = paddle.optimizer.lr.StepDecay(0.1, step_size=30, gamma=0.1)
    rng = np.random.default_rng(0)
    from reprod_log import transfer_weights

    transfer_weights(torch_model, paddle_model)
    return {
        "torch": torch,
        "paddle": paddle,
        "np": np,
        "torch_model": torch_model,
        "paddle_model": paddle_model,
        "torch_loss": torch.nn.functional.cross_entropy,
        "paddle_loss": paddle.nn.functional.cross_entropy,
        "torch_optimizer": torch_optimizer,
        "torch_scheduler": torch.optim.lr_scheduler.StepLR(torch_optimizer, 30, 0.1),
        "paddle_optimizer": paddle.optimizer.SGD(paddle_scheduler, parameters=paddle_model.parameters()),
        "paddle_scheduler": paddle_scheduler,
        "total_steps": 90,
        "x": rng.normal(size=(5, 6)).astype("float32"),
        "y": rng.integers(0, 3, size=5),
    }


def group_norm(folder: Path) -> dict[str, Any]:
    """The two networks of examples/group_norm/find.py and what they are fed."""
    import runpy

    import paddle
    import torch

    found = runpy.run_path(str(ROOT / "examples" / "group_norm" / "find.py"), run_name="example")
    generator = np.random.default_rng(0)
    images = generator.normal(size=(2, 3, 6, 6)).astype(np.float32)
    return {**found, "paddle": paddle, "torch": torch, "images": images, "labels": generator.integers(0, 5, 2)}


def parallel_runs(folder: Path) -> dict[str, Any]:
    """single/, ranks/ and ranks_sum/: a training in one process, on two ranks, and with a sum for the mean; whole/ and
    split/: a layer on one rank and on two. The two ranks run one after the other here; what they exchange is known."""
    import os

    import torch

    from reprod_log import watch

    generator = torch.Generator().manual_seed(1)
    data = [(torch.randn(8, 5, generator=generator), torch.randn(8, 3, generator=generator)) for _ in range(2)]
    shares = [[(x[4 * rank : 4 * rank + 4], y[4 * rank : 4 * rank + 4]) for x, y in data] for rank in range(2)]

    def train(batches: Any, save: Path | None, exchange: Any) -> None:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with watch(model, optimizer=optimizer, save=save):
            for step, (x, y) in enumerate(batches):
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(x), y).backward()
                exchange(step, model)
                optimizer.step()

    train(data, folder / "single", lambda step, model: None)
    for name, scale in (("ranks", 0.5), ("ranks_sum", 1.0)):
        sums: list[list[torch.Tensor]] = []

        def find(step: int, model: Any, sums: Any = sums, scale: float = scale) -> None:
            found = []
            for share in shares:
                copy = [one.detach().clone().requires_grad_() for one in model.parameters()]
                out = torch.tanh(share[step][0] @ copy[0].T + copy[1]) @ copy[2].T + copy[3]
                found.append(torch.autograd.grad(torch.nn.functional.mse_loss(out, share[step][1]), copy))
            sums.append([scale * (one + other) for one, other in zip(*found, strict=True)])
            use(step, model, sums)

        def use(step: int, model: Any, sums: Any = sums) -> None:
            for parameter, gradient in zip(model.parameters(), sums[step], strict=True):
                parameter.grad.copy_(gradient)

        train(data, None, find)
        for rank in range(2):
            os.environ.update(RANK=str(rank), WORLD_SIZE="2")
            try:
                train(shares[rank], folder / name, use)
            finally:
                del os.environ["RANK"], os.environ["WORLD_SIZE"]
    weight = np.arange(12, dtype="float32").reshape(4, 3)
    Recording.from_arrays({"step0/parameter/fc.weight": weight}).save(folder / "whole")
    for rank in range(2):
        half = {"step0/parameter/fc.weight": weight[2 * rank : 2 * rank + 2]}
        Recording.from_arrays(half).save(folder / "split" / f"rank{rank}")
    return {}
