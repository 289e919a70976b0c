"""Quantised modules of PyTorch as the float layers that they stand for: with weights that can be read and replaced,
and run as they are packed, without rounding, or rounding as they declare."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from reprod_log.errors import UsageError
from reprod_log.frameworks.contract import Rounding, Scheme
from reprod_log.frameworks.quantised import Grid, Narrow
from reprod_log.frameworks.tensors import to_numpy

_PACKAGES = ("torch.ao.nn.quantized.", "torch.ao.nn.intrinsic.quantized.")
_DYNAMIC = ".dynamic."
_FUSED = {
    "LinearReLU": ("Linear", nn.ReLU),
    "ConvReLU1d": ("Conv1d", nn.ReLU),
    "ConvReLU2d": ("Conv2d", nn.ReLU),
    "ConvReLU3d": ("Conv3d", nn.ReLU),
    "BNReLU2d": ("BatchNorm2d", nn.ReLU),
    "BNReLU3d": ("BatchNorm3d", nn.ReLU),
    "LinearTanh": ("Linear", nn.Tanh),
}
"""Quantised layers with an activation in them: the layer, and the activation."""
_ALIKE = (
    "Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "BatchNorm2d",
    "BatchNorm3d", "LayerNorm", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "Embedding", "ReLU6",
    "Hardswish", "ELU", "LeakyReLU", "Sigmoid", "Softmax", "Dropout", "MaxPool2d",
)  # fmt: skip
"""Quantised layers that are called as the float layers are."""
_STUBS = ("Quantize", "DeQuantize")
_FUNCTIONS = ("add", "add_scalar", "mul", "mul_scalar", "cat", "add_relu")
_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)
_SAME = 0.05
"""Relative distance of a model's result from that with its weights as read: activations may be in bfloat16."""


def _grid_of(tensor: Any) -> Grid:
    """The grid that a quantised tensor lies on."""
    kind = _dtype(tensor).removeprefix("q")
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return Grid.of_kind(kind, tensor.q_scale(), tensor.q_zero_point())
    scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
    return Grid.of_kind(kind, scales.numpy(), zeros.numpy(), tensor.q_per_channel_axis())


def _on(grid: Grid | Narrow, tensor: Any) -> Any:
    """The tensor with the values of a grid in the place of its own."""
    values = grid(tensor.detach().float().cpu().numpy())
    return torch.from_numpy(np.ascontiguousarray(values)).to(tensor)


def _fitted(grid: Grid | Narrow, tensor: Any) -> Grid | Narrow:
    return grid.fitted(tensor.detach().float().cpu().numpy())


class _Readable:
    """A quantised layer as the float layer that it stands for, beside which this is inherited."""

    rounding: Rounding = "packed"
    packed: tuple[Any, ...]
    """The quantised layer itself; not one of this module's own."""
    grids: dict[str, Any]
    """By parameter name, and `input` and `output` where these are rounded as well."""
    after: Any

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.rounding == "packed":
            return self._as_packed(args, kwargs)
        args = tuple(self._rounded("input", one) for one in args)
        output = super().forward(*args, **kwargs)  # type: ignore[misc]
        return self._rounded("output", output if self.after is None else self.after(output))

    def _as_packed(self, args: Any, kwargs: Any) -> Any:
        given = []
        for one in args:
            if isinstance(one, torch.Tensor) and one.is_quantized:
                self.grids.setdefault("input", _grid_of(one))
                vars(self).setdefault("taken", (one.q_scale(), one.q_zero_point(), one.dtype))
            elif isinstance(one, torch.Tensor) and hasattr(self, "taken"):
                # Alone, it is given what a float layer takes.
                one = torch.quantize_per_tensor(one.float(), *self.taken)
            given.append(one)
        return self.packed[0](*given, **kwargs)

    def _rounded(self, name: str, value: Any) -> Any:
        grid = self.grids.get(name)
        if (
            self.rounding == "none"
            or grid is None
            or not isinstance(value, torch.Tensor)
            or not value.is_floating_point()
        ):
            return value
        # The range of what it is given is another layer's to choose.
        return _on(grid if self.rounding == "declared" or name == "input" else _fitted(grid, value), value)

    def set_rounding(self, rounding: Rounding) -> None:
        self.rounding = rounding
        if rounding != "packed":
            for name, one in self._parameters.items():  # type: ignore[attr-defined]
                if one is not None:
                    with torch.no_grad():
                        one.copy_(self._rounded(name, one))


class _Identity(nn.Identity):  # type: ignore[misc]  # torch is not looked into by mypy
    """What is packed as a layer and is none: a change between floats and integers."""


@cache
def _readable_class(float_class: type) -> type:
    return type(float_class.__name__, (_Readable, float_class), {})


def readable(model: Any, call: Callable[[Any], Any]) -> Any | None:
    """A copy of the model with its quantised layers readable; None when it has none. `call` runs a model once."""
    if not any(_is_quantised(one) or _float8_weights(one) for one in model.modules()):
        return None
    _check_eager(model)
    made = _replaced("", copy.deepcopy(model))
    with torch.no_grad():
        # Which integers a layer takes shows when it is called.
        output = call(made)
        if not any(isinstance(one, _Readable) for one in made.modules()):
            _check_scales(made, output, call)
    return made


def _check_eager(model: Any) -> None:
    """Refuse graphs that round between their modules, where no module declares how."""
    graphs = [one for one in model.modules() if isinstance(one, torch.fx.GraphModule)]
    if any(node.target is torch.quantize_per_tensor for one in graphs for node in one.graph.nodes):
        raise UsageError(
            "the model was quantised as a graph (FX), which rounds between its layers in ways that are not read here, "
            "so what its precision explains cannot be told. Quantise it in eager mode, or compare recordings of both "
            'models by fixed limits, e.g. limits="rel_l2:0.05"'
        )


def set_rounding(model: Any, rounding: Rounding) -> None:
    """Have a readable model round in this way from now on."""
    for module in model.modules():
        if isinstance(module, _Readable):
            module.set_rounding(rounding)
        for name, stored in vars(module).get("float8", {}).items():
            if rounding != "packed":
                stored.set_rounding(module, name, rounding)


def schemes(model: Any) -> dict[str, Scheme]:
    """How the layers of a readable model are quantised, by path."""
    found = {}
    for path, module in model.named_modules():
        if isinstance(module, _Readable):
            weights, taken = module.grids.get("weight"), module.grids.get("input") or module.grids.get("output")
            if weights is not None or taken is not None:
                found[path] = Scheme(
                    _name(weights), "" if taken is None else "dynamic" if taken.scale is None else "static"
                )
        for stored in vars(module).get("float8", {}).values():
            found[path] = Scheme(_name(stored.grid), "")
    return found


def _name(weights: Grid | Narrow | None) -> str:
    return weights.dtype if isinstance(weights, Narrow) else "int8"


def _is_quantised(module: Any) -> bool:
    return f"{type(module).__module__}.".startswith(_PACKAGES) and type(module).__name__ not in ("FloatFunctional",)


def _replaced(path: str, module: Any) -> Any:
    """The module with all that is quantised in it readable."""
    if not _is_quantised(module):
        for name, child in module._modules.items():
            module._modules[name] = None if child is None else _replaced(f"{path}.{name}" if path else name, child)
        for name, weight in _float8_weights(module).items():
            _hide_scale(module, name, weight)
        return module
    name = type(module).__name__
    if name == "QFunctional":
        return _functional(module)
    float_name, after = _FUSED.get(name, (name, None))
    if name in _STUBS:
        float_class: type = _Identity
    elif float_name in _ALIKE:
        float_class = getattr(nn, float_name)
    else:
        raise UsageError(
            f"{path or 'the model'} ({type(module).__module__}.{name}) is quantised in a way that is not known here, "
            "so what its precision explains cannot be told. Leave this layer in float32, or compare recordings of both "
            'models by fixed limits, e.g. limits="rel_l2:0.05"'
        )
    made = _of_class(_readable_class(float_class), module)
    made.after = None if after is None else after()
    made.grids = _grids(module, made)
    return made


def _of_class(wanted: type, module: Any) -> Any:
    """A module of another class with the settings of this one, and its weights as parameters."""
    made: Any = object.__new__(wanted)
    nn.Module.__init__(made)
    usual = vars(nn.Module())
    for name, value in vars(module).items():
        if name not in usual and name not in ("scale", "zero_point"):
            setattr(made, name, value)
    made._parameters.update(module._parameters)
    made._buffers.update({name: one for name, one in module._buffers.items() if name not in ("scale", "zero_point")})
    for name in ("weight", "bias"):
        read = getattr(module, name, None)
        if callable(read):
            one = read()
            one = None if one is None else one.detach()
            plain = one.dequantize() if one is not None and one.is_quantized else one
            made.register_parameter(name, None if plain is None else nn.Parameter(plain.float().clone()))
    made.packed = (module,)
    return made.train(module.training)


def _grids(module: Any, made: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    weight = module.weight() if callable(getattr(module, "weight", None)) else None
    if weight is not None:
        grid = _grid_of(weight) if weight.is_quantized else Narrow(_dtype(weight))
        found["weight"] = replace(grid, own=made.weight.detach().clone().numpy())
    if _DYNAMIC in type(module).__module__:
        if weight is not None and weight.is_quantized:
            # What the engines of this processor's vector units take, so that sums of products fit into 16 bits.
            reduced = torch.backends.quantized.engine != "qnnpack"
            found["input"] = Grid(0, 127 if reduced else 255)
    elif "scale" in vars(module) or "scale" in module._buffers:
        found["output"] = _given_grid(module)
    return found


def _given_grid(module: Any) -> Grid:
    """The grid of what a module gives."""
    kind = str(getattr(module, "dtype", torch.quint8)).removeprefix("torch.q")
    return Grid.of_kind(kind, float(module.scale), int(module.zero_point))


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _functional(module: Any) -> Any:
    """Operators of a quantised model that keep the scale of what they give."""
    # Not at the top: who has no quantised model does not import this package.
    from torch.ao.nn.quantized import FloatFunctional

    made = FloatFunctional()
    stub = _readable_class(_Identity)()
    stub.packed, stub.after = (nn.Identity(),), None
    stub.grids = {"output": _given_grid(module)}
    made.activation_post_process = stub
    made.__class__ = _functional_class(FloatFunctional)
    made.packed = (module,)
    return made


@cache
def _functional_class(float_class: type) -> type:
    def way(name: str) -> Any:
        plain = getattr(float_class, name)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self.activation_post_process.rounding != "packed":
                return plain(self, *args, **kwargs)
            return self.activation_post_process(getattr(self.packed[0], name)(*args, **kwargs))

        return call

    return type(float_class.__name__, (float_class,), {name: way(name) for name in _FUNCTIONS})


# ---- weights in eight bits of floating point ------------------------------------------------------------------------
@dataclass(frozen=True)
class _Stored:
    """A weight kept in float8, and the name of the tensor that it is multiplied by."""

    grid: Narrow
    scale: str

    def set_rounding(self, module: Any, name: str, rounding: Rounding) -> None:
        weight = module._parameters[name]
        if weight.dtype in _FLOAT8:
            wide = torch.from_numpy(self.grid.values(to_numpy(weight)))
            weight = module._parameters[name] = nn.Parameter(wide, requires_grad=weight.requires_grad)
            if self.scale:
                setattr(module, self.scale, torch.ones_like(getattr(module, self.scale)))
        if rounding != "none":
            with torch.no_grad():
                weight.copy_(_on(self.grid if rounding == "declared" else _fitted(self.grid, weight), weight))


def as_read(module: Any, name: str, weight: Any) -> Any:
    """A parameter of a module; of a readable one, what it stands for where it is stored in float8."""
    if weight.dtype not in _FLOAT8:
        return weight
    stored = vars(module).get("float8", {}).get(name)
    return weight if stored is None else torch.from_numpy(stored.grid.own)


def _float8_weights(module: Any) -> dict[str, Any]:
    return {name: one for name, one in module._parameters.items() if one is not None and one.dtype in _FLOAT8}


def _hide_scale(module: Any, name: str, weight: Any) -> None:
    """Note how a weight is stored; its scale is no weight of its own, and so no longer listed as one."""
    tensors = {**module._parameters, **module._buffers, **vars(module)}
    found = [one for one, value in tensors.items() if one != name and _is_scale(one, value, weight)]
    own = [one for one in found if one.startswith(name)] or found
    if len(own) > 1:
        raise UsageError(
            f"{type(module).__name__} keeps its {name} in {weight.dtype} beside {', '.join(own)}, and which of them it "
            "is multiplied by is not known"
        )
    scale = None
    if own:
        scale = tensors[own[0]].detach()
        module._parameters.pop(own[0], None)
        module._buffers.pop(own[0], None)
        setattr(module, own[0], scale)
    grid = Narrow(_dtype(weight), None if scale is None else to_numpy(scale))
    grid = replace(grid, own=grid.values(to_numpy(weight)))
    vars(module).setdefault("float8", {})[name] = _Stored(grid, "".join(own))


def _is_scale(name: str, value: Any, weight: Any) -> bool:
    if "scale" not in name or not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return False
    try:
        return bool(torch.broadcast_shapes(value.shape, weight.shape) == weight.shape)
    except RuntimeError:
        return False


def _check_scales(model: Any, output: Any, call: Callable[[Any], Any]) -> None:
    """Refuse weights that are stored otherwise than read: with these, the model computes something else."""
    plain = copy.deepcopy(model)
    set_rounding(plain, "none")
    pairs = zip(tree_leaves(output), tree_leaves(call(plain)), strict=True)
    tensors = [(one.double(), other.double()) for one, other in pairs if isinstance(one, torch.Tensor)]
    if not all(
        torch.linalg.vector_norm(one - other) <= _SAME * torch.linalg.vector_norm(one) for one, other in tensors
    ):
        raise UsageError(
            "the model keeps weights in float8, but does not compute with the stored values times the scale beside "
            "them (a tensor with 'scale' in its name, one per weight or channel), so they cannot be compared"
        )
