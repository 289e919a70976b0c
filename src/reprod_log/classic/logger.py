"""ReprodLogger: the notebook of 1.0.1 in which a script writes down its tensors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from reprod_log.errors import ClassicUsageError, UsageError
from reprod_log.frameworks.tensors import to_numpy
from reprod_log.recording import Array
from reprod_log.recording.entry import dtype_name
from reprod_log.recording.npy import classic_array, write_dict
from reprod_log.recording.pickles import is_classic_key


class ReprodLogger:
    """Collects arrays under names and saves them as one `.npy` file."""

    def __init__(self) -> None:
        self._data: dict[Any, Array] = {}

    @property
    def data(self) -> dict[Any, Array]:
        """The live dict of what was added."""
        return self._data

    def add(self, key: Any, val: Any) -> None:
        """Keep a copy of `val` under `key`; a value that was there is replaced.

        A number (of a step, say), a tuple of them or None is a key as well, as it was in 1.0.1.
        `val` is a numpy array, a tensor of any framework in use, a number or a list of numbers.
        """
        if not is_classic_key(key):
            raise ClassicUsageError(f"a key must be a string, not {type(key).__name__}: use add({str(key)!r}, …)")
        try:
            array = to_numpy(val)
            dtype_name(array.dtype)  # refuses what could not be read again
        except UsageError as error:
            raise ClassicUsageError(f"cannot add {key!r}: {error}") from error
        self._data[key] = classic_array(array)

    def remove(self, key: Any) -> None:
        """Forget `key`; a key that is not there is only mentioned."""
        if key in self._data:
            del self._data[key]
        else:
            print(f"{key} is not in {self._data.keys()}")

    def clear(self) -> None:
        """Forget everything."""
        self._data.clear()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to `path`, making folders and adding `.npy` where it is missing."""
        write_dict(self._data, Path(path))
