"""Two recorded scripts that evaluate after their training: causes in the optimizer are told all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

from reprod_log import Alignment, Recording, align, join_passes, transfer_weights, watch

X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 3, 6)


def models() -> tuple[Any, Any]:
    torch.manual_seed(0)
    ours = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    theirs = paddle.nn.Sequential(paddle.nn.Linear(4, 5), paddle.nn.Tanh(), paddle.nn.Linear(5, 3))
    transfer_weights(ours, theirs)
    return ours, theirs


def torch_script(model: Any, dtype: Any) -> Any:
    groups = [
        {"params": [one for one in model.parameters() if one.ndim > 1], "weight_decay": 0.1},
        {"params": [one for one in model.parameters() if one.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, 0.01)
    x, y = torch.tensor(X, dtype=dtype), torch.tensor(Y)

    def run() -> None:
        for _ in range(2):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            model(x)

    return run, optimizer


def paddle_script(model: Any, dtype: str, *, on_biases: bool, clipped: bool) -> Any:
    biases = {one.name for one in model.parameters() if one.ndim == 1}
    optimizer = paddle.optimizer.AdamW(
        0.01,
        parameters=model.parameters(),
        weight_decay=0.1,
        apply_decay_param_fun=lambda name: on_biases or name not in biases,
        grad_clip=paddle.nn.ClipGradByGlobalNorm(0.1) if clipped else None,
    )
    x, y = paddle.to_tensor(X.astype(dtype)), paddle.to_tensor(Y)

    def run() -> None:
        for _ in range(2):
            paddle.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.clear_grad()
        model.eval()
        with paddle.no_grad():
            model(x)

    return run, optimizer


def compared(**mistake: bool) -> Alignment:
    """Both programs in both passes, compared as recordings."""
    passes: list[list[Recording]] = [[], []]
    for run, wide in (("", False), ("float64", True)):
        ours, theirs = models()
        if wide:
            ours, theirs = ours.double(), theirs.to(dtype="float64")
        scripts = (
            (ours, torch_script(ours, torch.float64 if wide else torch.float32)),
            (theirs, paddle_script(theirs, "float64" if wide else "float32", **mistake)),
        )
        for (model, (script, optimizer)), made in zip(scripts, passes, strict=True):
            with watch(model, optimizer=optimizer, run=run) as watched:
                script()
            made.append(watched.recording)
    return align(*(join_passes(*made) for made in passes))


@pytest.mark.parametrize(
    ("mistake", "rule", "words"),
    [
        ({"on_biases": True, "clipped": True}, "update_fit", "weight decay is applied to 0.bias, 2.bias"),
        ({"on_biases": False, "clipped": False}, "clipping", "by global norm at 0.1 in the reference, no clipping"),
    ],
    ids=["decay", "clipping"],
)
def test_mistake_of_an_optimizer_is_the_only_cause(mistake: dict[str, bool], rule: str, words: str) -> None:
    found = compared(**mistake)
    (cause,) = [one for one in found.findings if one.kind in ("cause", "hint")]
    assert cause.rule == rule
    assert words in str(cause.cause)
    # Entries of the one side that clips are part of what it accounts for.
    lacking = {one.key for one in found.comparison.unmatched if one.key.phase == "clip" and not one.key.run}
    assert lacking <= set(cause.keys)


def test_right_scripts_pass() -> None:
    found = compared(on_biases=False, clipped=True)
    assert found.passed, str(found)
