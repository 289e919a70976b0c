"""Feeding: call a model of any framework with inputs that are given by name, in order, or alone."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from reprod_log.capture.framework import Framework, framework_of
from reprod_log.errors import CaptureError, listed


def feed(model: Any, inputs: Any) -> Any:
    """What the model returns for `inputs`: arrays in a mapping by name, in a tuple in order, or a single one.

    Arrays of numpy become tensors of the model's framework; its own tensors are passed as they are. Names that the
    model does not take, or inputs that it lacks, raise CaptureError with the names that it does take.
    """
    framework = framework_of(model)
    content = framework.wrapped(model)
    signature = inspect.signature(type(model if content is None else content).forward)
    args, kwargs = _arranged(inputs)
    _check(type(model).__name__, signature, args, kwargs)
    like = _some_parameter(framework, model)
    return model(
        *(_tensors(framework, value, like) for value in args),
        **{name: _tensors(framework, value, like) for name, value in kwargs.items()},
    )


def _arranged(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs), {}) if isinstance(inputs, (tuple, list)) else ((inputs,), {})


def _check(model: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        signature.bind(None, *args, **kwargs)
    except TypeError as error:
        taken = [one.name for one in list(signature.parameters.values())[1:]]
        given = listed(kwargs, most=9) if kwargs else f"{len(args)} in order"
        raise CaptureError(
            f"the inputs do not fit {model}.forward: {error}. It takes {listed(taken, most=9) or 'nothing'}; "
            f"given were {given}."
        ) from error


def _some_parameter(framework: Framework, model: Any) -> Any:
    waiting = [model]
    while waiting:
        module = waiting.pop()
        for _, tensor in framework.parameters(module):
            return tensor
        waiting += [child for _, child in framework.children(module)]
    return None


def _tensors(framework: Framework, value: Any, like: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return framework.from_numpy(np.asarray(value), like)
    if isinstance(value, Mapping):
        return {name: _tensors(framework, one, like) for name, one in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_tensors(framework, one, like) for one in value)
    return value
