"""TensorFlow: tensors and variables only; record them with `run.log`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from reprod_log.errors import UsageError
from reprod_log.frameworks.contract import Framework, Tensors
from reprod_log.recording import Array


class TensorFlowTensors(Tensors):
    """Arrays, copied out."""

    def is_tensor(self, value: object) -> bool:
        return isinstance(value, (tf.Tensor, tf.Variable, tf.IndexedSlices, tf.SparseTensor))

    def view(self, tensor: Any) -> tuple[Array, bool]:
        if isinstance(tensor, tf.IndexedSlices):
            tensor = tf.convert_to_tensor(tensor)
        elif isinstance(tensor, tf.SparseTensor):
            tensor = tf.sparse.to_dense(tensor)
        if not hasattr(tensor, "numpy"):
            raise UsageError(
                f"a symbolic TensorFlow tensor ({tensor}) has no values yet: it is inside tf.function. "
                "Call tf.config.run_functions_eagerly(True) first, or record what the function returns."
            )
        # bfloat16 and float8 come as ml_dtypes; the array may share the tensor's memory.
        return tensor.numpy(), False


FRAMEWORK = Framework("tensorflow", TensorFlowTensors())
