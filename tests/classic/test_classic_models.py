"""compare_forward and compare_loss_and_backward, tensors and conversions: real torch and real paddle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import pytest
import torch

from reprod_log import ReprodDiffHelper, ReprodLogger
from reprod_log.compare import compare_forward, compare_loss_and_backward
from reprod_log.errors import ReprodLogError, UsageError
from reprod_log.utils import np2paddle, np2torch, paddle2np, torch2np

RNG = np.random.default_rng(0)
WEIGHTS = {"fc1": (RNG.normal(size=(5, 3)), RNG.normal(size=5)), "fc2": (RNG.normal(size=(2, 5)), RNG.normal(size=2))}
INPUTS = {"x": RNG.normal(size=(4, 3)).astype(np.float32)}


@dataclass
class Output:
    logits: Any
    hidden: Any


def shaped(structure: str, logits: Any, hidden: Any) -> Any:
    return {
        "tensor": logits,
        "dict": {"logits": logits, "nested": {"hidden": hidden}},
        "tuple": (logits, [hidden, None]),
        "dataclass": Output(logits, hidden),
    }[structure]


class TorchNet(torch.nn.Module):
    def __init__(self, structure: str = "tensor") -> None:
        super().__init__()
        self.structure = structure
        self.fc1, self.fc2 = torch.nn.Linear(3, 5), torch.nn.Linear(5, 2)
        self.drop = torch.nn.Dropout(0.5)
        with torch.no_grad():
            for name, (weight, bias) in WEIGHTS.items():
                getattr(self, name).weight.copy_(torch.tensor(weight))
                getattr(self, name).bias.copy_(torch.tensor(bias))

    def forward(self, x: torch.Tensor) -> Any:
        torch.rand(1)  # a model that draws numbers moves the random state
        hidden = torch.relu(self.fc1(x))
        return shaped(self.structure, self.fc2(self.drop(hidden)), hidden)


class PaddleNet(paddle.nn.Layer):
    def __init__(self, structure: str = "tensor", wrong: float = 0.0, extra: bool = False) -> None:
        super().__init__()
        self.structure = structure
        self.fc1, self.fc2 = paddle.nn.Linear(3, 5), paddle.nn.Linear(5, 2)
        self.drop = paddle.nn.Dropout(0.5)
        for name, (weight, bias) in WEIGHTS.items():
            getattr(self, name).weight.set_value((weight.T + wrong).astype(np.float32))
            getattr(self, name).bias.set_value(bias.astype(np.float32))
        self.extra = self.create_parameter([1]) if extra else None

    def forward(self, x: paddle.Tensor) -> Any:
        paddle.rand([1])
        hidden = paddle.nn.functional.relu(self.fc1(x))
        logits = self.fc2(self.drop(hidden))
        return shaped(self.structure, logits if self.extra is None else logits + 0 * self.extra, hidden)


def torch_loss(inputs: Any, outputs: Any) -> dict[str, Any]:
    return {"loss": (outputs**2).mean()}


def paddle_loss(inputs: Any, outputs: Any) -> dict[str, Any]:
    return {"loss": (outputs**2).mean()}


@pytest.mark.parametrize("structure", ["tensor", "dict", "tuple", "dataclass"])
def test_outputs_of_any_structure_are_compared(structure: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_forward(TorchNet(structure), PaddleNet(structure), INPUTS, diff_threshold=1e-5)
    out = capsys.readouterr().out
    assert out.endswith("diff check passed\n")
    expected = {
        "tensor": ["output: "],
        "dict": ["logits: ", "nested.hidden: "],
        "tuple": ["output.0: ", "output.1.0: "],
        "dataclass": ["output.logits: ", "output.hidden: "],
    }[structure]
    assert [line for line in out.splitlines() if line.endswith(": ")] == expected
    assert not compare_forward(TorchNet(structure), PaddleNet(structure, wrong=1e-3), INPUTS, diff_threshold=1e-5)
    assert capsys.readouterr().out.endswith("diff check failed\n")


def test_different_structures_do_not_pass() -> None:
    assert not compare_forward(TorchNet("tensor"), PaddleNet("dict"), INPUTS, diff_threshold=1e9)


def test_mode_and_random_state_are_put_back() -> None:
    torch_net, paddle_net = TorchNet(), PaddleNet()
    torch_net.train()
    paddle_net.train()
    torch_net.fc1.eval()
    torch.manual_seed(1)
    paddle.seed(1)
    expected = torch.rand(3).numpy(), paddle.rand([3]).numpy()
    torch.manual_seed(1)
    paddle.seed(1)
    compare_forward(torch_net, paddle_net, INPUTS)
    assert torch_net.training
    assert torch_net.drop.training
    assert not torch_net.fc1.training
    assert paddle_net.training
    assert paddle_net.drop.training
    np.testing.assert_array_equal(torch.rand(3).numpy(), expected[0])
    np.testing.assert_array_equal(paddle.rand([3]).numpy(), expected[1])


def test_mode_is_put_back_when_the_model_raises() -> None:
    torch_net, paddle_net = TorchNet(), PaddleNet()
    with pytest.raises(TypeError):
        compare_forward(torch_net, paddle_net, {"wrong_name": INPUTS["x"]})
    assert torch_net.training
    assert paddle_net.training


def test_equal_models_pass_ten_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_loss_and_backward(
        TorchNet(), PaddleNet(), torch_loss, paddle_loss, INPUTS, lr=1e-2, steps=3, diff_threshold=1e-5
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "diff check passed"
    assert lines[-2] == "diff check passed in iter 2"
    assert lines[:2] == ["loss: ", lines[1]]
    assert "fc1.weight: " in lines
    assert "\tnote: the first was transposed: [3, 5] to [5, 3]" in lines


def test_wrong_weight_fails_in_the_first_iteration(capsys: pytest.CaptureFixture[str]) -> None:
    assert not compare_loss_and_backward(
        TorchNet(), PaddleNet(wrong=1e-2), torch_loss, paddle_loss, INPUTS, diff_threshold=1e-5
    )
    assert capsys.readouterr().out.splitlines()[-1] == "diff check failed in iter 0"


def test_parameter_of_one_side_only_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert not compare_loss_and_backward(
        TorchNet(), PaddleNet(extra=True), torch_loss, paddle_loss, INPUTS, diff_threshold=1e9
    )
    assert "extra: " in capsys.readouterr().out
    frozen = PaddleNet()
    frozen.fc2.bias.stop_gradient = True
    assert not compare_loss_and_backward(TorchNet(), frozen, torch_loss, paddle_loss, INPUTS, diff_threshold=1e9)


def test_loss_without_the_loss_key_is_a_clear_error() -> None:
    with pytest.raises(UsageError, match="paddle_loss.*must return a dict with 'loss'"):
        compare_loss_and_backward(TorchNet(), PaddleNet(), torch_loss, lambda i, o: o.mean(), INPUTS)
    with pytest.raises(UsageError, match="steps must be at least 1"):
        compare_loss_and_backward(TorchNet(), PaddleNet(), torch_loss, paddle_loss, INPUTS, steps=0)


def test_ids_stay_integers() -> None:
    data = {"ids": np.array([3, 1]), "n": np.array(5), "mask": np.array([True]), "name": "x"}
    for made in (np2torch(data), np2paddle(data)):
        assert made["name"] == "x"
        for key in ("ids", "n", "mask"):
            array = made[key].numpy()
            assert array.dtype == data[key].dtype
            np.testing.assert_array_equal(array, data[key])


def test_conversion_of_what_is_no_dict_is_an_assertion_error_as_in_1_0_1() -> None:
    for convert in (np2torch, np2paddle):
        with pytest.raises(AssertionError) as caught:
            convert([])  # type: ignore[arg-type]
        assert isinstance(caught.value, ReprodLogError)


def test_conversions_name_a_lone_tensor_output() -> None:
    assert list(torch2np(torch.ones(2, requires_grad=True))) == ["output"]
    assert list(paddle2np(paddle.ones([2]))) == ["output"]
    assert list(torch2np({"a": torch.ones(1)})) == ["a"]


def test_tensor_is_copied_when_added() -> None:
    layer = torch.nn.Linear(2, 1)
    layer(torch.ones(1, 2)).sum().backward()
    logger = ReprodLogger()
    logger.add("tensor", layer.weight.grad)
    logger.add("array", layer.weight.grad.numpy())
    layer.zero_grad(set_to_none=False)
    np.testing.assert_array_equal(logger.data["tensor"], [[1, 1]])
    np.testing.assert_array_equal(logger.data["array"], [[1, 1]])


def test_bfloat16_tensor_is_a_number() -> None:
    values = [1.0, 1.0078125, -3.0]
    ours, theirs = ReprodLogger(), ReprodLogger()
    ours.add("x", torch.tensor(values, dtype=torch.bfloat16))
    theirs.add("x", paddle.to_tensor(values, dtype="bfloat16"))
    np.testing.assert_array_equal(ours.data["x"], np.array(values, np.float32))
    np.testing.assert_array_equal(theirs.data["x"], ours.data["x"])
    assert ours.data["x"].dtype == np.float32
    helper = ReprodDiffHelper()
    helper.compare_info(ours.data, theirs.data)
    assert helper.report(path=None).passed
