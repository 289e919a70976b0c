"""PaddlePaddle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import paddle

from reprod_log.record import Array


def leaf(array: Array) -> Any:
    return paddle.to_tensor(np.array(array), stop_gradient=array.dtype.kind != "f")


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    # Without it the optimizer's learning rate stays float32 and rounds every update.
    before = paddle.get_default_dtype()
    paddle.set_default_dtype(dtype)
    try:
        yield
    finally:
        paddle.set_default_dtype(before)


def clear(optimizer: Any) -> None:
    optimizer.clear_grad()


def multiply(tensor: Any, factors: Array) -> Any:
    return tensor * paddle.to_tensor(np.array(factors)).astype(tensor.dtype)


def total(tensor: Any, weights: Array) -> Any:
    return multiply(tensor, weights).sum()
