"""PaddlePaddle tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle

from reprod_log.errors import UsageError
from reprod_log.frameworks.contract import TensorFacts
from reprod_log.recording import Array, dtype_named

_BY_BITS = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""dtypes that `Tensor.numpy()` gives as bare integers."""
_BFLOAT16 = dtype_named("bfloat16")


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


def dtype_of(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("paddle.")


def facts(tensor: Any) -> TensorFacts:
    device = str(tensor.place).removeprefix("Place(").removesuffix(")")
    return TensorFacts(tuple(int(size) for size in tensor.shape), dtype_of(tensor), device)


def tensor(array: Array, *, like: Any = None, dtype: str | None = None, gradient: bool = False) -> Any:
    name = dtype or array.dtype.name
    place = None if like is None else like.place
    if name in _BY_BITS and name != "bfloat16":
        made = paddle.to_tensor(np.asarray(array, np.float32), place=place).astype(name)
    else:
        made = paddle.to_tensor(_storable(array, name), dtype=name, place=place)
    made.stop_gradient = not (gradient and made.is_floating_point())
    return made


def overwrite(tensor: Any, array: Array) -> None:
    """Write the values in place; dtype, device and trainability stay."""
    with paddle.no_grad():
        tensor.set_value(_storable(array, dtype_of(tensor)).reshape([int(size) for size in tensor.shape]))


def _storable(array: Array, dtype: str) -> Array:
    """The array as paddle takes it in for a tensor of this dtype: bfloat16 as its bits."""
    plain = np.array(array, order="C")
    return plain.astype(_BFLOAT16).view(np.uint16) if dtype == "bfloat16" else plain.astype(dtype)
