"""Tensors of any framework as numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from reprod_log.errors import UsageError, listed
from reprod_log.frameworks import known_names, owner_of_tensor
from reprod_log.frameworks.nests import mapped
from reprod_log.recording import Array
from reprod_log.recording.entry import dtype_named, exact_array


def is_tensor(value: object) -> bool:
    """Whether `value` is an array or a tensor: numpy's, or that of a framework in this process."""
    return isinstance(value, (np.ndarray, np.generic)) or owner_of_tensor(value) is not None


def to_numpy(value: Any) -> Array:
    """A copy of `value` as a numpy array that owns its memory.

    Takes tensors of any framework that is loaded, numpy arrays and scalars, Python numbers, text, and lists of these.
    bfloat16 and the float8 kinds come in the dtypes of ml_dtypes, not as bare integers.
    """
    array, fresh = view(value)
    # `order="C"` also straightens transposed tensors, so that equal values have equal bytes.
    return array if fresh and array.flags.c_contiguous and array.flags.owndata else np.array(array, order="C")


def view(value: Any) -> tuple[Array, bool]:
    """The values as numpy has them, and whether the array is fresh; if it is not, it may share the tensor's memory."""
    if isinstance(value, np.ndarray):
        return value, False
    owner = owner_of_tensor(value)
    if owner is not None:
        return owner.tensors.view(value)
    if isinstance(value, (bool, int, float, complex, str, np.generic)):
        return exact_array(value), False
    if isinstance(value, (list, tuple)):
        return _from_sequence(value), True
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.dtype != object:
            return array, False
    raise _refused(value)


def cast_floating(array: Array, dtype: str | None) -> Array:
    """The array in `dtype` if it is floating; what is finite stays finite."""
    if dtype is None or array.dtype.kind != "f":
        return array
    narrow = dtype_named(dtype)
    if narrow.itemsize < array.dtype.itemsize:
        # Not at the top: `import reprod_log` loads this file, and few programs need the kinds of ml_dtypes.
        from ml_dtypes import finfo

        # A mask's "minus infinity" is often the lowest number of its type.
        most = float(finfo(narrow).max)  # type: ignore[no-untyped-call]
        array = np.where(np.isfinite(array), np.clip(array, -most, most), array)
    return array.astype(narrow)


def rounded(array: Array, dtype: str) -> Array:
    """The array with floating values rounded to a narrower `dtype`."""
    return cast_floating(array, dtype).astype(array.dtype)


def is_floating(array: Array) -> bool:
    """Whether the values are floating-point numbers, numpy's own or not."""
    return array.dtype.kind == "f" or array.dtype.name.startswith(("bfloat", "float"))


def plain_batch(batch: Any) -> Any:
    """The same batch with numpy arrays in place of tensors, so that any framework can be given it."""
    return mapped(batch, lambda _, leaf: leaf if owner_of_tensor(leaf) is None else to_numpy(leaf))


def _from_sequence(value: list[Any] | tuple[Any, ...]) -> Array:
    plain = [view(item)[0] if not isinstance(item, (bool, int, float, complex, str)) else item for item in value]
    try:
        array: Array = np.array(plain)
    except ValueError as error:
        raise UsageError(
            f"a {type(value).__name__} of {len(value)} items does not make one array: {error}. "
            "Record its items one by one."
        ) from error
    if array.dtype == object:
        raise _refused(value)
    return exact_array(plain) if array.dtype.kind in "US" else array


def _refused(value: object) -> UsageError:
    kind = type(value)
    full = f"{kind.__module__}.{kind.__qualname__}"
    top = kind.__module__.partition(".")[0]
    if top in known_names():
        return UsageError(f"a {full} is not a tensor; record the tensors in it one by one")
    return UsageError(
        f"cannot make a numpy array of a {full}. Known are numpy arrays, numbers, text, lists of these, and tensors "
        f"of {listed(known_names(), most=9)}. Convert it first, e.g. with numpy.asarray(value)."
    )
