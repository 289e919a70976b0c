"""Weight files as named arrays, whichever framework wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.errors import UnreadableFile, UsageError, listed
from reprod_log.frameworks.checkpoints import WRAPPINGS, owner, read_checkpoint, require_reader, write_checkpoint
from reprod_log.recording import Array
from reprod_log.recording.files import replacing


def read_weights(path: Path, *, entry: str | None = None, mapped: bool = False) -> dict[str, Array]:
    """The named arrays of a weight file; `entry` says which part of a checkpoint that holds more than weights.

    With `mapped`, those of a safetensors file are views of it, which are read when they are looked at.
    """
    owner(path)
    if not path.is_file():
        raise UnreadableFile(f"There is no file {path}.")
    return _without_wrapping(_chosen(read_checkpoint(path, mapped=mapped), path, entry))


def write_weights(path: Path, arrays: Mapping[str, Array], *, framework: str) -> None:
    """Writes named arrays in the format that the file's name says; an interrupted write leaves the old file."""
    require_reader(path)
    plain = {name: np.array(array, order="C") for name, array in arrays.items()}
    with replacing(path) as file:
        write_checkpoint(file, path.suffix, plain, framework=framework)


def _chosen(content: Any, path: Path, entry: str | None) -> dict[str, Array]:
    if not isinstance(content, Mapping):
        raise UnreadableFile(f"{path} holds a {type(content).__name__}, not named tensors.")
    if entry is not None:
        if not isinstance(content.get(entry), Mapping):
            raise UsageError(f"{path} has no entry {entry!r} that holds tensors; it has {listed(map(str, content))}.")
        content = content[entry]
    weights = {str(name): value for name, value in content.items() if isinstance(value, np.ndarray)}
    if len(weights) == len(content) and weights:
        return weights
    nested = [str(name) for name, value in content.items() if isinstance(value, Mapping) and value]
    raise UsageError(
        f"{path} holds more than weights, or none: {listed(map(str, content))}. "
        f"Choose the entry to take with entry=...; these hold more: {listed(nested) or 'none'}."
    )


def _without_wrapping(weights: dict[str, Array]) -> dict[str, Array]:
    for prefix in WRAPPINGS:
        if weights and all(name.startswith(prefix) for name in weights):
            return _without_wrapping({name.removeprefix(prefix): array for name, array in weights.items()})
    return weights
