"""Forward, loss, backward, training and inference on live models: right pairs pass, each mistake fails its step."""

from typing import Any

import numpy as np
import paddle
import pytest
import torch
from small_pair import INPUTS, LABELS, paddle_loss, paddle_trainer, pair, torch_loss, torch_trainer

from reprod_log import Alignment
from reprod_log.errors import UsageError
from reprod_log.steps import backward, forward, inference, loss, metric, training
from reprod_log.steps.trainer import Trainer


def first(alignment: Alignment) -> str:
    assert not alignment.passed
    assert alignment.first_divergence is not None
    return str(alignment.first_divergence.key)


# forward


def test_forward_passes_on_the_right_port_live_and_recorded() -> None:
    ours, theirs = pair()
    assert forward.run(ours, theirs, inputs=INPUTS).passed
    recordings = [forward.record(one, inputs=INPUTS) for one in (ours, theirs)]
    alignment = forward.run(*recordings)
    assert alignment.passed
    assert alignment.policy.name == "calibrated"


def test_forward_fails_at_the_layer_when_its_epsilon_differs() -> None:
    ours, theirs = pair()
    theirs.norm._epsilon = 1e-2
    assert first(forward.run(ours, theirs, inputs=INPUTS)).endswith("forward/norm#0:output")
    recordings = [forward.record(one, inputs=INPUTS) for one in (ours, theirs)]
    assert first(forward.compare(*recordings)) == "step0/forward/norm#0:output"


def test_forward_compares_weights_as_they_are_unless_told_to_transfer() -> None:
    ours, theirs = pair()
    theirs.head.bias.set_value(theirs.head.bias + 0.1)
    assert not forward.run(ours, theirs, inputs=INPUTS).passed
    assert forward.run(ours, theirs, inputs=INPUTS, transfer=True).passed


def test_forward_with_limits_transfers_weights_to_a_copy() -> None:
    ours, theirs = pair()
    theirs.head.bias.set_value(theirs.head.bias + 0.1)
    assert not forward.run(ours, theirs, inputs=INPUTS, limits=["max_abs:1e-4"]).passed
    assert forward.run(ours, theirs, inputs=INPUTS, limits=["max_abs:1e-4"], transfer=True).passed
    assert not forward.run(ours, theirs, inputs=INPUTS, limits=["max_abs:1e-4"]).passed


def test_given_limits_replace_the_calibrated_rule() -> None:
    ours, theirs = pair()
    theirs.head.bias.set_value(theirs.head.bias + 0.1)
    assert forward.run(ours, theirs, inputs=INPUTS, limits=["max_abs:1"]).passed


# metric


def torch_accuracy(scores: np.ndarray, labels: np.ndarray) -> Any:
    return {"top1": (torch.from_numpy(scores).argmax(1) == torch.from_numpy(labels)).double().mean()}


def paddle_accuracy(scores: np.ndarray, labels: np.ndarray) -> Any:
    return {"top1": (paddle.to_tensor(scores).argmax(1) == paddle.to_tensor(labels)).astype("float64").mean()}


def test_metric_passes_when_both_count_alike() -> None:
    scores = np.random.default_rng(0).standard_normal((40, 3))
    labels = np.arange(40) % 3
    alignment = metric.run(torch_accuracy, paddle_accuracy, arguments=(scores, labels))
    assert alignment.passed
    assert [one.key for one in alignment.verdict.judgements] == ["step0/metric/top1"]


def test_metric_fails_when_one_is_off_by_a_sample() -> None:
    assert first(metric.run({"top1": 0.75, "top5": 0.9}, {"top1": 0.75, "top5": 0.9 + 1 / 400})) == "step0/metric/top5"


def test_no_metric_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no metric"):
        metric.record({})


# loss

OUTPUTS = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)


def test_loss_passes_with_its_gradient_in_both_precisions() -> None:
    alignment = loss.run(("torch", torch_loss), ("paddle", paddle_loss), outputs=OUTPUTS, targets=LABELS)
    assert alignment.passed
    assert {one.key for one in alignment.verdict.judgements} == {"step0/loss/loss", "step0/backward/outputs"}


def test_loss_of_a_wrong_reduction_fails() -> None:
    def summed(outputs: Any, labels: Any) -> Any:
        return paddle.nn.functional.cross_entropy(outputs, labels, reduction="sum")

    alignment = loss.run(("torch", torch_loss), ("paddle", summed), outputs=OUTPUTS, targets=LABELS)
    assert first(alignment) == "step0/loss/loss"


def test_equal_loss_with_another_gradient_fails() -> None:
    def halved(outputs: Any, labels: Any) -> Any:
        value = paddle_loss(outputs, labels)
        return (value + value.detach()) / 2

    alignment = loss.run(("torch", torch_loss), ("paddle", halved), outputs=OUTPUTS, targets=LABELS)
    assert first(alignment) == "step0/backward/outputs"


def test_loss_function_that_does_not_tell_its_framework_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot tell which framework torch_loss works with"):
        loss.record(torch_loss, outputs=OUTPUTS, targets=LABELS)


def test_loss_modules_tell_their_framework() -> None:
    assert loss.run(torch.nn.CrossEntropyLoss(), paddle.nn.CrossEntropyLoss(), outputs=OUTPUTS, targets=LABELS).passed


# backward


def test_backward_passes_live_and_recorded() -> None:
    ours, theirs = pair()
    sides = (torch_trainer(ours), paddle_trainer(theirs))
    assert backward.run(*sides, inputs=INPUTS, targets=LABELS, steps=3).passed
    recordings = [backward.record(one, inputs=INPUTS, targets=LABELS, steps=4) for one in sides]
    alignment = backward.run(*recordings)
    assert alignment.passed
    keys = {one.key for one in alignment.verdict.judgements}
    assert {"step3/loss/loss", "step1/update/conv.weight"} <= keys
    assert "step2/update/conv.weight" not in keys


def test_missing_weight_decay_fails_at_the_update() -> None:
    ours, theirs = pair()
    sides = (torch_trainer(ours), paddle_trainer(theirs, decay=None))
    recordings = [backward.record(one, inputs=INPUTS, targets=LABELS, steps=2) for one in sides]
    assert first(backward.run(*recordings)).startswith("step0/update/")


def test_clipping_of_the_loop_is_part_of_the_iteration() -> None:
    ours, theirs = pair()

    def clip(model: Any) -> None:
        # clip_grad_norm_ adds 1e-6 to the norm, which float64 sees as a difference.
        gradients = [parameter.grad for parameter in model.parameters()]
        norm = torch.cat([one.flatten() for one in gradients]).norm()
        for one in gradients:
            one.mul_(0.5 / norm.clamp(min=0.5))

    def clipped(one: Any) -> Any:
        clip_norm = paddle.nn.ClipGradByGlobalNorm(0.5)
        return paddle.optimizer.Momentum(0.05, 0.9, parameters=one.parameters(), weight_decay=1e-2, grad_clip=clip_norm)

    with_clip = torch_trainer(ours, clip=clip)
    assert backward.run(with_clip, Trainer(theirs, paddle_loss, clipped), inputs=INPUTS, targets=LABELS, steps=2).passed
    assert not backward.run(with_clip, paddle_trainer(theirs), inputs=INPUTS, targets=LABELS, steps=2).passed


def test_backward_without_a_loss_is_refused() -> None:
    ours, theirs = pair()
    with pytest.raises(UsageError, match="takes a Trainer with a loss"):
        backward.run(ours, theirs, inputs=INPUTS)


# training


def batches() -> tuple[list[Any], list[Any]]:
    random = np.random.default_rng(3)
    inputs = [(random.standard_normal((4, 3, 8, 8)).astype(np.float32),) for _ in range(6)]
    return inputs, [random.integers(0, 3, 4) for _ in range(6)]


def torch_score(model: Any) -> Any:
    image = torch.from_numpy(INPUTS[0]).to(next(model.parameters()).dtype)
    with torch.no_grad():
        return {"top1": (model(image).argmax(1) == torch.from_numpy(LABELS)).double().mean()}


def paddle_score(model: Any) -> Any:
    image = paddle.to_tensor(INPUTS[0]).astype(model.parameters()[0].dtype)
    with paddle.no_grad():
        return {"top1": (model(image).argmax(1) == paddle.to_tensor(LABELS)).astype("float64").mean()}


def test_training_passes_and_ends_with_the_score() -> None:
    ours, theirs = pair()
    inputs, targets = batches()
    sides = (torch_trainer(ours, evaluate=torch_score), paddle_trainer(theirs, evaluate=paddle_score))
    alignment = training.run(*sides, inputs=inputs, targets=targets)
    assert alignment.passed
    keys = [one.key for one in alignment.verdict.judgements]
    assert "step5/metric/top1" in keys
    assert "step5/loss/loss" in keys


def test_training_on_data_in_another_order_fails_from_the_first_step() -> None:
    ours, theirs = pair()
    inputs, targets = batches()
    recordings = [
        training.record(torch_trainer(ours), inputs=inputs, targets=targets),
        training.record(paddle_trainer(theirs), inputs=inputs[::-1], targets=targets[::-1]),
    ]
    assert first(training.compare(*recordings)) == "step0/loss/loss"


def test_scores_of_independent_trainings_are_held_to_the_tolerance() -> None:
    assert training.run({"top1": 0.7601}, {"top1": 0.7590}).passed
    assert first(training.run({"top1": 0.7601}, {"top1": 0.7580})) == "step0/metric/top1"
    assert training.run({"top1": 0.7601}, {"top1": 0.7580}, tolerance=0.01).passed


def test_losses_along_a_training_are_held_to_a_relative_tolerance() -> None:
    ours = {"loss": [2.0, 1.0, 0.5], "top1": 0.9}
    assert training.run(ours, {"loss": [2.0, 1.01, 0.51], "top1": 0.9}).passed
    assert first(training.run(ours, {"loss": [2.0, 1.2, 0.5], "top1": 0.9})) == "step1/loss/loss"


# inference


@pytest.mark.parametrize("engine", ["export", "jit"])
def test_torch_engine_gives_what_the_model_gives(engine: str) -> None:
    ours, _ = pair()
    alignment = inference.run(ours, inputs=INPUTS, engine=engine)
    assert alignment.passed
    assert alignment.candidate.provenance.extra["engine"] == engine


@pytest.mark.parametrize("engine", ["inference", "jit"])
def test_paddle_engine_gives_what_the_model_gives(engine: str) -> None:
    _, theirs = pair()
    assert inference.run(theirs, inputs=INPUTS, engine=engine).passed


def test_engine_of_another_model_fails() -> None:
    ours, theirs = pair()
    other = paddle.nn.Sequential(theirs, paddle.nn.Softmax())
    other.eval()
    recordings = [
        inference.record(ours, inputs=INPUTS),
        inference.record(other, inputs=INPUTS, engine="default"),
    ]
    assert first(inference.compare(*recordings)) == "output"


def test_model_in_training_mode_is_not_exported() -> None:
    ours, _ = pair(evaluate=False)
    with pytest.raises(UsageError, match="training mode"):
        inference.run(ours, inputs=INPUTS)


def test_unknown_engine_is_refused_with_the_known_ones() -> None:
    ours, _ = pair()
    with pytest.raises(UsageError, match="'export', 'jit', 'onnx'"):
        inference.run(ours, inputs=INPUTS, engine="tensorrt")
