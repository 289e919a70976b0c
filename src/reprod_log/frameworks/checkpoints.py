"""Weight files as frameworks write them: which suffix is whose, and reading and writing them without the framework.

A `.pdparams` is a pickle of arrays. It is read without running anything it asks for, and written without paddle;
paddle keeps bfloat16 in it as uint16, its only use of that type. Only torch can read its own checkpoints.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from reprod_log.errors import MissingPackage, UnreadableFile, UsageError
from reprod_log.recording import Array
from reprod_log.recording.files import mapped
from reprod_log.recording.pickles import read_pickle
from reprod_log.recording.safetensors import read_directory, write_tensors

OWNERS = {".pth": "torch", ".pt": "torch", ".bin": "torch", ".safetensors": "", ".pdparams": "paddle"}
"""The framework that a suffix belongs to; `.safetensors` may be anyone's."""
WRAPPINGS = ("module.", "_layers.", "_orig_mod.")
"""What data-parallel and compiled models put in front of every name."""
FORMATS = ".pth, .pt and .bin (torch), .pdparams (paddle), .safetensors, .npz"
SCRIPT_FILES = '''
WRAPPINGS = ("module.", "_layers.", "_orig_mod.")


def read(path):
    """The arrays of a checkpoint by name; bfloat16 as float32, which holds the same numbers."""
    if path.endswith(".npz"):
        return dict(np.load(path))
    if path.endswith(".safetensors"):
        from safetensors.numpy import load_file

        return load_file(path)
    if path.endswith(".pdparams"):
        import paddle

        return arrays(paddle.load(path, return_numpy=True))
    import torch

    return arrays(torch.load(path, map_location="cpu", weights_only=True))


def arrays(value):
    if isinstance(value, dict):
        return {name: arrays(one) for name, one in value.items() if name != "StructuredToParameterName@@"}
    if isinstance(value, np.ndarray):
        # paddle keeps bfloat16 as uint16, its only use of that type.
        return (value.astype(np.uint32) << 16).view(np.float32) if value.dtype == np.uint16 else value
    if hasattr(value, "detach"):
        value = value.detach()
        return (value.float() if str(value.dtype).endswith("bfloat16") else value).numpy()
    return value


def write(path, state):
    """Write arrays by name (or those of several models by the model's name) in the format of the suffix."""
    if path.endswith(".npz"):
        np.savez(path, **state)
    elif path.endswith(".safetensors"):
        from safetensors.numpy import save_file

        save_file(state, path)
    elif path.endswith(".pdparams"):
        import paddle

        paddle.save(tensors(state, paddle.to_tensor), path)
    else:
        import torch

        torch.save(tensors(state, torch.from_numpy), path)


def tensors(value, make):
    if isinstance(value, dict):
        return {name: tensors(one, make) for name, one in value.items()}
    return make(value) if isinstance(value, np.ndarray) else value
'''
"""How a script that stands alone reads and writes weight files; only the framework of a file is imported."""
# paddle's table of internal names; not a tensor.
_NAME_TABLE = "StructuredToParameterName@@"


def owner(path: Path) -> str:
    """The framework that a weight file belongs to by its name; '' where that does not tell."""
    if path.suffix not in OWNERS:
        raise UsageError(f"{path}: the name of a weight file ends with one of {', '.join(OWNERS)}.")
    return OWNERS[path.suffix]


def read_checkpoint(path: Path, *, mapped: bool = False) -> Any:
    """What a weight file holds, with every tensor as an array; with `mapped` as a view of a safetensors file."""
    if path.suffix == ".safetensors":
        directory = read_directory(path)
        whole = directory.map()
        views = {name: directory.view(slot, whole) for name, slot in directory.slots.items()}
        return views if mapped else {name: np.array(view) for name, view in views.items()}
    return _read_pdparams(path) if owner(path) == "paddle" else _of_torch().read(path)


def write_checkpoint(file: BinaryIO, suffix: str, arrays: Mapping[str, Array], *, framework: str) -> None:
    """Write named arrays in the format of the suffix, with the names of this framework."""
    if suffix == ".safetensors":
        # The mark by which torch's side of the field knows its own files.
        write_tensors(file, dict(arrays), {"format": "pt"} if framework == "torch" else {})
    elif OWNERS[suffix] == "paddle":
        kept = {name: one.view(np.uint16) if one.dtype == ml_dtypes.bfloat16 else one for name, one in arrays.items()}
        pickle.dump(kept, file, protocol=4)
    else:
        _of_torch().write(file, arrays)


def require_reader(path: Path) -> None:
    """Raise when the package that a file's format needs is not installed."""
    if owner(path) == "torch":
        _of_torch()


def _of_torch() -> Any:
    # A file of torch can only be read by torch: naming one asks for it.
    try:
        return import_module("reprod_log.frameworks.torch.checkpoints")
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
