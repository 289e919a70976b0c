"""MindSpore's cells: what a model consists of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mindspore
from mindspore import nn

from reprod_log.frameworks import contract
from reprod_log.frameworks.contract import OwnTensor
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.modules import plain_settings

_STATISTICS = ("moving_mean", "moving_variance")
_INHERITED = (
    "training", "requires_grad", "is_top_cell", "arguments_key", "grad_ops_label", "has_bprop",
)  # fmt: skip
"""Plain attributes that every cell has, besides those with a leading underscore."""


class Cells(contract.Modules):
    def is_module(self, thing: object) -> bool:
        return isinstance(thing, nn.Cell) and not isinstance(thing, nn.Optimizer)

    def children(self, module: Any) -> list[tuple[str, Any]]:
        return [(name, child) for name, child in module._cells.items() if child is not None]

    def own(self, module: Any) -> list[OwnTensor]:
        # Statistics are parameters of MindSpore that take no gradient.
        return [
            OwnTensor(name, tensor, trained=name not in _STATISTICS)
            for name, tensor in module._params.items()
            if tensor is not None
        ]

    def state_names(self, model: Any) -> dict[str, Any]:
        def below(module: Any, path: str) -> Iterator[tuple[str, Any]]:
            for one in self.own(module):
                yield join(path, one.name), one.tensor
            for name, child in self.children(module):
                yield from below(child, join(path, name))

        return dict(below(model, ""))

    def settings(self, module: Any) -> dict[str, Any]:
        own = {
            name: value for name, value in plain_settings(module, _INHERITED).items() if f"_{name}" not in vars(module)
        }
        if "pad_mode" in own and "kernel_size" in own:
            own["padding"] = _padding(module)
        return own

    def convert(self, module: Any, dtype: str) -> None:
        for parameter in module.get_parameters():
            if parameter.dtype in (mindspore.float16, mindspore.bfloat16, mindspore.float32, mindspore.float64):
                parameter.set_dtype(getattr(mindspore, dtype))

    def stores(self, module: Any) -> Iterator[dict[str, Any] | list[Any]]:
        yield module._params


def _padding(module: Any) -> Any:
    """As torch writes it, where that says the same at every size."""
    size = [module.kernel_size] * 2 if isinstance(module.kernel_size, int) else list(module.kernel_size)
    mode, padding = str(module.pad_mode).lower(), getattr(module, "padding", 0)
    if mode == "valid":
        return [0] * len(size)
    if mode == "pad":
        if isinstance(padding, int):
            return [padding] * len(size)
        first, second = list(padding[::2]), list(padding[1::2])
        return first if first == second else list(padding)
    stride, dilation = (
        [value] * len(size) if isinstance(value, int) else list(value)
        for value in (getattr(module, "stride", 1), getattr(module, "dilation", 1))
    )
    reach = [(one - 1) * apart for one, apart in zip(size, dilation, strict=True)]
    if all(one == 1 for one in stride) and all(one % 2 == 0 for one in reach):
        return [one // 2 for one in reach]
    return mode
