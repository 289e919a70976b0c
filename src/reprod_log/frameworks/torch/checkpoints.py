"""torch's own checkpoint files. Read with `weights_only=True`: a file of tensors cannot run code."""

import pickle
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from reprod_log.errors import UnreadableFile, UntrustedFile
from reprod_log.frameworks.nests import mapped
from reprod_log.frameworks.tensors import to_numpy
from reprod_log.frameworks.torch.tensors import tensor
from reprod_log.recording import Array

SUFFIXES: tuple[str, ...] = (".pth", ".pt", ".bin")
_BROKEN = (
    OSError, EOFError, RuntimeError, ValueError, KeyError, IndexError, TypeError, AttributeError, AssertionError,
    OverflowError, NotImplementedError, struct.error, zipfile.BadZipFile,
)  # fmt: skip
"""What torch's reader meets a broken file with, whichever comes first."""
_DEEPEST = 100
_HARMLESS_BYTES = 1 << 26
_MOST_GROWTH = 16
"""Tensors may need 64 MB, or sixteen times the file's size (weights that are shared): beyond it, it is a trap."""


def read(path: Path) -> Any:
    """What the file holds, with every tensor as an array."""
    most = max(_HARMLESS_BYTES, _MOST_GROWTH * path.stat().st_size)
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                _refuse_more(path, sum(member.file_size for member in archive.infolist()), most)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UntrustedFile(
            f"{path} holds more than tensors and plain values, or is not a torch checkpoint; reading it could run code "
            "of its author's choice. It was not run. Save model.state_dict() alone and convert that."
        ) from error
    except _BROKEN as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise UnreadableFile(f"{path} is not a readable torch checkpoint ({why}).") from error
    _refuse_more(path, _unfolded(path, content), most)
    return mapped(content, lambda _, leaf: to_numpy(leaf) if isinstance(leaf, torch.Tensor) else leaf)


def _unfolded(path: Path, content: Any) -> int:
    """The bytes of all tensors as arrays of their own: a file may claim that one number stands at a billion places."""
    left = [(content, 0)]
    visited = needed = 0
    while left:
        value, depth = left.pop()
        visited += 1
        # Parts that stand in themselves, or twice in parts that stand twice, would never end.
        if depth > _DEEPEST or visited > max(1000, path.stat().st_size):
            raise UnreadableFile(f"{path} is nested deeper than {_DEEPEST} levels, or has more items than bytes.")
        if isinstance(value, torch.Tensor):
            needed += value.numel() * value.element_size()
        elif isinstance(value, dict):
            left += [(one, depth + 1) for one in value.values()]
        elif isinstance(value, (list, tuple)):
            left += [(one, depth + 1) for one in value]
    return needed


def _refuse_more(path: Path, needed: int, most: int) -> None:
    if needed > most:
        raise UnreadableFile(f"{path} would unfold to {needed} bytes from {path.stat().st_size}; it was not read.")


def write(file: BinaryIO, arrays: Mapping[str, Array]) -> None:
    """Writes a state dict of tensors."""
    torch.save({name: tensor(np.asarray(array)) for name, array in arrays.items()}, file)
