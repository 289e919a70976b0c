"""Each rule, numerically: outputs and parameter gradients agree after a transfer, both ways."""

from typing import Any

import numpy as np
import paddle
import pytest
import torch
from layer_cases import CASES, LayerCase
from torch import nn as tn

from reprod_log.errors import TransferError
from reprod_log.frameworks.tensors import to_numpy
from reprod_log.layers.kinds import KINDS
from reprod_log.pairing.survey import survey
from reprod_log.transfer import transfer_gradients, transfer_weights

TITLES = {name: row.title for row in KINDS for column in row.columns.values() for name in column.classes}


def shake(layer: Any) -> None:
    """Every float tensor gets values of its own: fresh norms are ones and zeros, which hide mistakes."""
    random = np.random.default_rng(5)
    found = survey(layer)
    for unit in found.units:
        for name in unit.tensors:
            old = found.read(name)
            if old.dtype.kind == "f":
                found.live.framework.eager.write(
                    found.live.tensors[name], (old + 0.3 * random.random(old.shape)).astype(old.dtype)
                )
    if "padding_idx" in vars(layer) and layer.padding_idx is not None:
        with torch.no_grad():
            layer.weight[layer.padding_idx] = 0.0
    if getattr(layer, "_padding_idx", None) is not None:
        row = layer.weight.numpy()
        row[layer._padding_idx] = 0.0
        layer.weight.set_value(row)
    for module in found.live.objects.values():
        found.live.framework.eager.refresh(module)


def run_torch(case: LayerCase, layer: Any, arrays: tuple[Any, ...], weights: list[Any] | None) -> list[Any]:
    layer.eval()
    outputs = case.call_torch(layer, *(torch.from_numpy(x) for x in arrays))
    if weights is not None and outputs[0].requires_grad:
        sum((out * torch.from_numpy(w)).sum() for out, w in zip(outputs, weights, strict=True)).backward()
    return [out.detach().numpy() for out in outputs]


def run_paddle(case: LayerCase, layer: Any, arrays: tuple[Any, ...], weights: list[Any] | None) -> list[Any]:
    # paddle goes backward through recurrent layers only in training mode, through instance norm only to an input.
    layer.train() if case.kind in ("RNN", "LSTM", "GRU") else layer.eval()
    given = [paddle.to_tensor(x, stop_gradient=x.dtype.kind != "f") for x in arrays]
    outputs = case.call_paddle(layer, *given)
    if weights is not None and not outputs[0].stop_gradient:
        sum((out * paddle.to_tensor(w)).sum() for out, w in zip(outputs, weights, strict=True)).backward()
    return [out.detach().numpy() for out in outputs]


def gradients(layer: Any) -> dict[str, Any]:
    found = survey(layer)
    names = [name for unit in found.units for name in unit.tensors]
    kept = {name: found.live.framework.eager.gradient(found.live.tensors[name]) for name in names}
    read = {name: None if one is None else to_numpy(one) for name, one in kept.items()}
    return {name: array for name, array in read.items() if array is not None}


@pytest.mark.parametrize("direction", ["torch to paddle", "paddle to torch"])
@pytest.mark.parametrize("name", CASES)
def test_layer_computes_the_same_after_transfer(name: str, direction: str) -> None:
    case = CASES[name]
    torch.manual_seed(0)
    paddle.seed(0)
    in_torch, in_paddle = case.build_torch(), case.build_paddle()
    source, target = (in_torch, in_paddle) if direction == "torch to paddle" else (in_paddle, in_torch)
    shake(source)

    report = transfer_weights(source, target)

    assert report.complete
    assert {row.verified for row in report.rows} == {"verified"}
    assert {TITLES[row.rule] for row in report.rows} == {case.kind}
    random = np.random.default_rng(1)
    arrays = case.inputs(random)
    probe = run_torch(case, in_torch, arrays, None)
    weights = [random.standard_normal(out.shape).astype(np.float32) for out in probe]
    one, other = run_torch(case, in_torch, arrays, weights), run_paddle(case, in_paddle, arrays, weights)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)

    own = gradients(target)
    transfer_gradients(source, target, report=report)
    carried = gradients(target)
    assert own.keys() == carried.keys()
    for key, array in own.items():
        np.testing.assert_allclose(carried[key], array, rtol=1e-3, atol=1e-4, err_msg=key)


def test_gradients_by_the_report_of_other_models_are_refused() -> None:
    report = transfer_weights(tn.Linear(3, 3), paddle.nn.Linear(3, 3))
    with pytest.raises(TransferError, match="report is of other models"):
        transfer_gradients(tn.Linear(3, 4), paddle.nn.Linear(3, 4), report=report)


def test_gradients_that_are_missing_in_the_source_go_from_the_target() -> None:
    source, target = tn.Linear(3, 3), paddle.nn.Linear(3, 3)
    target(paddle.ones([1, 3])).sum().backward()
    source.bias.grad = torch.full((3,), 2.0)
    report = transfer_gradients(source, target)
    assert target.weight.grad is None
    np.testing.assert_array_equal(target.bias.grad.numpy(), np.full(3, 2.0))
    assert [row.target for row in report.rows] == ["bias"]


def test_every_rule_has_a_case() -> None:
    # paddle 3.3.1 has neither of these two layers; torch to torch is tested below.
    without_partner = {"RMSNorm", "EmbeddingBag"}
    with_tensors = {row.title for row in KINDS if "torch" in row.columns and row.columns["torch"].tensors}
    assert with_tensors == {case.kind for case in CASES.values()} | without_partner


@pytest.mark.parametrize("build", [lambda: tn.RMSNorm(6), lambda: tn.EmbeddingBag(6, 3), lambda: tn.Linear(3, 3)])
def test_transfer_within_torch_copies_everything(build: Any) -> None:
    source, target = build(), build()
    shake(source)
    report = transfer_weights(source, target)
    assert {row.verified for row in report.rows} == {"verified"}
    for one, other in zip(source.parameters(), target.parameters(), strict=True):
        assert torch.equal(one, other)


def test_transfer_within_paddle_copies_everything() -> None:
    source, target = paddle.nn.Linear(3, 3), paddle.nn.Linear(3, 3)
    report = transfer_weights(source, target)
    assert {row.verified for row in report.rows} == {"verified"}
    np.testing.assert_array_equal(source.weight.numpy(), target.weight.numpy())


def test_transfer_between_compat_and_plain_linear_transposes() -> None:
    source, target = paddle.compat.nn.Linear(3, 3), paddle.nn.Linear(3, 3)
    transfer_weights(source, target)
    np.testing.assert_array_equal(source.weight.numpy().T, target.weight.numpy())


def test_sync_batch_norm_moves_unverified_where_it_cannot_run() -> None:
    source, target = tn.BatchNorm2d(3), paddle.nn.SyncBatchNorm(3)
    shake(source)
    report = transfer_weights(source, target)
    # paddle has no CPU kernel for it; on a GPU this row would be verified.
    assert {row.verified for row in report.rows} <= {"unverified", "verified"}
    np.testing.assert_array_equal(source.running_var.numpy(), target._variance.numpy())
