"""Which layer goes to which: names, renames, structure, execution order, values, and what is refused."""

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


def assert_unchanged(layer: Any, before: dict[str, np.ndarray]) -> None:
    for name, array in state(layer).items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


class SquaresTorch(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = tn.Linear(4, 4)
        self.second = tn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.second(torch.relu(self.first(x)))


class SquaresPaddle(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.late = pn.Linear(4, 4)
        self.early = pn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.late(pn.functional.relu(self.early(x)))


X = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)}


def test_square_layers_in_another_order_are_refused_without_inputs() -> None:
    source, target = SquaresTorch(), SquaresPaddle()
    before = state(target)
    with pytest.raises(TransferError, match="more than one way") as caught:
        transfer_weights(source, target)
    assert_unchanged(target, before)
    assert "'first', 'second'" in str(caught.value)
    assert "'late', 'early'" in str(caught.value)
    assert "inputs=" in str(caught.value)


def test_square_layers_in_another_order_are_told_apart_by_execution_order() -> None:
    source, target = SquaresTorch(), SquaresPaddle()
    report = transfer_weights(source, target, inputs=X)
    assert {(row.layer, row.source_layer) for row in report.rows} == {("early", "first"), ("late", "second")}
    np.testing.assert_array_equal(target.early.weight.numpy(), source.first.weight.detach().numpy().T)


def test_square_layers_are_told_apart_by_rename() -> None:
    source, target = SquaresTorch(), SquaresPaddle()
    report = transfer_weights(source, target, rename={"first": "early", "second": "late"})
    assert {row.how for row in report.rows} == {"rename"}
    np.testing.assert_array_equal(target.late.weight.numpy(), source.second.weight.detach().numpy().T)


def test_registration_order_is_taken_on_trust_only_when_asked_for() -> None:
    source, target = SquaresTorch(), SquaresPaddle()
    report = transfer_weights(source, target, order="registration")
    assert {(row.layer, row.source_layer) for row in report.rows} == {("late", "first"), ("early", "second")}
    assert {row.how for row in report.rows} == {"registration order"}


def test_numbers_that_rise_in_both_registrations_are_followed() -> None:
    source = tn.ModuleDict({"fc1": tn.Linear(4, 4), "fc2": tn.Linear(4, 4)})
    target = pn.LayerDict({"linear_1": pn.Linear(4, 4), "linear_2": pn.Linear(4, 4)})
    report = transfer_weights(source, target)
    assert {(row.layer, row.source_layer) for row in report.rows} == {("linear_1", "fc1"), ("linear_2", "fc2")}


def test_numbers_against_the_registration_are_not_followed() -> None:
    source = tn.ModuleDict({"fc1": tn.Linear(4, 4), "fc2": tn.Linear(4, 4)})
    target = pn.LayerDict({"linear_2": pn.Linear(4, 4), "linear_1": pn.Linear(4, 4)})
    with pytest.raises(TransferError, match="more than one way"):
        transfer_weights(source, target)


def test_equal_numbers_do_not_mean_equal_layers_when_the_counting_differs() -> None:
    # "2" is the second linear layer on one side and the third on the other.
    source = tn.Sequential(tn.Linear(4, 4), tn.ReLU(), tn.Linear(4, 4), tn.ReLU(), tn.Linear(4, 4))
    target = pn.Sequential(pn.Linear(4, 4), pn.Linear(4, 4), pn.Linear(4, 4))
    report = transfer_weights(source, target)
    assert {(row.layer, row.source_layer) for row in report.rows} == {("0", "0"), ("1", "2"), ("2", "4")}


def test_prefix_rename_moves_everything_below() -> None:
    source = tn.ModuleDict({"encoder": tn.Sequential(tn.Linear(4, 4), tn.LayerNorm(4)), "head": tn.Linear(4, 4)})
    target = pn.LayerDict(
        {
            "bert": pn.LayerDict({"encoder": pn.Sequential(pn.Linear(4, 4), pn.LayerNorm(4))}),
            "head": pn.Linear(4, 4),
        }
    )
    report = transfer_weights(source, target, rename={"encoder": "bert.encoder"})
    hows = {row.layer: row.how for row in report.rows}
    assert hows == {"bert.encoder.0": "rename", "bert.encoder.1": "rename", "head": "name"}


def test_what_stands_in_front_of_every_name_does_not_matter() -> None:
    layers = {"first": (4, 4), "second": (4, 4)}
    source = tn.ModuleDict({"net": tn.ModuleDict({name: tn.Linear(*size) for name, size in layers.items()})})
    target = pn.LayerDict({name: pn.Linear(*size) for name, size in reversed(layers.items())})
    report = transfer_weights(source, target)
    assert {(row.layer, row.source_layer) for row in report.rows} == {("first", "net.first"), ("second", "net.second")}
    assert {row.how for row in report.rows} == {"name"}


def test_rename_of_what_does_not_exist_names_what_is_near() -> None:
    with pytest.raises(UsageError, match="near names|Near names: 'first'"):
        transfer_weights(SquaresTorch(), SquaresPaddle(), rename={"frist": "early"})
    with pytest.raises(UsageError, match="the target has nothing named 'erly'.*'early'"):
        transfer_weights(SquaresTorch(), SquaresPaddle(), rename={"first": "erly"})


def test_rename_to_a_layer_that_does_not_fit_is_refused() -> None:
    source, target = tn.ModuleDict({"a": tn.Linear(4, 3)}), pn.LayerDict({"b": pn.Linear(3, 4)})
    with pytest.raises(TransferError, match="do not fit"):
        transfer_weights(source, target, rename={"a": "b"})


class TowersTorch(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left = tn.ModuleList([tn.Linear(4, 4), tn.Linear(4, 4)])
        self.right = tn.ModuleList([tn.Linear(4, 4), tn.Linear(4, 4)])

    def forward(self, x: Any, y: Any) -> Any:
        for layer in self.left:
            x = torch.tanh(layer(x))
        for layer in self.right:
            y = torch.tanh(layer(y))
        return x - 2 * y


class TowersPaddle(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.one = pn.Sequential(pn.Linear(4, 4), pn.Tanh(), pn.Linear(4, 4), pn.Tanh())
        self.two = pn.Sequential(pn.Linear(4, 4), pn.Tanh(), pn.Linear(4, 4), pn.Tanh())

    def forward(self, x: Any, y: Any) -> Any:
        y = self.one(y)
        return self.two(x) - 2 * y


def test_branches_run_in_another_order_are_told_apart_by_their_values() -> None:
    random = np.random.default_rng(3)
    inputs = {name: random.standard_normal((3, 4)).astype(np.float32) for name in ("x", "y")}
    report = transfer_weights(TowersTorch(), TowersPaddle(), inputs=inputs)
    assert {(row.layer, row.source_layer) for row in report.rows} == {
        ("two.0", "left.0"),
        ("two.2", "left.1"),
        ("one.0", "right.0"),
        ("one.2", "right.1"),
    }
    assert "compute the same in float64" in report.context


class SiblingsTorch(tn.Module):
    def __init__(self, build: Any = lambda: tn.Linear(4, 4)) -> None:
        super().__init__()
        self.a = build()
        self.b = build()
        self.end = tn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.end(self.a(x) * torch.sigmoid(self.b(x)))


class SiblingsPaddle(pn.Layer):
    """The gate is computed first; with `scale` the model computes something else than the torch one."""

    def __init__(self, scale: float = 1.0, build: Any = lambda: pn.Linear(4, 4)) -> None:
        super().__init__()
        self.scale = scale
        self.gate = build()
        self.value = build()
        self.last = pn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        gate = pn.functional.sigmoid(self.gate(x) * self.scale)
        return self.last(self.value(x) * gate)


def test_layers_side_by_side_are_told_apart_by_what_follows() -> None:
    report = transfer_weights(SiblingsTorch(), SiblingsPaddle(), inputs=X)
    assert {(row.layer, row.source_layer) for row in report.rows} == {("gate", "b"), ("value", "a"), ("last", "end")}


def test_fresh_norms_side_by_side_are_told_apart_though_all_are_ones_and_zeros() -> None:
    source, target = SiblingsTorch(lambda: tn.LayerNorm(4)), SiblingsPaddle(build=lambda: pn.LayerNorm(4))
    report = transfer_weights(source, target, inputs=X)
    assert {(row.layer, row.source_layer) for row in report.rows} == {("gate", "b"), ("value", "a"), ("last", "end")}


def test_layers_side_by_side_are_refused_when_nothing_tells_them_apart() -> None:
    target = SiblingsPaddle(scale=3.0)
    before = state(target)
    with pytest.raises(TransferError, match="'a', 'b' and 'gate', 'value'.*more than one way"):
        transfer_weights(SiblingsTorch(), target, inputs=X)
    assert_unchanged(target, before)


def test_layers_side_by_side_go_by_order_on_trust() -> None:
    report = transfer_weights(SiblingsTorch(), SiblingsPaddle(scale=3.0), inputs=X, order="execution")
    assert report.complete
    assert "differ from 'last' on" in report.context


class AttentionTorch(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = tn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.attn(x, x, x)[0]


class OwnAttentionPaddle(pn.Layer):
    """Attention of one's own: separate layers, or one wide layer for queries, keys and values."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.proj = pn.Linear(8, 8)
        self.fused = fused
        if fused:
            self.qkv = pn.Linear(8, 24)
        else:
            self.three = pn.LayerList([pn.Linear(8, 8) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        batch, length, _ = x.shape
        if self.fused:
            parts = self.qkv(x).split(3, axis=-1)
        else:
            v, k, q = (layer(x) for layer in self.three)
            parts = (q, k, v)
        q, k, v = (part.reshape([batch, length, 2, 4]).transpose([0, 2, 1, 3]) for part in parts)
        weights = pn.functional.softmax(paddle.matmul(q, k, transpose_y=True) * 0.5, axis=-1)
        return self.proj(paddle.matmul(weights, v).transpose([0, 2, 1, 3]).reshape([batch, length, 8]))


SEQUENCE = {"x": np.random.default_rng(1).standard_normal((2, 5, 8)).astype(np.float32)}


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("back", [True, False])
def test_attention_layer_goes_to_linear_layers_and_back(fused: bool, back: bool) -> None:
    in_torch, in_paddle = AttentionTorch(), OwnAttentionPaddle(fused)
    source, target = (in_paddle, in_torch) if back else (in_torch, in_paddle)
    report = transfer_weights(source, target, inputs=SEQUENCE)
    assert report.complete
    in_torch.eval()
    one = in_torch(torch.from_numpy(SEQUENCE["x"])).detach().numpy()
    np.testing.assert_allclose(one, in_paddle(paddle.to_tensor(SEQUENCE["x"])).numpy(), atol=1e-5)


def test_paddle_attention_goes_to_a_fused_linear_layer() -> None:
    class Fused(tn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = tn.Linear(8, 24)
            self.proj = tn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            q, k, v = (y.view(2, 5, 2, 4).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=-1))
            mixed = torch.softmax(q @ k.transpose(-1, -2) / 2, -1) @ v
            return self.proj(mixed.transpose(1, 2).reshape(2, 5, 8))

    class Whole(pn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.attention = pn.MultiHeadAttention(8, 2)

        def forward(self, x: Any) -> Any:
            return self.attention(x)

    source, target = Whole(), Fused()
    assert transfer_weights(source, target, inputs=SEQUENCE).complete
    one = target(torch.from_numpy(SEQUENCE["x"])).detach().numpy()
    np.testing.assert_allclose(one, source(paddle.to_tensor(SEQUENCE["x"])).numpy(), atol=1e-5)


def test_wrong_input_names_are_said() -> None:
    with pytest.raises(TransferError, match=r"source model \(torch\) could not be run.*image"):
        transfer_weights(SquaresTorch(), SquaresPaddle(), inputs={"image": X["x"]})
