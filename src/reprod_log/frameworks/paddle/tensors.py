"""PaddlePaddle tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle

from reprod_log.errors import UsageError
from reprod_log.recording import Array, dtype_named

_BY_BITS = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""dtypes that `Tensor.numpy()` gives as bare integers."""


def is_tensor(value: object) -> bool:
    return isinstance(value, paddle.Tensor)


def is_distributed(tensor: Any) -> bool:
    """Whether it is one process's part of a tensor that lies on several."""
    return hasattr(tensor, "is_dist") and bool(tensor.is_dist())


def view(tensor: Any) -> tuple[Array, bool]:
    if is_distributed(tensor):
        # The other ranks record their own parts.
        tensor = tensor._local_value()
    if tensor.is_sparse():
        tensor = tensor.to_dense()
    name = dtype_of(tensor)
    try:
        if name in _BY_BITS:
            return tensor.numpy().view(dtype_named(name)), True
        if tensor.place.is_cpu_place() and not tensor.is_selected_rows():
            # `numpy()` always copies; this shares.
            return np.from_dlpack(tensor.detach()), False
        return tensor.numpy(), True
    except (RuntimeError, ValueError, BufferError) as error:
        raise UsageError(
            f"a paddle tensor of dtype {tensor.dtype} on {tensor.place} cannot be copied out: {error}. "
            "Convert it first, e.g. with tensor.astype('float32').cpu()."
        ) from error


def cast(tensor: Any, dtype: str) -> Any:
    return tensor.astype(dtype) if tensor.is_floating_point() else tensor


def dtype_of(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("paddle.")


def device_of(tensor: Any) -> str:
    return str(tensor.place).removeprefix("Place(").removesuffix(")")


def is_computed(tensor: Any) -> bool:
    return not tensor.is_leaf


def in_place_version(tensor: Any) -> int:
    return int(tensor.inplace_version)


def from_numpy(array: Array, like: Any = None) -> Any:
    """A tensor with the values of `array`, on the device of `like`."""
    place = None if like is None else like.place
    if array.dtype.name in _BY_BITS:
        return paddle.to_tensor(np.asarray(array, np.float32), place=place).astype(array.dtype.name)
    return paddle.to_tensor(array, dtype=array.dtype.name, place=place)
