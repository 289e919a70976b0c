"""Weights that the script writes itself, train and eval mode, and causes that come later than the first divergence."""

from typing import Any

import numpy as np
import paddle
import pytest
import torch

from reprod_log import Alignment, transfer_weights
from reprod_log.alignment.models import align_models

pytestmark = pytest.mark.usefixtures("weights_by_name")
RNG = np.random.default_rng(0)
VIEWS = {name: RNG.normal(size=(8, 6)).astype(np.float32) for name in ("one", "two")}
LABELS = RNG.integers(0, 4, 8)


class TorchNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))))


class PaddleNet(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = paddle.nn.Linear(6, 8), paddle.nn.BatchNorm1D(8), paddle.nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.last(paddle.tanh(self.norm(self.first(x))))


def torch_step(models: Any, optimizer: Any, inputs: Any, labels: Any) -> Any:
    student, teacher = models["student"], models["teacher"]
    with torch.no_grad():
        soft = teacher(inputs["two"]).softmax(-1)
    logits = student(inputs["one"])
    loss = torch.nn.functional.cross_entropy(logits, labels) - (soft * logits.log_softmax(-1)).sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
            old.mul_(0.99).add_(new, alpha=0.01)
    return loss


def paddle_step(decay: float | None = 0.99, early: bool = False, temperature: float = 1.0) -> Any:
    def average(student: Any, teacher: Any) -> None:
        news, olds = ([p for p in model.parameters() if not p.stop_gradient] for model in (student, teacher))
        with paddle.no_grad():
            for old, new in zip(olds, news, strict=True):
                if decay is not None:
                    old.set_value(old * decay + new * (1 - decay))

    def step(models: Any, optimizer: Any, inputs: Any, labels: Any) -> Any:
        student, teacher = models["student"], models["teacher"]
        if early:
            average(student, teacher)
        soft = paddle.nn.functional.softmax(teacher(inputs["two"]) / temperature, -1).detach()
        logits = student(inputs["one"])
        loss = paddle.nn.functional.cross_entropy(logits, labels)
        loss = loss - (soft * paddle.nn.functional.log_softmax(logits, -1)).sum(-1).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if not early:
            average(student, teacher)
        return loss

    return step


def taught(step: Any, *, training: bool = False, steps: int = 2) -> Alignment:
    torch.manual_seed(0)
    ours = {"student": TorchNet(), "teacher": TorchNet().eval()}
    theirs = {"student": PaddleNet(), "teacher": PaddleNet()}
    theirs["teacher"].train() if training else theirs["teacher"].eval()
    return align_models(
        ours,
        theirs,
        VIEWS,
        targets=LABELS,
        step=(torch_step, step),
        optimizer=(
            lambda models: torch.optim.SGD(models["student"].parameters(), 0.1),
            lambda models: paddle.optimizer.SGD(0.1, parameters=models["student"].parameters()),
        ),
        steps=steps,
        accept=["*running_var*"],
    )


def causes(alignment: Alignment) -> list[tuple[str, str]]:
    return [(one.rule, str(one.cause)) for one in alignment.findings if one.kind in ("cause", "hint")]


def test_correct_average_of_weights_passes_without_a_cause() -> None:
    found = taught(paddle_step())
    assert found.passed
    assert causes(found) == []


@pytest.mark.parametrize(
    ("decay", "words"),
    [
        (0.9, ("takes 0.01 of student.", "takes 0.1 of student.")),
        (None, ("takes 0.01 of student.", "it stays as it is in the candidate")),
    ],
)
def test_average_of_weights_with_another_decay_is_named_and_nothing_else(
    decay: float | None, words: tuple[str, str]
) -> None:
    ((rule, cause),) = causes(taught(paddle_step(decay)))
    assert rule == "average_of_weights"
    assert all(word in cause for word in words)
    assert "teacher.first.weight" in cause


def test_average_of_weights_in_a_single_step_is_said_to_differ() -> None:
    ((rule, cause),) = causes(taught(paddle_step(0.9), steps=1))
    assert rule == "average_of_weights"
    assert "the script itself writes into teacher.first.weight" in cause
    assert "after step 0" in cause


def test_average_taken_too_early_is_no_weight_that_was_not_loaded() -> None:
    found = dict(causes(taught(paddle_step(early=True))))
    assert "the weights of teacher.first" in found["changed_before_call"]
    assert not {"weights", "average_of_weights"} & set(found)


def test_other_loss_is_the_only_cause_when_averages_differ_because_of_it() -> None:
    ((rule, cause),) = causes(taught(paddle_step(temperature=0.5)))
    assert rule == "operator"
    assert "inside the loss" in cause
    assert "softmax in the reference" in cause


def test_teacher_in_train_mode_is_proven_to_be_the_cause() -> None:
    found = taught(paddle_step(), training=True)
    ((rule, cause),) = causes(found)
    assert rule == "mode"
    assert cause == "the mode of teacher.norm differs: eval in the reference, train in the candidate"
    assert found.findings[0].confidence == "proven"


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_in_another_mode_is_named(training: bool) -> None:
    torch.manual_seed(0)
    ours, theirs = TorchNet(), PaddleNet()
    ours.norm.running_mean.normal_()
    ours.train(not training)
    theirs.train() if training else theirs.eval()
    found = align_models(ours, theirs, (VIEWS["one"],), accept=["*running_var*"])
    assert "the mode of norm differs" in dict(causes(found))["mode"]
    assert found.findings[0].confidence == "proven"


def test_weight_that_is_really_not_loaded_is_still_proven() -> None:
    torch.manual_seed(0)
    ours, theirs = TorchNet().eval(), PaddleNet()
    theirs.eval()
    transfer_weights(ours, theirs)
    theirs.first.weight.set_value(theirs.first.weight * 2)
    found = align_models(ours, theirs, (VIEWS["one"],), transfer=False)
    assert "2 times" in dict(causes(found))["weights"]
    assert found.findings[0].confidence == "proven"
