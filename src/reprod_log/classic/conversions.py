"""Conversions of 1.0.1 between numpy and the two frameworks it knew, which are named here because it named them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from reprod_log.errors import ClassicUsageError, MissingPackage
from reprod_log.frameworks.nests import flatten
from reprod_log.frameworks.tensors import to_numpy
from reprod_log.recording import Array


def np2torch(data: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of a dict as torch tensors of the same dtype; other values stay as they are."""
    return _converted(data, _framework("torch").tensor)


def np2paddle(data: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of a dict as paddle tensors of the same dtype; other values stay as they are."""
    return _converted(data, _framework("paddle").to_tensor)


def torch2np(data: Any) -> dict[str, Array]:
    """What a torch model returned, any structure, as a flat dict of arrays; a lone tensor is called 'output'."""
    return _to_dict(data)


def paddle2np(data: Any = None) -> dict[str, Array]:
    """What a paddle model returned, any structure, as a flat dict of arrays; a lone tensor is called 'output'."""
    return _to_dict(data)


def framework_of_1_0_1(module: str, name: str) -> Any:
    """What `from reprod_log.utils import paddle` gave in 1.0.1; loaded when it is asked for."""
    if name != "paddle":
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return _framework(name)


def _to_dict(data: Any) -> dict[str, Array]:
    arrays = {}
    for role, tensor in flatten(data, "output"):
        # A dict's members keep their own names, as in 1.0.1.
        name = role.removeprefix("output.") if isinstance(data, Mapping) else role
        arrays[name] = to_numpy(tensor)
    return arrays


def _converted(data: Any, tensor: Callable[[Array], Any]) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise ClassicUsageError(f"expected a dict of arrays by input name, not {type(data).__name__}")
    return {key: tensor(value) if isinstance(value, np.ndarray) else value for key, value in data.items()}


def _framework(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        package = "paddlepaddle" if name == "paddle" else name
        raise MissingPackage(f"this needs {name}, which is not installed: pip install {package}") from error
