"""Weight files as named arrays: `.pth`, `.pt` and `.bin` of torch, `.safetensors`, `.pdparams` of paddle.

A `.pdparams` is a pickle of arrays. It is read without running anything it asks for, and written without paddle;
paddle keeps bfloat16 in it as uint16, its only use of that type.
"""

import importlib
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from reprod_log.errors import MissingPackage, UnreadableFile, UsageError, listed
from reprod_log.recording import Array
from reprod_log.recording.files import mapped, replacing
from reprod_log.recording.pickles import read_pickle
from reprod_log.recording.safetensors import read_directory, write_tensors

FRAMEWORK_OF = {".pth": "torch", ".pt": "torch", ".bin": "torch", ".safetensors": None, ".pdparams": "paddle"}
# What data-parallel and compiled models put in front of every name.
WRAPPINGS = ("module.", "_layers.", "_orig_mod.")
# paddle's table of internal names; not a tensor.
_NAME_TABLE = "StructuredToParameterName@@"


def read_weights(path: Path, *, entry: str | None = None) -> dict[str, Array]:
    """The named arrays of a weight file; `entry` says which part of a checkpoint that holds more than weights."""
    suffix = _suffix(path)
    if not path.is_file():
        raise UnreadableFile(f"There is no file {path}.")
    if suffix == ".safetensors":
        directory = read_directory(path)
        whole = directory.map()
        content: Any = {name: np.array(directory.view(slot, whole)) for name, slot in directory.slots.items()}
    elif suffix == ".pdparams":
        content = _read_pdparams(path)
    else:
        content = _torch_file().read(path)
    return _without_wrapping(_chosen(content, path, entry))


def write_weights(path: Path, arrays: Mapping[str, Array], *, framework: str) -> None:
    """Writes named arrays in the format that the file's name says; an interrupted write leaves the old file."""
    suffix = _suffix(path)
    plain = {name: np.array(array, order="C") for name, array in arrays.items()}
    writer = _torch_file() if suffix in (".pth", ".pt", ".bin") else None
    with replacing(path) as file:
        if writer is not None:
            writer.write(file, plain)
        elif suffix == ".safetensors":
            # The mark by which torch's side of the field knows its own files.
            write_tensors(file, plain, {"format": "pt"} if framework == "torch" else {})
        else:
            pickle.dump({name: _as_paddle_keeps(array) for name, array in plain.items()}, file, protocol=4)


def _suffix(path: Path) -> str:
    if path.suffix not in FRAMEWORK_OF:
        raise UsageError(f"{path}: the name of a weight file ends with one of {', '.join(FRAMEWORK_OF)}.")
    return path.suffix


def _torch_file() -> Any:
    # A file of torch can only be read by torch: naming one asks for it.
    try:
        return importlib.import_module("reprod_log.frameworks.torch.checkpoints")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingPackage("Reading and writing .pth needs torch: pip install torch, or use .safetensors.") from error


def _read_pdparams(path: Path) -> Any:
    content = read_pickle(memoryview(mapped(path)), where=str(path))
    if isinstance(content, dict):
        content = {name: value for name, value in content.items() if name != _NAME_TABLE}
        content = _joined_slices(content, path)
    return _unnamed(content, {})


def _joined_slices(content: dict[Any, Any], path: Path) -> dict[Any, Any]:
    """Tensors over 4 GB, which old protocols keep in slices."""
    table = content.pop("UnpackBigParamInfor@@", {})
    try:
        for name, described in table.items():
            parts = [content.pop(part, None) for part in described["slices"]]
            if any(part is None for part in parts):
                raise UnreadableFile(f"{path}: {name!r} is kept in slices of which some are missing.")
            content[name] = np.concatenate(parts).reshape(described["OriginShape"])
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise UnreadableFile(f"{path}: the table of tensors kept in slices is damaged ({error!r}).") from error
    return content


def _unnamed(value: Any, copies: dict[int, Array]) -> Any:
    """paddle saves tensors inside other values as (name, array)."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], np.ndarray):
        return _unnamed(value[1], copies)
    if isinstance(value, np.ndarray):
        # A copy, so that the file is no longer needed; one for all places where the same array stands.
        if id(value) not in copies:
            copies[id(value)] = np.array(value.view(ml_dtypes.bfloat16) if value.dtype == np.uint16 else value)
        return copies[id(value)]
    if isinstance(value, dict):
        return {key: _unnamed(one, copies) for key, one in value.items()}
    return value


def _as_paddle_keeps(array: Array) -> Array:
    return array.view(np.uint16) if array.dtype == np.dtype(ml_dtypes.bfloat16) else array


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
        f"Say which entry to take with entry=...; these hold more: {listed(nested) or 'none'}."
    )


def _without_wrapping(weights: dict[str, Array]) -> dict[str, Array]:
    for prefix in WRAPPINGS:
        if weights and all(name.startswith(prefix) for name in weights):
            return _without_wrapping({name.removeprefix(prefix): array for name, array in weights.items()})
    return weights
