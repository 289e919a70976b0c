"""MindSpore's tensors, and MindSpore as a part of the process."""

from __future__ import annotations

from typing import Any

import mindspore
import numpy as np

from reprod_log.frameworks import contract
from reprod_log.frameworks.contract import TensorFacts
from reprod_log.recording import Array
from reprod_log.recording.entry import dtype_named


class MindSporeTensors:
    def is_tensor(self, value: object) -> bool:
        return isinstance(value, mindspore.Tensor)

    def view(self, tensor: Any) -> tuple[Array, bool]:
        if tensor.dtype == mindspore.bfloat16:
            # Every value of it is one of float32.
            return tensor.astype(mindspore.float32).asnumpy().astype(dtype_named("bfloat16")), True
        return np.array(tensor.asnumpy()), True

    def tensor(self, array: Array, *, like: Any = None, dtype: str | None = None, gradient: bool = False) -> Any:
        return mindspore.Tensor(np.ascontiguousarray(array if dtype is None else array.astype(dtype)))

    def facts(self, tensor: Any) -> TensorFacts:
        return TensorFacts(tuple(tensor.shape), str(tensor.dtype).lower(), "cpu")


class MindSporeProcess(contract.Process):
    def version(self) -> str:
        return str(mindspore.__version__)

    def seeds(self) -> dict[str, int]:
        seed = mindspore.get_seed()
        return {} if seed is None else {"mindspore": int(seed)}

    def seed(self, number: int) -> None:
        mindspore.set_seed(number)
