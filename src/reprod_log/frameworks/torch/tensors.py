"""PyTorch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from reprod_log.errors import UsageError
from reprod_log.frameworks.contract import TensorFacts
from reprod_log.recording import Array, dtype_named

_BY_BITS = {
    torch.bfloat16: torch.int16,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e4m3fnuz: torch.uint8,
    torch.float8_e5m2: torch.uint8,
    torch.float8_e5m2fnuz: torch.uint8,
}
"""dtypes that numpy lacks, and the integers their bits are passed through."""


def is_tensor(value: object) -> bool:
    # A nested or jagged tensor is several of different sizes, and no array.
    return isinstance(value, torch.Tensor) and not value.is_nested


def view(tensor: Any) -> tuple[Array, bool]:
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        # The usual case without a question asked: a hook that is called between two heavy operators pays for each one.
        try:
            return tensor.detach().numpy(), False
        except (RuntimeError, TypeError):
            pass  # on another device, sparse, a dtype that numpy does not have, conjugated …
    try:
        plain = _plain(tensor)
        # A tensor that was moved or made dense is a copy already.
        fresh = tensor.device.type != "cpu" or tensor.layout != torch.strided
        bits = _BY_BITS.get(plain.dtype)
        if bits is not None:
            array: Array = plain.view(bits).numpy().view(dtype_named(dtype_of(plain)))
        else:
            array = plain.numpy()
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise UsageError(
            f"a torch tensor of dtype {tensor.dtype} on device {tensor.device} cannot be copied out: {error}. "
            "Convert it first, e.g. with tensor.float().cpu()."
        ) from error
    return array, fresh


def _plain(tensor: Any) -> Any:
    """The same values as a dense tensor in main memory that knows nothing of gradients."""
    if tensor.device.type == "meta":
        raise UsageError("a tensor on the meta device has no values; put the model on a real device to record it")
    plain = tensor.detach()
    if hasattr(plain, "to_local"):
        # A DTensor: the other ranks record their own parts.
        plain = plain.to_local()
    if plain.is_quantized:
        plain = plain.dequantize()
    if plain.layout != torch.strided:
        plain = plain.to_dense()
    if plain.device.type != "cpu":
        plain = plain.cpu()
    return plain.resolve_conj().resolve_neg()


def dtype_of(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def facts(tensor: Any) -> TensorFacts:
    return TensorFacts(tuple(int(size) for size in tensor.shape), dtype_of(tensor), str(tensor.device))


def tensor(array: Array, *, like: Any = None, dtype: str | None = None, gradient: bool = False) -> Any:
    bits = {str(kind).removeprefix("torch."): kind for kind in _BY_BITS}.get(array.dtype.name)
    plain = np.array(array, order="C")
    if bits is not None:
        made = torch.from_numpy(plain.view(np.int16 if plain.dtype.itemsize == 2 else np.uint8)).view(bits)
    else:
        made = torch.from_numpy(plain)
    if like is not None:
        made = made.to(like.device)
    if dtype is not None:
        made = made.to(getattr(torch, dtype))
    return made.requires_grad_() if gradient and made.is_floating_point() else made
