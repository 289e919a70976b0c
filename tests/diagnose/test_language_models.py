"""Mistakes of language models and their loops: shared weights, shifted labels, accumulation, decay in a warm-up."""

from typing import Any

import numpy as np
import paddle
import pytest
import torch

from reprod_log import Alignment
from reprod_log.alignment.models import align_models
from reprod_log.messages import words
from reprod_log.transfer import transfer_weights

WORDS, SIZE = 13, 6
IDS = np.random.default_rng(1).integers(0, WORDS, (4, 5))


class TorchModel(torch.nn.Module):
    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.words, self.mid = torch.nn.Embedding(WORDS, SIZE), torch.nn.Linear(SIZE, SIZE)
        self.head = torch.nn.Linear(SIZE, WORDS, bias=False)
        if tied:
            self.head.weight = self.words.weight
        else:
            self.head.weight.data.copy_(self.words.weight.data)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.mid(self.words(ids))))


class PaddleModel(paddle.nn.Layer):
    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.words, self.mid = paddle.nn.Embedding(WORDS, SIZE), paddle.nn.Linear(SIZE, SIZE)
        if not tied:
            self.head = paddle.nn.Linear(SIZE, WORDS, bias_attr=False)
        self.tied = tied

    def forward(self, ids: Any) -> Any:
        x = paddle.tanh(self.mid(self.words(ids)))
        return paddle.matmul(x, self.words.weight, transpose_y=True) if self.tied else self.head(x)


def torch_loss(out: Any, ids: Any) -> Any:
    return torch.nn.functional.cross_entropy(out[:, :-1].reshape(-1, WORDS), ids[:, 1:].reshape(-1))


def paddle_loss(out: Any, ids: Any) -> Any:
    return paddle.nn.functional.cross_entropy(out[:, :-1].reshape([-1, WORDS]), ids[:, 1:].reshape([-1]))


def causes(alignment: Alignment) -> dict[str, str]:
    return {one.rule: str(one.cause) for one in alignment.findings if one.kind == "cause"}


@pytest.mark.parametrize("tied", [(True, False), (False, True)])
def test_weight_that_one_side_shares_is_the_only_cause(tied: tuple[bool, bool]) -> None:
    ours, theirs = TorchModel(tied[0]), PaddleModel(tied[1])
    transfer_weights(ours, theirs, allow_left=("head.weight",) if tied[1] else ())
    if tied[0]:
        theirs.head.weight.set_value(ours.words.weight.detach().numpy().T)
    found = causes(
        align_models(ours, theirs, {"ids": IDS}, targets=IDS, loss=(torch_loss, paddle_loss), transfer=False)
    )
    assert list(found) == ["tied_weights"]
    sides = ("reference", "candidate") if tied[0] else ("candidate", "reference")
    assert f"the {sides[0]} uses words.weight in place of head.weight, the {sides[1]} has" in found["tied_weights"]


def test_weight_shared_on_both_sides_has_no_cause() -> None:
    alignment = align_models(
        TorchModel(True), PaddleModel(True), {"ids": IDS}, targets=IDS, loss=(torch_loss, paddle_loss)
    )
    assert causes(alignment) == {}


def test_labels_without_their_shift_are_named() -> None:
    def unshifted(out: Any, ids: Any) -> Any:
        return paddle.nn.functional.cross_entropy(out.reshape([-1, WORDS]), ids.reshape([-1]))

    alignment = align_models(
        TorchModel(False), PaddleModel(False), {"ids": IDS}, targets=IDS, loss=(torch_loss, unshifted)
    )
    assert "shifted back by 1 along the sequence" in causes(alignment)["loss_function"]


def step_with(loss: Any, divide: float) -> Any:
    def step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
        for part in (slice(0, 2), slice(2, 4)):
            (loss(model(inputs["ids"][part]), targets[part]) / divide).backward()
        optimizer.step()
        (optimizer.clear_grad if hasattr(optimizer, "clear_grad") else optimizer.zero_grad)()

    return step


def test_accumulation_that_is_not_divided_is_named_with_the_line_to_write() -> None:
    alignment = align_models(
        TorchModel(False),
        PaddleModel(False),
        {"ids": IDS},
        targets=IDS,
        step=(step_with(torch_loss, 2), step_with(paddle_loss, 1)),
        optimizer=(
            lambda model: torch.optim.SGD(model.parameters(), 0.1),
            lambda model: paddle.optimizer.SGD(0.1, parameters=model.parameters()),
        ),
        steps=1,
    )
    first = alignment.findings[0]
    assert "2 backward passes per step are added up: the candidate does not divide" in str(first.cause)
    assert "(loss / 2).backward()" in words()(first.advice)


def trained(model: Any, ours: Any, theirs: Any) -> Alignment:
    """Two steps with an optimizer for each side."""
    return align_models(
        model,
        PaddleModel(False),
        {"ids": IDS},
        targets=IDS,
        loss=(torch_loss, paddle_loss),
        optimizer=(ours, theirs),
        steps=2,
    )


def test_decay_on_biases_is_named_although_a_warm_up_begins_at_zero() -> None:
    def ours(model: Any) -> Any:
        groups = [
            {"params": [one for one in model.parameters() if one.ndim > 1], "weight_decay": 0.1},
            {"params": [one for one in model.parameters() if one.ndim == 1], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.SGD(groups, 0.1, momentum=0.9)
        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 2, 1.0))

    def theirs(model: Any) -> Any:
        rate = paddle.optimizer.lr.LambdaDecay(0.1, lambda step: min(step / 2, 1.0))
        return paddle.optimizer.Momentum(rate, 0.9, parameters=model.parameters(), weight_decay=0.1), rate

    alignment = trained(TorchModel(False), ours, theirs)
    assert "weight decay is applied to mid.bias in the candidate only" in causes(alignment)["update_fit"]


def test_smaller_decay_is_not_a_missing_one_where_some_weights_are_too_small_to_tell() -> None:
    model = TorchModel(False)
    with torch.no_grad():
        model.mid.bias.fill_(1e-9)

    def ours(model: Any) -> Any:
        return torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05)

    def theirs(model: Any) -> Any:
        return paddle.optimizer.AdamW(1e-3, parameters=model.parameters(), weight_decay=0.01)

    alignment = trained(model, ours, theirs)
    assert "weight decay of the optimizer differs: 0.05 in the reference, 0.01 in the candidate" in str(alignment)
    assert "missing" not in str(alignment)


class TorchCentre(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.register_buffer("centre", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc(x)
        self.centre.mul_(0.9).add_(0.1 * y.detach().mean(0))
        return y


class PaddleCentre(paddle.nn.Layer):
    def __init__(self, kept: float) -> None:
        super().__init__()
        self.fc, self.kept = paddle.nn.Linear(4, 4), kept
        self.register_buffer("centre", paddle.zeros([4]))

    def forward(self, x: Any) -> Any:
        y = self.fc(x)
        self.centre.set_value(self.centre * self.kept + (1 - self.kept) * y.detach().mean(0))
        return y


def test_moving_average_with_another_decay_is_named_with_both_shares() -> None:
    data = [{"x": np.random.default_rng(step).normal(size=(3, 4)).astype(np.float32)} for step in range(4)]
    assert align_models(TorchCentre(), PaddleCentre(0.9), data).passed
    found = causes(align_models(TorchCentre(), PaddleCentre(0.99), data))
    assert "a share of 0.01 per step in the candidate, 0.1 in the reference" in found["moving_average"]


def test_place_of_epsilon_in_rmsprop_is_named() -> None:
    alignment = align_models(
        TorchModel(False),
        PaddleModel(False),
        {"ids": IDS},
        targets=IDS,
        loss=(torch_loss, paddle_loss),
        optimizer=(
            lambda model: torch.optim.RMSprop(model.parameters(), 1e-3, alpha=0.9, eps=1e-2),
            lambda model: paddle.optimizer.RMSProp(1e-3, rho=0.9, epsilon=1e-2, parameters=model.parameters()),
        ),
        steps=1,
    )
    found = causes(alignment)["optimizer_setting"]
    assert "added to the root in the reference, under the root in the candidate" in found


def test_ignored_labels_that_one_side_divides_by_are_counted() -> None:
    def marked(ids: Any) -> Any:
        ids = ids.clone()
        ids[:, 3:] = 99
        return ids[:, 1:].reshape([-1])

    def ours(out: Any, ids: Any) -> Any:
        return torch.nn.functional.cross_entropy(out[:, :-1].reshape(-1, WORDS), marked(ids), ignore_index=99)

    def theirs(out: Any, ids: Any) -> Any:
        flat = out[:, :-1].reshape([-1, WORDS])
        return paddle.nn.functional.cross_entropy(flat, marked(ids), ignore_index=99, reduction="none").mean()

    found = causes(align_models(TorchModel(False), PaddleModel(False), {"ids": IDS}, targets=IDS, loss=(ours, theirs)))[
        "loss_scale"
    ]
    assert "8 predictions count, and one side divides by 16" in found


def test_layer_that_is_not_called_is_named_by_its_operator() -> None:
    class Without(PaddleModel):
        def forward(self, ids: Any) -> Any:
            return self.head(paddle.tanh(self.words(ids)))

    found = causes(align_models(TorchModel(False), Without(False), {"ids": IDS}))
    assert "linear in the reference" in found["operator"]
