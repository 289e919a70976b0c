"""Which change of the loss turns one gradient of the outputs into the other."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from reprod_log.diagnose.finding import told
from reprod_log.diagnose.losses import explain_loss
from reprod_log.messages import Name

GENERATOR = torch.Generator().manual_seed(3)
LOGITS = torch.randn(4, 7, 11, generator=GENERATOR, dtype=torch.float64)
IDS = torch.randint(0, 11, (4, 7), generator=GENERATOR)
SCORES = torch.randn(5, 6, generator=GENERATOR, dtype=torch.float64)
MARKS = (torch.rand(5, 6, generator=GENERATOR) < 0.4).double()
TARGETS = 2 * torch.randn(5, 6, generator=GENERATOR, dtype=torch.float64)

Loss = Callable[[torch.Tensor], torch.Tensor]


def gradient(outputs: torch.Tensor, loss: Loss) -> np.ndarray:
    leaf = outputs.clone().requires_grad_()
    loss(leaf).backward()
    assert leaf.grad is not None
    return leaf.grad.numpy()


def said(outputs: torch.Tensor, ours: Loss, theirs: Loss, *tokens: torch.Tensor) -> str:
    found = explain_loss(
        outputs.numpy(),
        (gradient(outputs, ours), gradient(outputs, theirs)),
        [one.numpy() for one in tokens],
        near=1e-9,
    )
    return "" if found is None else told("cause.loss_function", path=Name(""), what=found).text()


def shifted(by: int) -> Loss:
    def loss(z: torch.Tensor) -> torch.Tensor:
        left, right = (z[:, : 7 - by], IDS[:, by:]) if by >= 0 else (z[:, -by:], IDS[:, :by])
        return F.cross_entropy(left.reshape(-1, 11), right.reshape(-1))

    return loss


@pytest.mark.parametrize(
    ("by", "words", "places"),
    [(0, "back by 1 along the sequence", "t+0"), (2, "by 1 along", "t+2"), (-1, "by 2 along", "t-1")],
)
def test_shift_of_labels_is_named_with_the_token_that_is_asked_for(by: int, words: str, places: str) -> None:
    found = said(LOGITS, shifted(1), shifted(by), IDS)
    assert words in found
    assert f"the reference predicts the token at t+1, the candidate the one at {places}" in found
    assert words in said(LOGITS, shifted(1), shifted(by)), "known without the tokens, too"


def test_labels_in_another_order_are_not_called_shifted() -> None:
    other = IDS.flip(0)
    found = said(LOGITS, shifted(0), lambda z: F.cross_entropy(z.reshape(-1, 11), other.reshape(-1)))
    assert "different labels" in found


def test_predictions_that_count_on_one_side_only_are_counted() -> None:
    labels = IDS.clone()
    labels[:, :2] = -100
    found = said(LOGITS, shifted(0), lambda z: F.cross_entropy(z.reshape(-1, 11), labels.reshape(-1)))
    assert "one side only" in found
    assert "8 of 28 do" in found


def test_temperature_is_named_with_its_value() -> None:
    found = said(LOGITS, shifted(0), lambda z: shifted(0)(z / 3.0))
    assert "divided by 3 first" in found


def binary(z: torch.Tensor) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(z, MARKS)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda z: F.binary_cross_entropy_with_logits(z, MARKS, pos_weight=torch.tensor(3.0)), "weigh 3 times"),
        (lambda z: F.binary_cross_entropy_with_logits(torch.sigmoid(z), MARKS), "sigmoid is applied twice"),
        (lambda z: F.mse_loss(torch.sigmoid(z), MARKS), "a squared error of sigmoid(logits)"),
        (lambda z: F.mse_loss(z, MARKS), "a squared error of the logits"),
    ],
)
def test_change_of_a_binary_cross_entropy_is_named(loss: Loss, words: str) -> None:
    assert words in said(SCORES, binary, loss)


@pytest.mark.parametrize(
    ("loss", "words"),
    [(F.l1_loss, "an absolute error"), (F.smooth_l1_loss, "a smooth L1 or Huber loss")],
)
def test_change_of_a_squared_error_is_named_on_its_side(loss: Callable[..., torch.Tensor], words: str) -> None:
    square, other = (lambda z: F.mse_loss(z, TARGETS)), (lambda z: loss(z, TARGETS))
    assert f"{words} in the candidate" in said(SCORES, square, other)
    assert f"{words} in the reference" in said(SCORES, other, square)


def test_unknown_change_has_no_name() -> None:
    assert said(SCORES, lambda z: F.mse_loss(z, TARGETS), lambda z: torch.cosh(z - TARGETS).mean()) == ""


LABELS = IDS.reshape(-1)


def focal(z: torch.Tensor, *, detached: bool = False) -> torch.Tensor:
    each = F.cross_entropy(z.reshape(-1, 11), LABELS, reduction="none")
    factor = (1 - torch.exp(-each)) ** 2
    return ((factor.detach() if detached else factor) * each).mean()


def test_focal_loss_is_named_with_its_exponent() -> None:
    assert "a focal loss with exponent 2 in place" in said(LOGITS, shifted(0), focal)
    assert "gives no gradient" in said(LOGITS, shifted(0), lambda z: focal(z, detached=True))


def test_smoothing_is_read_off_both_sides_whatever_labels_are_ignored() -> None:
    def smoothed(value: float) -> Loss:
        return lambda z: F.cross_entropy(z.reshape(-1, 11), LABELS, ignore_index=3, label_smoothing=value)

    assert "smoothing of 0.1 in the candidate, 0 in the reference" in said(LOGITS, smoothed(0), smoothed(0.1))
    assert "smoothing of 0.05 in the candidate, 0.2 in the reference" in said(LOGITS, smoothed(0.2), smoothed(0.05))


def test_class_weights_are_seen_beside_those_of_the_reference() -> None:
    weights = torch.rand(11, generator=GENERATOR, dtype=torch.float64) + 0.5

    def weighted(given: torch.Tensor) -> Loss:
        return lambda z: F.cross_entropy(z.reshape(-1, 11), LABELS, weight=given)

    assert "different weights" in said(LOGITS, weighted(weights), weighted(weights**2))
    assert said(LOGITS, weighted(weights), lambda z: 3 * weighted(weights)(z)) == "", "a scale is another question"


def test_another_positive_weight_is_named_beside_that_of_the_reference() -> None:
    def weighted(value: float) -> Loss:
        return lambda z: F.binary_cross_entropy_with_logits(z, MARKS, pos_weight=torch.tensor(value))

    assert "weigh 2 times as much" in said(SCORES, weighted(2.0), weighted(4.0))
