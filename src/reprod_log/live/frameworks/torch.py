"""PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from reprod_log.record import Array


def leaf(array: Array) -> Any:
    tensor = torch.from_numpy(np.array(array))
    return tensor.requires_grad_() if tensor.is_floating_point() else tensor


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def clear(optimizer: Any) -> None:
    optimizer.zero_grad()


def multiply(tensor: Any, factors: Array) -> Any:
    return tensor * torch.from_numpy(np.array(factors)).to(tensor)


def total(tensor: Any, weights: Array) -> Any:
    return multiply(tensor, weights).sum()
