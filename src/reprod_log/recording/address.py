"""Where an array's elements lie, for C libraries that are called through ctypes."""

from __future__ import annotations

import ctypes
from typing import Any

from numpy.typing import NDArray


class _ArrayInterface(ctypes.Structure):
    """numpy's array interface for C, up to the address of the elements."""

    _fields_ = [
        ("two", ctypes.c_int),
        ("nd", ctypes.c_int),
        ("typekind", ctypes.c_char),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
    ]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def address_of(array: NDArray[Any]) -> int:
    """The address of the first element; twice as fast as array.ctypes.data, which many small tensors feel."""
    address: int = _ArrayInterface.from_address(_capsule_pointer(array.__array_struct__, None)).data
    return address


def is_plain(array: NDArray[Any]) -> bool:
    """Whether the elements lie one after the other, in native bytes; at which address does not matter."""
    return array.flags.c_contiguous and array.dtype.isnative
