"""What a transfer leaves as it found it, what stays tied, and which values keep their type."""

from typing import Any

import numpy as np
import paddle
import pytest
import torch
from paddle import nn as pn
from torch import nn as tn

from reprod_log.errors import TransferError
from reprod_log.pairing.survey import survey
from reprod_log.transfer import transfer_weights


class NetTorch(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = tn.Conv2d(3, 4, 3, padding=1)
        self.bn = tn.BatchNorm2d(4)
        self.drop = tn.Dropout(0.5)
        self.fc = tn.utils.weight_norm(tn.Linear(4, 4))

    def forward(self, image: Any) -> Any:
        # Draws a random number in evaluation mode too.
        x = self.drop(torch.relu(self.bn(self.conv(image)))) + 0 * torch.rand(())
        return self.fc(x.mean(dim=(2, 3)))


class NetPaddle(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.dense = pn.utils.weight_norm(pn.Linear(4, 4), dim=1)
        self.norm = pn.BatchNorm2D(4)
        self.first = pn.Conv2D(3, 4, 3, padding=1)
        self.drop = pn.Dropout(0.5)

    def forward(self, image: Any) -> Any:
        x = self.drop(pn.functional.relu(self.norm(self.first(image)))) + 0 * paddle.rand([1])
        return self.dense(x.mean(axis=[2, 3]))


IMAGE = {"image": np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)}


def snapshot(model: Any) -> dict[str, Any]:
    """Everything about a model that a transfer must not touch in a source (in a target: all but the values)."""
    found = survey(model)
    hooks = ("_forward_pre_hooks", "_forward_hooks", "_forward_post_hooks")
    return {
        "values": {name: found.read(name).tobytes() for name in found.names},
        "objects": {name: id(tensor) for name, tensor in found.live.tensors.items()},
        "trains": {
            name: getattr(tensor, "requires_grad", None) or not getattr(tensor, "stop_gradient", True)
            for name, tensor in found.live.tensors.items()
        },
        "modes": {path: module.training for path, module in found.live.objects.items()},
        "hooks": {
            path: [list(vars(module)[name].values()) for name in hooks if name in vars(module)]
            for path, module in found.live.objects.items()
        },
        "gradients": {name: found.live.framework.eager.gradient(tensor) for name, tensor in found.live.tensors.items()},
    }


def with_habits(model: Any) -> tuple[Any, list[str]]:
    """A model with mixed modes, frozen parts and hooks of the user's own, and what those hooks saw."""
    seen: list[str] = []
    model.train()
    for layer in (*model.children(),)[:2]:
        layer.eval()
        for parameter in layer.parameters():
            if isinstance(parameter, torch.Tensor):
                parameter.requires_grad = False
            else:
                parameter.stop_gradient = True
        layer.register_forward_pre_hook(lambda *_: seen.append("before"))
        (layer.register_forward_hook if isinstance(layer, tn.Module) else layer.register_forward_post_hook)(
            lambda *_: seen.append("after")
        )
    return model, seen


def drawn() -> tuple[float, float]:
    return torch.rand(()).item(), paddle.rand([1]).item()


@pytest.mark.parametrize("back", [False, True])
def test_everything_but_the_target_values_stays_as_it_was(back: bool) -> None:
    (one, seen_one), (other, seen_other) = with_habits(NetTorch()), with_habits(NetPaddle())
    source, target = (other, one) if back else (one, other)
    before, before_target = snapshot(source), snapshot(target)
    torch.manual_seed(7)
    paddle.seed(7)
    expected = drawn()
    torch.manual_seed(7)
    paddle.seed(7)

    transfer_weights(source, target, inputs=IMAGE)

    assert snapshot(source) == before
    after_target = snapshot(target)
    assert after_target.pop("values") != before_target.pop("values")
    assert after_target == before_target
    assert seen_one == seen_other == []
    assert drawn() == expected


def test_everything_stays_as_it_was_when_a_forward_pass_fails() -> None:
    (source, _), (target, _) = with_habits(NetTorch()), with_habits(NetPaddle())
    before, before_target = snapshot(source), snapshot(target)
    with pytest.raises(TransferError, match="target model"):
        transfer_weights(source, target, inputs=IMAGE, target_inputs={"image": IMAGE["image"][:, :2]})
    assert snapshot(source) == before
    assert snapshot(target) == before_target


def test_everything_stays_as_it_was_when_writing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = NetTorch(), NetPaddle()
    before = snapshot(target)
    hooks = survey(target).live.framework.eager
    write, count = hooks.write, [0]

    def failing(tensor: Any, array: Any) -> None:
        count[0] += 1
        if count[0] == 5:
            raise MemoryError
        write(tensor, array)

    monkeypatch.setattr(hooks, "write", failing)
    with pytest.raises(MemoryError):
        transfer_weights(source, target, inputs=IMAGE)
    assert count[0] > 5
    assert snapshot(target) == before


def test_derived_weight_is_fresh_right_after_the_transfer() -> None:
    source, target = NetTorch(), NetPaddle()
    transfer_weights(source, target, inputs=IMAGE)
    np.testing.assert_allclose(target.dense.weight.numpy(), source.fc.weight.detach().numpy().T, rtol=1e-6)


class LanguageTorch(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = tn.Embedding(7, 4)
        self.mix = tn.Linear(4, 4)
        self.decoder = tn.Linear(4, 7)
        self.decoder.weight = self.embed.weight

    def forward(self, tokens: Any) -> Any:
        return self.decoder(torch.tanh(self.mix(self.embed(tokens))))


class LanguagePaddle(pn.Layer):
    """Ties by using the embedding's weight in a product: the decoder's bias is a bare parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder_bias = self.create_parameter([7], is_bias=True)
        self.inner = pn.Linear(4, 4)
        self.words = pn.Embedding(7, 4)

    def forward(self, tokens: Any) -> Any:
        x = pn.functional.tanh(self.inner(self.words(tokens)))
        return paddle.matmul(x, self.words.weight, transpose_y=True) + self.decoder_bias


class TiedPaddle(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.embed = pn.Embedding(7, 4)
        self.mix = pn.Linear(4, 4)
        self.decoder = paddle.compat.nn.Linear(4, 7)
        self.decoder.weight = self.embed.weight

    def forward(self, tokens: Any) -> Any:
        return self.decoder(pn.functional.tanh(self.mix(self.embed(tokens))))


TOKENS = {"tokens": np.array([[0, 3, 6], [1, 2, 5]])}


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("other_side", [LanguagePaddle, TiedPaddle])
def test_tied_weights_go_to_tied_weights(other_side: Any, back: bool) -> None:
    in_torch, in_paddle = LanguageTorch(), other_side()
    with torch.no_grad():
        in_torch.decoder.bias.uniform_()
    source, target = (in_paddle, in_torch) if back else (in_torch, in_paddle)
    report = transfer_weights(source, target, inputs=TOKENS)
    assert report.complete
    assert in_torch.decoder.weight is in_torch.embed.weight
    if other_side is TiedPaddle:
        assert in_paddle.decoder.weight is in_paddle.embed.weight
    one = in_torch(torch.from_numpy(TOKENS["tokens"])).detach().numpy()
    np.testing.assert_allclose(one, in_paddle(paddle.to_tensor(TOKENS["tokens"])).numpy(), atol=1e-5)


def test_tied_target_refuses_two_values() -> None:
    source, target = LanguageTorch(), TiedPaddle()
    source.decoder.weight = tn.Parameter(torch.randn(7, 4))
    before = snapshot(target)
    with pytest.raises(TransferError, match="one tensor in the target.*two different"):
        transfer_weights(source, target)
    assert snapshot(target) == before


@pytest.mark.parametrize("back", [False, True])
def test_float64_stays_float64(back: bool) -> None:
    one = tn.Linear(3, 3).double()
    paddle.set_default_dtype("float64")
    try:
        other = pn.Linear(3, 3)
    finally:
        paddle.set_default_dtype("float32")
    source, target = (other, one) if back else (one, other)
    report = transfer_weights(source, target)
    assert not any("cast" in row.note for row in report.rows)
    np.testing.assert_array_equal(one.weight.detach().numpy().T, other.weight.numpy())
    assert other.weight.numpy().dtype == np.float64


@pytest.mark.parametrize("back", [False, True])
def test_bfloat16_moves_by_its_bits(back: bool) -> None:
    one, other = tn.Linear(3, 3).to(torch.bfloat16), pn.Linear(3, 3)
    other.to(dtype="bfloat16")
    source, target = (other, one) if back else (one, other)
    report = transfer_weights(source, target)
    assert {row.verified for row in report.rows} == {"verified"}
    assert not any("cast" in row.note for row in report.rows)
    bits = one.weight.detach().view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(bits.T, other.weight.numpy())


def test_cast_is_said() -> None:
    source, target = tn.Linear(3, 3).double(), pn.Linear(3, 3)
    report = transfer_weights(source, target)
    assert {row.note for row in report.rows} == {"transposed; cast float64 to float32", "cast float64 to float32"}


class ScaleTorch(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gamma = tn.Parameter(torch.rand(4, 4))

    def forward(self, x: Any) -> Any:
        return x @ self.gamma


class ScalePaddle(pn.Layer):
    def __init__(self, turned: bool = False) -> None:
        super().__init__()
        self.turned = turned
        self.gamma = self.create_parameter([4, 4])

    def forward(self, x: Any) -> Any:
        return paddle.matmul(x, self.gamma, transpose_y=self.turned)


X = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)}


def test_bare_parameter_moves_unverified_without_inputs() -> None:
    report = transfer_weights(ScaleTorch(), ScalePaddle())
    assert [(row.rule, row.verified) for row in report.rows] == [("Parameter", "unverified")]
    assert "no layer to run" in report.rows[0].check


def test_bare_parameter_is_verified_by_the_run_of_its_module() -> None:
    report = transfer_weights(ScaleTorch(), ScalePaddle(), inputs=X)
    assert [row.verified for row in report.rows] == ["verified"]


def test_bare_parameter_used_the_other_way_round_is_transposed() -> None:
    source, target = ScaleTorch(), ScalePaddle(turned=True)
    (row,) = transfer_weights(source, target, inputs=X).rows
    assert (row.verified, row.note) == ("verified", "transposed")
    assert not np.array_equal(target.gamma.numpy(), source.gamma.detach().numpy())


@pytest.mark.parametrize("wrap", [tn.DataParallel, lambda model: torch.compile(model, backend="eager")])
def test_wrapped_models_go_by_the_names_inside(wrap: Any) -> None:
    inner, target = tn.Sequential(tn.Linear(4, 4), tn.Linear(4, 4)), pn.Sequential(pn.Linear(4, 4), pn.Linear(4, 4))
    report = transfer_weights(wrap(inner), target)
    assert {row.how for row in report.rows} == {"name"}
    np.testing.assert_array_equal(target[1].weight.numpy(), inner[1].weight.detach().numpy().T)


def test_paddle_data_parallel_goes_by_the_names_inside() -> None:
    source, inner = tn.Sequential(tn.Linear(4, 4)), pn.Sequential(pn.Linear(4, 4))
    report = transfer_weights(source, paddle.DataParallel(inner))
    assert {row.target for row in report.rows} == {"0.weight", "0.bias"}
    np.testing.assert_array_equal(inner[0].weight.numpy(), source[0].weight.detach().numpy().T)


class RepeatedTorch(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = tn.Linear(4, 4)
        self.again = self.step
        self.end = tn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.end(self.again(torch.relu(self.step(x))))


class RepeatedPaddle(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.last = pn.Linear(4, 4)
        self.cell = pn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.last(self.cell(pn.functional.relu(self.cell(x))))


@pytest.mark.parametrize("back", [False, True])
def test_layer_that_is_called_and_registered_twice_moves_once(back: bool) -> None:
    one, other = RepeatedTorch(), RepeatedPaddle()
    report = transfer_weights(*((other, one) if back else (one, other)), inputs=X)
    assert len(report.rows) == 4
    np.testing.assert_array_equal(one.step.weight.detach().numpy().T, other.cell.weight.numpy())


class FlowTorch(tn.Linear):
    """A descendant with a parameter of its own and a call of its own."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.shift = tn.Parameter(torch.rand(4))

    def forward(self, x: Any, scale: Any) -> Any:
        return super().forward(x * scale) + self.shift


class FlowPaddle(pn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 4)
        self.shift = self.create_parameter([4])

    def forward(self, x: Any, scale: Any) -> Any:
        return super().forward(x * scale) + self.shift


def test_descendant_with_a_call_of_its_own_is_verified_by_real_inputs_only() -> None:
    class HoldTorch(tn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flow = FlowTorch()

        def forward(self, x: Any) -> Any:
            return self.flow(x, 2 * x)

    class HoldPaddle(pn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.flow = FlowPaddle()

        def forward(self, x: Any) -> Any:
            return self.flow(x, 2 * x)

    without = {row.target: row.verified for row in transfer_weights(HoldTorch(), HoldPaddle()).rows}
    assert without == {"flow.weight": "unverified", "flow.bias": "unverified", "flow.shift": "unverified"}
    report = transfer_weights(HoldTorch(), HoldPaddle(), inputs=X)
    assert {row.verified for row in report.rows} == {"verified"}


@pytest.mark.parametrize("full_graph", [True, False])
def test_converted_model_is_run_as_written_and_stays_converted(full_graph: bool) -> None:
    source, target = RepeatedTorch(), paddle.jit.to_static(RepeatedPaddle(), full_graph=full_graph)
    forward = target.forward
    report = transfer_weights(source, target, inputs=X)
    assert "compute the same in float64" in report.context
    assert target.forward is forward
    expected = source(torch.from_numpy(X["x"])).detach().numpy()
    np.testing.assert_allclose(target(paddle.to_tensor(X["x"])).numpy(), expected, atol=1e-5)


def test_compiled_part_of_a_model_is_run_as_written_and_not_compiled_again() -> None:
    compiled: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    source, target = RepeatedTorch(), RepeatedPaddle()
    source.step = torch.compile(source.step, backend=backend)
    source(torch.from_numpy(X["x"]))
    assert compiled
    before = len(compiled)
    report = transfer_weights(source, target, inputs=X)
    assert "compute the same in float64" in report.context
    assert len(compiled) == before
