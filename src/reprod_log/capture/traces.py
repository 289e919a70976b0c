"""Traces: every operator of a layer or of a loss in order: what went in, what came out, which line called it."""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.errors import CaptureError
from reprod_log.frameworks import Framework, known_names
from reprod_log.frameworks.contract import Operator, Trace
from reprod_log.frameworks.nests import flatten
from reprod_log.frameworks.tensors import to_numpy
from reprod_log.recording import Array

_RUNNERS = ("operators_of_call", "operators_of_loss", "program")
"""The functions that ask for a trace."""
_SILENT = ("__set__", "full", "assign", "assign_value_", "full_", "detach", "requires_grad_")
_MOST_GIVEN = 5
"""Kernels with more plain arguments than this were called by a framework's function, and its user wrote few of them."""


class OperatorTrace:
    """Records the operators of a stretch of a program in order, and numbers their tensors."""

    def __init__(self, framework: Framework) -> None:
        self._framework, self._trace = framework, Trace()
        self._numbers: dict[int, int] = {}
        self._gradients: dict[int, list[Any]] = {}
        self._kept: list[Any] = []

    def given(self, value: Any) -> None:
        """What is there before the first operator: an input that one side does not use is there all the same."""
        for one in self._tensors(value):
            self._number(one)

    def gave(self, value: Any) -> None:
        """What came out in the end."""
        self._trace.results = tuple(self._numbers[id(one)] for one in self._tensors(value) if id(one) in self._numbers)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """While it lasts, every operator is recorded."""
        each_operator = self._framework.eager.each_operator
        if each_operator is None:
            raise CaptureError(f"operators of {self._framework.name} cannot be recorded one by one")
        with each_operator(self._called):
            yield

    def _called(self, name: str, given: Any, result: Any, function: type | None = None) -> None:
        outputs = self._tensors(result)
        if outputs and name not in _SILENT:
            inputs = tuple(self._number(one) for one in self._tensors(given))
            # Results are always new: an operator in place gives the same object other values.
            for one in outputs:
                self._numbers.pop(id(one), None)
            results = tuple(self._number(one) for one in outputs)
            operator = Operator(name, inputs, results, called_at(), _given(given), _written_at(function))
            self._trace.operators.append(operator)

    def trace(self) -> Trace:
        """All that was recorded, with the gradients that have come since."""
        for place, parts in self._gradients.items():
            # A hook may be given no gradient: nothing of what follows depends on the tensor.
            known = [part for part in parts if part is not None]
            if known:
                self._trace.gradients[place] = _sorted(sum(known))
        return self._trace

    def _number(self, tensor: Any) -> int:
        if id(tensor) not in self._numbers:
            # Kept alive, so that no other tensor gets the same identity.
            self._kept.append(tensor)
            number = self._numbers[id(tensor)] = len(self._trace.values)
            self._trace.arrays.append(to_numpy(tensor).astype(np.float64))
            self._trace.values.append(np.sort(self._trace.arrays[-1], axis=None))
            self._framework.eager.hooks.on_gradient(tensor, self._gradients.setdefault(number, []).append)
        return self._numbers[id(tensor)]

    def _tensors(self, value: Any) -> list[Any]:
        return [leaf for _, leaf in flatten(value) if self._framework.tensors.is_tensor(leaf)]


def _sorted(tensor: Any) -> Array:
    return np.sort(to_numpy(tensor).astype(np.float64), axis=None)


def called_at() -> str:
    """The line of the model's own code that called an operator."""
    frame = sys._getframe(1)
    others = {*known_names(), "reprod_log"}
    # Beyond the runner stands whoever asked for the trace, and not the model.
    while frame is not None and frame.f_code.co_name not in _RUNNERS:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in others:
            name, line = frame.f_code.co_filename, frame.f_lineno
            text = linecache.getline(name, line).strip()
            if not name.startswith("<") and "contextlib" not in name:
                return f"{Path(name).name}:{line}: {text}" if text else f"{Path(name).name}:{line}"
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return ""


def _given(value: Any) -> str:
    """The plain arguments of a call, as they would be written; nothing when there are none, or very many."""
    plain = [repr(one) for _, one in flatten(value) if isinstance(one, (bool, int, float, str))]
    return ", ".join(plain) if len(plain) <= _MOST_GIVEN else ""


def _written_at(function: type | None) -> str:
    """The name of a class whose backward pass is written by hand, and where that is."""
    if function is None:
        return ""
    try:
        lines = inspect.getsourcelines(function.backward)  # type: ignore[attr-defined]  # every framework asks for it
        return f"{function.__name__}, {Path(inspect.getfile(function.backward)).name}:{lines[1]}"  # type: ignore[attr-defined]
    except (OSError, TypeError):
        # Typed into a session, or compiled: there is no file to name.
        return function.__name__
