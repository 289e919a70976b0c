"""What a transfer refuses, and that a refused transfer has changed nothing."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from paddle import nn as pn
from torch import nn as tn

from reprod_log.errors import TransferError, UsageError
from reprod_log.transfer import transfer_weights


def state(layer: Any) -> dict[str, np.ndarray]:
    return {name: np.array(value.detach().numpy()) for name, value in layer.state_dict().items()}


def refused(source: Any, target: Any, match: str, **options: Any) -> str:
    before = state(target)
    with pytest.raises(TransferError, match=match) as caught:
        transfer_weights(source, target, **options)
    for name, array in state(target).items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
    return str(caught.value)


def pair(
    in_torch: dict[str, Callable[[], Any]], in_paddle: dict[str, Callable[[], Any]]
) -> tuple[tn.ModuleDict, pn.LayerDict]:
    return (
        tn.ModuleDict({name: build() for name, build in in_torch.items()}),
        pn.LayerDict({name: build() for name, build in in_paddle.items()}),
    )


def test_missing_layer_is_named_with_what_is_near() -> None:
    source, target = pair(
        {"conv": lambda: tn.Conv2d(3, 4, 3), "classifier": lambda: tn.Linear(4, 2)},
        {"conv": lambda: pn.Conv2D(3, 4, 3)},
    )
    left = "2 tensors of the source have no place in the target: 'classifier.weight', 'classifier.bias'"
    said = refused(source, target, left)
    assert "nothing fits 'classifier' (Linear weight (2, 4), bias (2))" in said
    assert "Nothing was changed" in said
    target["classifer"] = pn.Linear(4, 5)
    said = refused(source, target, left)
    assert "near 'classifier.weight': 'classifer.weight'" in said


def test_extra_bias_is_named() -> None:
    source, target = pair({"fc": lambda: tn.Linear(4, 4, bias=False)}, {"fc": lambda: pn.Linear(4, 4)})
    refused(source, target, "1 tensor of the target cannot be filled: 'fc.bias'.*'fc'.*has nothing to match 'fc.bias'")


def test_wrong_shape_is_shown_on_both_sides() -> None:
    source, target = pair({"fc": lambda: tn.Linear(4, 1000)}, {"fc": lambda: pn.Linear(4, 10)})
    said = refused(source, target, r"weight \(10, 4\)")
    assert "weight (1000, 4)" in said


def test_a_difference_deep_in_a_model_changes_nothing_before_it() -> None:
    source, target = pair(
        {"a": lambda: tn.Linear(4, 4), "b": lambda: tn.Linear(4, 4), "z": lambda: tn.Linear(4, 3)},
        {"a": lambda: pn.Linear(4, 4), "b": lambda: pn.Linear(4, 4), "z": lambda: pn.Linear(4, 5)},
    )
    refused(source, target, "'z.weight', 'z.bias'")


def test_allowed_leftovers_are_left_and_shown() -> None:
    source, target = pair(
        {"fc": lambda: tn.Linear(4, 4), "aux": lambda: tn.Linear(4, 2)}, {"fc": lambda: pn.Linear(4, 4)}
    )
    report = transfer_weights(source, target, allow_left=("aux.*",))
    assert report.complete
    assert report.allowed == ("aux.weight", "aux.bias")
    assert "left on purpose: aux.weight" in str(report)
    np.testing.assert_array_equal(target["fc"].weight.numpy(), source["fc"].weight.detach().numpy().T)


def test_layer_with_a_tensor_left_on_purpose_is_not_verified() -> None:
    source, target = pair({"fc": lambda: tn.Linear(4, 4, bias=False)}, {"fc": lambda: pn.Linear(4, 4)})
    target["fc"].bias.set_value(np.ones(4, np.float32))
    report = transfer_weights(source, target, allow_left=("fc.bias",))
    assert [(row.target, row.verified, row.check) for row in report.rows] == [
        ("fc.weight", "unverified", "'fc.bias' was not transferred")
    ]


def test_allowance_for_one_side_does_not_cover_the_other() -> None:
    source, target = pair({"aux": lambda: tn.Linear(4, 2)}, {"fc": lambda: pn.Linear(4, 4)})
    refused(source, target, "'fc.weight', 'fc.bias'", allow_left=("aux.*",))


def test_shallower_target_names_the_missing_blocks() -> None:
    source = tn.Sequential(*(tn.Linear(4, 4) for _ in range(3)))
    target = pn.Sequential(*(pn.Linear(4, 4) for _ in range(2)))
    said = refused(source, target, "2 tensors of the source have no place in the target: '2.weight', '2.bias'")
    assert "target cannot" not in said


class UntransposedLinear(pn.Linear):
    """A port that kept torch's layout in a class that stores (in, out): invisible by shape if the layer is square."""

    def forward(self, x: Any) -> Any:
        return paddle.matmul(x, self.weight, transpose_y=True) + self.bias


def test_square_weight_in_the_wrong_layout_is_caught_by_running_it() -> None:
    source, target = pair({"fc": lambda: tn.Linear(4, 4)}, {"fc": lambda: UntransposedLinear(4, 4)})
    said = refused(source, target, "compute something else: Linear 'fc'")
    assert "on_difference='report'" in said


def test_square_weight_in_the_wrong_layout_passes_unnoticed_without_verification() -> None:
    # The check above could not fail otherwise.
    source, target = pair({"fc": lambda: tn.Linear(4, 4)}, {"fc": lambda: UntransposedLinear(4, 4)})
    report = transfer_weights(source, target, verify=False)
    assert report.complete
    assert {row.verified for row in report.rows} == {"unverified"}


@pytest.mark.parametrize(
    ("in_torch", "in_paddle", "said"),
    [
        (lambda: tn.LayerNorm(4), lambda: pn.LayerNorm(4, epsilon=1e-6), "eps 1e-05 and 1e-06"),
        (lambda: tn.Conv2d(3, 4, 3, padding=1), lambda: pn.Conv2D(3, 4, 3), "output shapes"),
        (lambda: tn.GroupNorm(2, 4), lambda: pn.GroupNorm(4, 4), "num_groups 2 and 4"),
        (lambda: tn.MultiheadAttention(8, 2), lambda: pn.MultiHeadAttention(8, 4), "num_heads 2 and 4"),
        (lambda: tn.RNN(3, 4, nonlinearity="relu"), lambda: pn.SimpleRNN(3, 4), "relative difference"),
    ],
)
def test_layer_with_another_setting_is_refused(in_torch: Any, in_paddle: Any, said: str) -> None:
    source, target = pair({"layer": in_torch}, {"layer": in_paddle})
    refused(source, target, said)


def test_layer_that_differs_moves_when_only_a_report_is_wanted() -> None:
    source, target = pair({"n": lambda: tn.LayerNorm(4)}, {"n": lambda: pn.LayerNorm(4, epsilon=1e-3)})
    with torch.no_grad():
        source["n"].weight.uniform_()
    report = transfer_weights(source, target, on_difference="report")
    assert [row.target for row in report.differing] == ["n.weight", "n.bias"]
    np.testing.assert_array_equal(target["n"].weight.numpy(), source["n"].weight.detach().numpy())
    with pytest.raises(TransferError, match="eps"):
        report.raise_if_incomplete()


def test_on_difference_does_not_excuse_leftovers() -> None:
    source, target = pair({"fc": lambda: tn.Linear(4, 4)}, {"fc": lambda: pn.Linear(4, 4, bias_attr=False)})
    refused(source, target, "'fc.bias'", on_difference="report")


def test_dry_run_reports_and_changes_nothing() -> None:
    source, target = pair(
        {"fc": lambda: tn.Linear(4, 4)}, {"fc": lambda: pn.Linear(4, 4), "x": lambda: pn.Linear(2, 2)}
    )
    before = state(target)
    report = transfer_weights(source, target, dry_run=True)
    assert not report.complete
    assert report.left_in_target == ("x.weight", "x.bias")
    np.testing.assert_array_equal(target["fc"].weight.numpy(), before["fc.weight"])


def test_weight_norm_over_another_axis_is_refused() -> None:
    # paddle's default axis on a linear layer is the input; torch's is the output.
    source, target = pair(
        {"fc": lambda: tn.utils.parametrizations.weight_norm(tn.Linear(4, 4))},
        {"fc": lambda: pn.utils.weight_norm(pn.Linear(4, 4))},
    )
    refused(source, target, "weight WeightNorm over axis 1 here and .* over axis 0 there")


@pytest.mark.parametrize("model", [object(), "model", np.ones(3), torch.ones(3)])
def test_something_that_is_no_model_is_refused(model: Any) -> None:
    with pytest.raises(UsageError, match=r"Expected a model of .*'torch', got a "):
        transfer_weights(model, pn.Linear(2, 2))


def test_a_model_into_itself_is_refused() -> None:
    model = tn.Linear(2, 2)
    with pytest.raises(UsageError, match="one and the same"):
        transfer_weights(model, model)


def test_models_without_tensors_are_refused() -> None:
    with pytest.raises(TransferError, match="Nothing to transfer"):
        transfer_weights(tn.ReLU(), pn.ReLU())


def test_unmaterialized_layer_is_named() -> None:
    with pytest.raises(TransferError, match="'0.weight' has no shape yet"):
        transfer_weights(tn.Sequential(tn.LazyLinear(3)), pn.Sequential(pn.Linear(2, 3)))


def test_paddle_standing_in_for_torch_is_named() -> None:
    program = """
import torch, paddle
model = torch.nn.Linear(2, 2)
paddle.enable_compat()
from reprod_log.errors import UsageError
from reprod_log.transfer import transfer_weights
try:
    transfer_weights(model, paddle.nn.Linear(2, 2))
except UsageError as error:
    print(error)
"""
    answer = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert "paddle.disable_compat()" in answer.stdout
