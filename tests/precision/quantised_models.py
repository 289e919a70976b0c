"""Small models, what quantises them, and mistakes in what was quantised."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import torch
from torch import nn
from torch.ao import quantization
from torch.ao.nn.quantized import FloatFunctional
from torch.nn import functional


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.first, self.second, self.third = nn.Linear(24, 48), nn.Linear(48, 48), nn.Linear(48, 48)
        self.act, self.head = nn.ReLU(), nn.Linear(48, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.first(self.quant(x)))
        x = self.act(self.third(self.act(self.second(x))))
        return self.dequant(self.head(x))


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.stem, self.act = nn.Conv2d(3, 12, 3, padding=1), nn.ReLU()
        self.first, self.second = nn.Conv2d(12, 12, 3, padding=1), nn.Conv2d(12, 12, 3, padding=1)
        self.skip, self.pool = FloatFunctional(), nn.MaxPool2d(2)
        self.head = nn.Linear(12 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.stem(self.quant(x)))
        x = self.skip.add(x, self.second(self.act(self.first(x))))
        return self.dequant(self.head(self.pool(self.act(x)).flatten(1)))


class Transformer(nn.Module):
    """An encoder of one layer, with its attention written out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 32)
        self.norm, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)
        self.third, self.out = nn.Linear(32, 32), nn.Linear(32, 32)
        self.up, self.act, self.down = nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)
        self.head = nn.Linear(32, 40)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        h = self.norm(x)
        q, k, v = (part(h).unflatten(-1, (4, 8)).transpose(1, 2) for part in (self.first, self.second, self.third))
        h = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(h)
        x = x + self.down(self.act(self.up(self.norm2(x))))
        return self.head(x)


MODELS = (Mlp, Cnn, Transformer)


def made(kind: type[nn.Module], seed: int) -> tuple[nn.Module, torch.Tensor]:
    """A model in evaluation mode and a batch for it."""
    torch.manual_seed(seed)
    model = kind().eval()
    if kind is Transformer:
        return model, torch.randint(0, 40, (6, 12))
    return model, torch.randn(32, 24) if kind is Mlp else torch.randn(6, 3, 8, 8)


def dynamic(model: nn.Module) -> nn.Module:
    return _quietly(lambda: quantization.quantize_dynamic(model, {nn.Linear}))


def per_channel(model: nn.Module) -> nn.Module:
    scheme = quantization.per_channel_dynamic_qconfig
    return _quietly(lambda: quantization.quantize_dynamic(model, {nn.Linear: scheme}))


def static(model: nn.Module) -> nn.Module:
    """Calibrated on other data than it is compared on."""
    prepared = copy.deepcopy(model)
    prepared.qconfig = quantization.get_default_qconfig("x86")

    def quantised() -> nn.Module:
        observed = quantization.prepare(prepared)
        for _ in range(4):
            observed(torch.randn(64, 24) if isinstance(model, Mlp) else torch.randn(16, 3, 8, 8))
        return quantization.convert(observed)

    return _quietly(quantised)


def _quietly(make: Callable[[], nn.Module]) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


class Float8Linear(nn.Module):
    """A linear layer that keeps its weights in float8 with a scale per channel, and computes in its input's type."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        scale = linear.weight.detach().abs().amax(1, keepdim=True) / 448
        stored = (linear.weight.detach() / scale).to(torch.float8_e4m3fn)
        self.weight = nn.Parameter(stored, requires_grad=False)
        self.bias = nn.Parameter(linear.bias.detach().clone())
        self.register_buffer("weight_scale", scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.weight.to(x.dtype) * self.weight_scale, self.bias)


def float8(model: nn.Module) -> nn.Module:
    found = copy.deepcopy(model)
    for name, child in found.named_children():
        if isinstance(child, nn.Linear):
            setattr(found, name, Float8Linear(child))
    return found


WAYS = {
    "dynamic": (dynamic, MODELS),
    "per channel": (per_channel, MODELS),
    "static": (static, (Mlp, Cnn)),
    "float8": (float8, MODELS),
}
PAIRS = [(way, kind) for way, (_, kinds) in WAYS.items() for kind in kinds]


def quantised(way: str, model: nn.Module) -> nn.Module:
    return WAYS[way][0](model)


# ---- mistakes, each in one layer of a quantised model ---------------------------------------------------------------


def _stored(layer: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """The stored numbers of a layer as floats, and the scale that they are multiplied by."""
    if isinstance(layer, Float8Linear):
        return layer.weight.detach().float(), layer.weight_scale
    weight = layer.weight()
    if weight.qscheme() == torch.per_tensor_affine:
        return weight.int_repr().float(), torch.tensor(weight.q_scale())
    shape = [-1] + [1] * (weight.dim() - 1)
    return weight.int_repr().float(), weight.q_per_channel_scales().float().reshape(shape)


def _store(layer: nn.Module, numbers: torch.Tensor, scale: torch.Tensor, zero: int = 0) -> None:
    if isinstance(layer, Float8Linear):
        stored = (numbers - zero).to(layer.weight.dtype)
        layer.weight = nn.Parameter(stored, requires_grad=False)
        layer.weight_scale = scale.expand_as(layer.weight_scale).clone()
        return
    integers = numbers.round().clamp(-128, 127).to(torch.int8)
    if scale.numel() == 1:
        made = torch._make_per_tensor_quantized_tensor(integers, float(scale), zero)
    else:
        zeros = torch.full((scale.numel(),), zero)
        made = torch._make_per_channel_quantized_tensor(integers, scale.flatten().double(), zeros, 0)
    layer.set_weight_bias(made, layer.bias())


def _scaled(candidate: nn.Module, reference: nn.Module) -> str:
    numbers, scale = _stored(candidate.second)
    _store(candidate.second, numbers, scale * 1.1)
    return "second"


def _zero_point(candidate: nn.Module, reference: nn.Module) -> str:
    numbers, scale = _stored(candidate.second)
    _store(candidate.second, numbers, scale, zero=3)
    return "second"


def _other_layer(candidate: nn.Module, reference: nn.Module) -> str:
    _store(candidate.second, *_stored(candidate.first if isinstance(reference, Cnn) else candidate.third))
    return "second"


def _skipped(candidate: nn.Module, reference: nn.Module) -> str:
    if isinstance(reference, Transformer):
        candidate.norm2 = nn.Identity()
        return "norm2"
    if isinstance(reference, Cnn):
        candidate.pool = nn.AvgPool2d(2)
        return "pool"
    candidate.third = nn.Identity()
    return "third"


def _activation(candidate: nn.Module, reference: nn.Module) -> str:
    candidate.act = nn.GELU("tanh") if isinstance(reference, Transformer) else nn.LeakyReLU(0.02)
    return "act"


def _axis(candidate: nn.Module, reference: nn.Module) -> str:
    """Scales of the columns, applied to the rows."""
    weight = reference.second.weight.detach()
    largest = weight.abs().amax([0, *range(2, weight.dim())])
    most = 448 if isinstance(candidate.second, Float8Linear) else 127
    scale = largest / most
    numbers = weight / scale.reshape([1, -1] + [1] * (weight.dim() - 2))
    _store(candidate.second, numbers, scale.reshape([-1, 1]))
    return "second"


def _no_bias(candidate: nn.Module, reference: nn.Module) -> str:
    if isinstance(candidate.third if hasattr(candidate, "third") else candidate.second, Float8Linear):
        candidate.second.bias = nn.Parameter(torch.zeros_like(candidate.second.bias))
    else:
        candidate.second.set_weight_bias(candidate.second.weight(), None)
    return "second"


def _clipped(candidate: nn.Module, reference: nn.Module) -> str:
    weight, (_, scale) = reference.second.weight.detach(), _stored(candidate.second)
    scale = scale * 0.7
    most = 448 if isinstance(candidate.second, Float8Linear) else 127
    _store(candidate.second, (weight / scale).clamp(-most, most), scale)
    return "second"


def _four_bits(candidate: nn.Module, reference: nn.Module) -> str:
    weight, (_, scale) = reference.second.weight.detach(), _stored(candidate.second)
    _store(candidate.second, (weight / (scale * 18)).round(), scale * 18)
    return "second"


def _floored(candidate: nn.Module, reference: nn.Module) -> str:
    weight, (_, scale) = reference.second.weight.detach(), _stored(candidate.second)
    _store(candidate.second, (weight / scale).floor(), scale)
    return "second"


def _not_loaded(candidate: nn.Module, reference: nn.Module) -> str:
    numbers, scale = _stored(candidate.second)
    _store(candidate.second, numbers.flatten()[torch.randperm(numbers.numel())].reshape(numbers.shape), scale)
    return "second"


def _transposed(candidate: nn.Module, reference: nn.Module) -> str:
    numbers, scale = _stored(candidate.second)
    _store(candidate.second, numbers.transpose(0, 1).contiguous(), scale)
    return "second"


def _narrow_range(candidate: nn.Module, reference: nn.Module) -> str:
    # Integers have room for twice the calibrated range, and calibration itself cuts off a few values.
    candidate.second.scale = candidate.second.scale * 0.2
    return "second"


def _wide_range(candidate: nn.Module, reference: nn.Module) -> str:
    candidate.second.scale = candidate.second.scale * 10
    return "second"


def _shifted_range(candidate: nn.Module, reference: nn.Module) -> str:
    candidate.second.zero_point = candidate.second.zero_point // 3
    return "second"


Mistake = Callable[[nn.Module, nn.Module], str]
"""Changes the quantised model, and gives the path of the layer that is wrong then."""
LOOKED_INTO: dict[str, Mistake] = {
    "scale": _scaled,
    "zero point": _zero_point,
    "weights of another layer": _other_layer,
    "skipped": _skipped,
    "activation": _activation,
    "axis of the scales": _axis,
    "no bias": _no_bias,
    "range too narrow": _narrow_range,
}
SCORED_ONLY: dict[str, Mistake] = {
    "clipped": _clipped,
    "four bits": _four_bits,
    "floored": _floored,
    "not loaded": _not_loaded,
    "transposed": _transposed,
    "range too wide": _wide_range,
    "range shifted": _shifted_range,
}


def cases(mistakes: dict[str, Mistake]) -> list[tuple[str, type[nn.Module], str]]:
    """Every mistake in every way of every model in which it can be made."""
    return [
        (way, kind, name)
        for way, kind in PAIRS
        for name in mistakes
        # A range that is fixed has only a static model; dynamic ones have no quantised convolution.
        if (way == "static" or not name.startswith("range")) and (kind is not Cnn or way == "static")
        if not (way == "float8" and name in ("zero point", "floored"))
    ]
