"""Where no known change explains a loss, the operator inside it that differs is named with its line."""

from typing import Any

import numpy as np
import paddle
import torch
from paddle.nn import functional as PF
from torch.nn import functional as TF

from reprod_log import align_models
from reprod_log.diagnose import Finding


class Reference(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(6, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.fc(x), self.fc(y)


class Port(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.fc = paddle.nn.Linear(6, 4)

    def forward(self, x: Any, y: Any) -> Any:
        return self.fc(x), self.fc(y)


def contrastive(outputs: Any, same: torch.Tensor) -> torch.Tensor:
    distance = (outputs[0] - outputs[1]).pow(2).sum(-1).sqrt()
    return (same * distance.pow(2) + (1 - same) * TF.relu(2.0 - distance).pow(2)).mean()


def _causes(margin: float, *, cut: bool = False) -> list[Finding]:
    def loss(outputs: Any, same: Any) -> Any:
        distance = ((outputs[0] - outputs[1]) ** 2).sum(-1).sqrt()
        far = PF.relu(margin - (distance.detach() if cut else distance)) ** 2
        return (same * distance**2 + (1 - same) * far).mean()

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    pair = {name: rng.normal(size=(6, 6)).astype("float32") for name in "xy"}
    same = (rng.random(6) < 0.5).astype("float32")
    alignment = align_models(Reference(), Port(), pair, targets=same, loss=(contrastive, loss))
    return [one for one in alignment.findings if one.kind == "cause"]


def test_right_loss_has_no_cause() -> None:
    assert _causes(2.0) == []


def test_margin_of_a_contrastive_loss_is_found_in_its_line() -> None:
    (cause,) = _causes(3.0)
    assert cause.rule == "operator"
    assert str(cause.cause).startswith("inside the loss the first operator that differs is")
    assert "far = PF.relu(margin - " in str(cause.cause)


def test_cut_inside_the_loss_is_found_in_its_line() -> None:
    (cause,) = _causes(2.0, cut=True)
    assert cause.rule in ("cut_graph", "operator")
    assert "test_operators_of_the_loss.py" in str(cause.cause)


def test_term_of_a_step_is_found_in_its_line_and_not_in_the_loss_that_the_step_does_not_use() -> None:

    def ours(outputs: Any, labels: Any) -> Any:
        return TF.cross_entropy(outputs[0], labels)

    def theirs(outputs: Any, labels: Any) -> Any:
        return PF.cross_entropy(outputs[0], labels)

    def our_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
        ours(model(**inputs), targets).backward()
        optimizer.step()

    def their_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
        outputs = model(**inputs)
        (theirs(outputs, targets) + 0.1 * outputs[0].exp().mean()).backward()
        optimizer.step()

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    alignment = align_models(
        Reference(),
        Port(),
        {name: rng.normal(size=(6, 6)).astype("float32") for name in "xy"},
        targets=rng.integers(0, 4, 6),
        loss=(ours, theirs),
        step=(our_step, their_step),
        optimizer=(
            lambda model: torch.optim.SGD(model.parameters(), 0.1),
            lambda model: paddle.optimizer.SGD(0.1, parameters=model.parameters()),
        ),
    )
    (cause,) = [one for one in alignment.findings if one.kind == "cause"]
    assert "exp in the candidate" in str(cause.cause)
    assert "(theirs(outputs, targets) + 0.1 * outputs[0].exp().mean()).backward()" in str(cause.cause)


def test_what_a_step_does_to_its_data_is_found_in_its_line() -> None:
    def our_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
        noised = torch.sqrt(inputs["x"].abs()) + inputs["y"]
        (model(noised, inputs["y"])[0] ** 2).mean().backward()

    def their_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
        noised = inputs["x"].abs() + inputs["y"]
        (model(noised, inputs["y"])[0] ** 2).mean().backward()

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    inputs = {name: rng.normal(size=(6, 6)).astype("float32") for name in "xy"}
    alignment = align_models(Reference(), Port(), inputs, step=(our_step, their_step))
    (cause,) = [one for one in alignment.findings if one.kind == "cause"]
    assert "inside the step the first operator that differs is sqrt in the reference" in str(cause.cause)
