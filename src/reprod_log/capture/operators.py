"""Operators, recorded one by one: those of a layer or a loss as its code calls them, and the kernels of a program.

A trace has what the user's code calls in order, with lines and gradients, and shows where two sides part. A program has
the kernels below, in float64, and can be run again with other weights.
"""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.frameworks import Framework, known_names
from reprod_log.frameworks.contract import Eager, Operator, Program, Trace, no_operators
from reprod_log.frameworks.nests import flatten, mapped
from reprod_log.frameworks.tensors import to_numpy
from reprod_log.recording import Array
from reprod_log.recording.entry import content_hash
from reprod_log.recording.spool import Spool

_RUNNERS = ("operators_of_call", "operators_of_loss", "program")
"""The functions that ask for a trace."""
_MASKED = "masked_instead"
"""The function that puts a shared mask in the place of a dropout."""
_SILENT = ("__set__", "full", "assign", "assign_value_", "full_", "detach", "requires_grad_", "lift_fresh.default")
_MOST_GIVEN = 5
"""Kernels with more plain arguments than this were called by a framework's function, and its user wrote few of them."""


def _operators(framework: Framework) -> Eager:
    if "operators" not in framework.can:
        raise no_operators(framework)
    return framework.eager


class OperatorTrace:
    """Records the operators of a stretch of a program in order, and numbers their tensors."""

    def __init__(self, framework: Framework) -> None:
        self._framework, self._trace = framework, Trace()
        self._numbers: dict[int, int] = {}
        self._gradients: dict[int, list[Any]] = {}
        self._kept: list[Any] = []
        self._kinds: list[Any] = []
        self._pauses = 0

    def given(self, value: Any) -> None:
        """What is there before the first operator: an input that one side does not use is there all the same."""
        for one in self._tensors(value):
            self._number(one)

    def gave(self, value: Any) -> None:
        """What came out in the end."""
        known = [self._numbers[id(one)] for one in self._tensors(value) if id(one) in self._numbers]
        self._trace.results = (*self._trace.results, *known)

    def pause(self, *given: Any) -> None:
        """Record no operator until `resume` was called as often; what a model is given then is a result, too."""
        if not self._pauses:
            self.gave(given)
        self._pauses += 1

    def resume(self, value: Any = None) -> None:
        """Go on, with what was made in the meantime."""
        self._pauses -= 1
        if not self._pauses:
            self.given(value)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """While it lasts, every operator is recorded."""
        with _operators(self._framework).each_operator(self._called):
            yield

    def _called(
        self, name: str, given: Any, result: Any, again: Callable[..., Any], function: type | None = None
    ) -> None:
        outputs = [] if self._pauses else self._tensors(result)
        if outputs and name not in _SILENT and _in_mask():
            if name.strip("_") not in ("mul", "multiply"):
                # How our own mask is made.
                return
            name = "dropout"
        if outputs and name not in _SILENT:
            numbers = {id(one): self._number(one) for one in self._tensors(given)}
            numbered = mapped(given, lambda _, leaf: _Number(numbers[id(leaf)]) if id(leaf) in numbers else leaf)
            inputs = tuple(leaf.number for _, leaf in flatten(numbered) if isinstance(leaf, _Number))
            self._trace.calls.append(partial(self._again, again, numbered))
            # Results are always new: an operator in place gives the same object other values.
            for one in outputs:
                self._numbers.pop(id(one), None)
            results = tuple(self._number(one) for one in outputs)
            operator = Operator(name, inputs, results, called_at(), "", _given(given), _written_at(function))
            self._trace.operators.append(operator)

    def _again(self, call: Callable[..., Any], given: Any, values: Mapping[int, Array]) -> list[Array]:
        def tensor(_: str, leaf: Any) -> Any:
            if not isinstance(leaf, _Number):
                return leaf
            kept = self._kept[leaf.number]
            array = values.get(leaf.number, self._trace.arrays[leaf.number])
            return self._framework.tensors.tensor(array.astype(self._kinds[leaf.number]), like=kept)

        args, kwargs = mapped(given, tensor)
        return [to_numpy(one).astype(np.float64) for one in self._tensors(call(*args, **kwargs))]

    def trace(self) -> Trace:
        """All that was recorded, with the gradients that have come since."""
        for place, parts in self._gradients.items():
            # A hook may be given no gradient: nothing of what follows depends on the tensor.
            known = [part for part in parts if part is not None]
            if known:
                self._trace.gradients[place] = np.sort(to_numpy(sum(known)).astype(np.float64), axis=None)
        return self._trace

    def _number(self, tensor: Any) -> int:
        if id(tensor) not in self._numbers:
            # Kept alive, so that no other tensor gets the same identity.
            self._kept.append(tensor)
            number = self._numbers[id(tensor)] = len(self._trace.values)
            array = to_numpy(tensor)
            self._kinds.append(array.dtype)
            self._trace.arrays.append(array.astype(np.float64))
            self._trace.values.append(np.sort(self._trace.arrays[-1], axis=None))
            self._framework.eager.on_gradient(tensor, self._gradients.setdefault(number, []).append)
        return self._numbers[id(tensor)]

    def _tensors(self, value: Any) -> list[Any]:
        return [tensor for _, tensor in self._framework.tensors_in(value)]


def _in_mask() -> bool:
    """Whether an operator is that of a shared mask, which stands for a dropout."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name not in _RUNNERS:
        if frame.f_code.co_name == _MASKED:
            return True
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return False


def called_at() -> str:
    """The line of the model's own code that called an operator."""
    frame = sys._getframe(1)
    others = {*known_names(), "reprod_log"}
    # Frames beyond the runner belong to the caller that asked for the trace, not to the model.
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


# ---- kernels --------------------------------------------------------------------------------------------------------


class _Number:
    """Stands for a tensor among the arguments of a kernel; not a dataclass, which would be a nest."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


@dataclass
class RecordedProgram(Program):
    """A program as its framework ran it."""

    framework: Framework = field(kw_only=True)
    calls: list[tuple[Callable[..., Any], Any]] = field(default_factory=list)
    """Of every kernel: what to call, and its arguments with numbers in the place of tensors."""

    def again(self, place: int, tensors: Mapping[int, Any]) -> list[Any]:
        kernel, given = self.calls[place]

        def tensor(_: str, leaf: Any) -> Any:
            if not isinstance(leaf, _Number):
                return leaf
            found = tensors.get(leaf.number)
            return self.tensor(self.arrays[leaf.number]) if found is None else found

        args, kwargs = mapped(given, tensor)
        result = kernel(*args, **kwargs)
        return [one for _, one in self.framework.tensors_in(result) if self.has_values(one)]

    def has_values(self, tensor: Any) -> bool:
        # A kernel may give working space that it left empty.
        try:
            return self.framework.tensors.view(tensor)[0].size > 0
        except Exception:  # each framework raises its own error for a tensor without values
            return False

    def tensor(self, array: Array) -> Any:
        return self.framework.tensors.tensor(array)

    def array(self, tensor: Any) -> Array:
        return to_numpy(tensor)


class ProgramRecorder:
    """Numbers the tensors of a running program and keeps its kernels."""

    def __init__(self, framework: Framework, weights: Mapping[str, Any], spool: Spool | None = None) -> None:
        self.program = RecordedProgram(framework=framework)
        self._spool = spool
        self._framework = framework
        self._numbers: dict[int, tuple[int, int | None]] = {}
        """By identity: the number, and how often the tensor had been written when it was last used."""
        self._by_content: dict[str, int] = {}
        self._kept: list[Any] = []
        self._path: list[str] = [""]
        for name, tensor in weights.items():
            number = self._new(tensor)
            self.program.weights[number] = name

    def given(self, value: Any, role: str) -> None:
        for name, tensor in self._framework.tensors_in(value, role):
            self.program.given[name] = self._new(tensor)

    def gave(self, value: Any, role: str) -> None:
        for name, tensor in self._framework.tensors_in(value, role):
            self.program.results[name] = self._number(tensor)

    @contextmanager
    def recording(self, modules: Mapping[str, Any], *, gradients: bool = False) -> Iterator[None]:
        """While it lasts, every kernel is recorded, with the module that calls it."""
        eager = _operators(self._framework)
        with ExitStack() as undo:
            for path, module in modules.items():
                undo.callback(eager.on_call(module, self._enter(path), self._leave))
            undo.enter_context(eager.each_kernel(self._call, gradients=gradients))
            yield

    def _enter(self, path: str) -> Callable[[Any, Any], None]:
        return lambda args, kwargs: self._path.append(path)

    def _leave(self, output: Any) -> None:
        self._path.pop()

    def _call(
        self,
        name: str,
        again: Callable[..., Any],
        given: tuple[tuple[Any, ...], Mapping[str, Any]],
        written: tuple[int, ...],
        run: Callable[[], Any],
    ) -> Any:
        is_tensor = self._framework.tensors.is_tensor
        numbered = mapped(given, lambda _, leaf: _Number(self._number(leaf)) if is_tensor(leaf) else leaf)
        inputs = tuple(leaf.number for _, leaf in flatten(numbered) if isinstance(leaf, _Number))
        targets = [given[0][place] for place in written if place < len(given[0]) and is_tensor(given[0][place])]
        result = run()
        if result is NotImplemented:
            return result
        outputs = [one for _, one in self._framework.tensors_in(result)] or targets[:1]
        if not outputs or not all(map(self.program.has_values, outputs[:1])):
            return result
        before = {id(one): self._numbers[id(one)][0] for one in targets}
        results = tuple(self._new(one) for one in outputs if self.program.has_values(one))
        for one, number in zip(outputs, results, strict=False):
            if id(one) in before:
                self.program.written[number] = before[id(one)]
        self.program.kernels.append(Operator(name, inputs, results, called_at(), self._path[-1]))
        self.program.calls.append((again, numbered))
        return result

    def _number(self, tensor: Any) -> int:
        version = self._framework.eager.in_place_version(tensor)
        known = self._numbers.get(id(tensor))
        if known is not None and known[1] in (None, version):
            self._numbers[id(tensor)] = (known[0], version)
            return known[0]
        if not self.program.has_values(tensor):
            return self._new(tensor, np.zeros(0))
        array = self._array(tensor)
        # Made by a call that no listener sees, or written through a view: known by its content.
        found = self._by_content.get(content_hash(array))
        if found is not None:
            self._kept.append(tensor)
            self._numbers[id(tensor)] = (found, version)
            return found
        number = self._new(tensor, array)
        if known is not None:
            self.program.written[number] = known[0]
        return number

    def _new(self, tensor: Any, array: Array | None = None) -> int:
        # Kept alive, so that no other tensor gets the same identity.
        self._kept.append(tensor)
        array = self._array(tensor) if array is None else array
        number = len(self.program.arrays)
        self.program.arrays.append(array)
        self._numbers[id(tensor)] = (number, None)
        if array.size > 1:
            self._by_content[content_hash(array)] = number
        return number

    def _array(self, tensor: Any) -> Array:
        if self._spool is None:
            return to_numpy(tensor)
        return self._spool.keep(self._framework.tensors.view(tensor)[0])
