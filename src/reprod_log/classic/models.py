"""compare_forward and compare_loss_and_backward: two live models, as 1.0.1 compared them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from reprod_log.classic.conversions import _framework, np2paddle, np2torch, paddle2np, torch2np
from reprod_log.classic.difference import compute_diff
from reprod_log.classic.text import check_print_diff
from reprod_log.errors import UsageError
from reprod_log.frameworks.tensors import to_numpy
from reprod_log.recording import Array


def compare_forward(
    torch_model: Any,
    paddle_model: Any,
    input_dict: Mapping[str, Any],
    diff_threshold: float = 1e-6,
    diff_method: Any = "mean",
) -> bool:
    """Run both models in eval mode on the same inputs, print the difference of their outputs, return whether it passed.

    Outputs may be of any structure. Mode and random state of both are put back.
    """
    with _quiet(torch_model, paddle_model):
        torch_outputs = torch2np(torch_model(**np2torch(input_dict)))
        paddle_outputs = paddle2np(paddle_model(**np2paddle(input_dict)))
    passed = check_print_diff(
        compute_diff(torch_outputs, paddle_outputs), diff_method=diff_method, diff_threshold=diff_threshold
    )
    print("diff check passed" if passed else "diff check failed")
    return passed


def compare_loss_and_backward(
    torch_model: Any,
    paddle_model: Any,
    torch_loss: Callable[[Any, Any], Mapping[str, Any]],
    paddle_loss: Callable[[Any, Any], Mapping[str, Any]],
    input_dict: Mapping[str, Any],
    lr: float = 1e-3,
    steps: int = 10,
    diff_threshold: float = 1e-6,
    diff_method: Any = "mean",
) -> bool:
    """Train both models with SGD on the same inputs and compare loss and every trainable parameter's gradient.

    A loss is called with (inputs, outputs) and gives {"loss": …}. Stops at the first iteration that fails, and
    returns whether all passed. Mode and random state are put back; the parameters stay as the steps left them.
    """
    if steps < 1:
        raise UsageError(f"steps must be at least 1, not {steps}: nothing would be compared")
    torch, paddle = _framework("torch"), _framework("paddle")
    torch_inputs, paddle_inputs = np2torch(input_dict), np2paddle(input_dict)
    torch_optimizer = torch.optim.SGD(torch_model.parameters(), lr=lr)
    paddle_optimizer = paddle.optimizer.SGD(parameters=paddle_model.parameters(), learning_rate=lr)
    with _quiet(torch_model, paddle_model):
        for iteration in range(steps):
            ours = _paddle_step(paddle_model, paddle_loss, paddle_inputs, paddle_optimizer)
            theirs = _torch_step(torch_model, torch_loss, torch_inputs, torch_optimizer)
            passed = check_print_diff(
                compute_diff(ours, theirs), diff_method=diff_method, diff_threshold=diff_threshold
            )
            print(f"diff check {'passed' if passed else 'failed'} in iter {iteration}")
            if not passed:
                return False
    print("diff check passed")
    return True


def _torch_step(
    model: Any, loss: Callable[[Any, Any], Mapping[str, Any]], inputs: Any, optimizer: Any
) -> dict[str, Array]:
    value = _scalar(loss(inputs, model(**inputs)), "torch_loss")
    value.backward()
    found = {"loss": to_numpy(value)}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.grad is not None:
            found[name] = to_numpy(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
    return found


def _paddle_step(
    model: Any, loss: Callable[[Any, Any], Mapping[str, Any]], inputs: Any, optimizer: Any
) -> dict[str, Array]:
    value = _scalar(loss(inputs, model(**inputs)), "paddle_loss")
    value.backward()
    found = {"loss": to_numpy(value)}
    for name, parameter in model.named_parameters():
        # stop_gradient also leaves out BatchNorm's statistics, which paddle lists among the parameters.
        if not parameter.stop_gradient and parameter.grad is not None:
            found[name] = to_numpy(parameter.grad)
    optimizer.step()
    optimizer.clear_grad()
    return found


def _scalar(result: Any, name: str) -> Any:
    if not isinstance(result, Mapping) or "loss" not in result:
        raise UsageError(f"{name}(inputs, outputs) must return a dict with 'loss', not {type(result).__name__}")
    return result["loss"]


@contextmanager
def _quiet(torch_model: Any, paddle_model: Any) -> Iterator[None]:
    """Both models in eval mode; mode of every part and random state of both frameworks as before afterwards."""
    torch, paddle = _framework("torch"), _framework("paddle")
    with ExitStack() as undo:
        undo.callback(torch.set_rng_state, torch.get_rng_state())
        undo.callback(paddle.set_rng_state, paddle.get_rng_state())
        modes = [(part, part.training) for part in torch_model.modules()]
        modes += [(part, part.training) for part in paddle_model.sublayers(include_self=True)]
        for part, training in modes:
            undo.callback(setattr, part, "training", training)
        torch_model.eval()
        paddle_model.eval()
        yield
