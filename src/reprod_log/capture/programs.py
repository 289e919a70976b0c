"""Programs: every kernel of a model's forward pass and loss in float64, to be run again with other weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reprod_log.capture.traces import called_at
from reprod_log.errors import CaptureError
from reprod_log.frameworks import Framework
from reprod_log.frameworks.contract import Kernel
from reprod_log.frameworks.nests import flatten, mapped
from reprod_log.frameworks.tensors import to_numpy
from reprod_log.recording import Array
from reprod_log.recording.entry import content_hash
from reprod_log.recording.spool import Spool


class _Number:
    """Stands for a tensor among the arguments of a kernel; not a dataclass, which would be a nest."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


@dataclass
class RecordedProgram:
    """A program as its framework ran it."""

    framework: Framework
    kernels: list[Kernel] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)
    weights: dict[int, str] = field(default_factory=dict)
    given: dict[str, int] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)
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
        return [leaf for _, leaf in flatten(result) if self.framework.tensors.is_tensor(leaf)]

    def tensor(self, array: Array) -> Any:
        return self.framework.tensors.tensor(array)

    def array(self, tensor: Any) -> Array:
        return to_numpy(tensor)


class ProgramRecorder:
    """Numbers the tensors of a running program and keeps its kernels."""

    def __init__(self, framework: Framework, weights: Mapping[str, Any], spool: Spool | None = None) -> None:
        self.program = RecordedProgram(framework)
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
        for name, tensor in self._tensors(value, role):
            self.program.given[name] = self._new(tensor)

    def gave(self, value: Any, role: str) -> None:
        for name, tensor in self._tensors(value, role):
            self.program.results[name] = self._number(tensor)

    @contextmanager
    def recording(self, modules: Mapping[str, Any], *, gradients: bool = False) -> Iterator[None]:
        """While it lasts, every kernel is recorded, with the module that calls it."""
        each_kernel = self._framework.eager.each_kernel
        if each_kernel is None:
            raise CaptureError(f"operators of {self._framework.name} cannot be recorded one by one")
        hooks = self._framework.eager.hooks
        with ExitStack() as undo:
            for path, module in modules.items():
                undo.callback(hooks.on_call(module, self._enter(path), self._leave))
            undo.enter_context(each_kernel(self._call, gradients=gradients))
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
        outputs = [leaf for _, leaf in flatten(result) if is_tensor(leaf)] or targets[:1]
        if not outputs or not all(map(self._has_values, outputs[:1])):
            return result
        before = {id(one): self._numbers[id(one)][0] for one in targets}
        results = tuple(self._new(one) for one in outputs if self._has_values(one))
        for one, number in zip(outputs, results, strict=False):
            if id(one) in before:
                self.program.written[number] = before[id(one)]
        self.program.kernels.append(Kernel(name, inputs, results, self._path[-1], called_at()))
        self.program.calls.append((again, numbered))
        return result

    def _has_values(self, tensor: Any) -> bool:
        # A kernel may give working space that it left empty.
        try:
            return self._framework.tensors.view(tensor)[0].size > 0
        except Exception:  # each framework has its own words for a tensor without values
            return False

    def _number(self, tensor: Any) -> int:
        version = self._framework.eager.hooks.in_place_version(tensor)
        known = self._numbers.get(id(tensor))
        if known is not None and known[1] in (None, version):
            self._numbers[id(tensor)] = (known[0], version)
            return known[0]
        if not self._has_values(tensor):
            return self._new(tensor, np.zeros(0))
        array = self._array(tensor)
        # Made by a call that is not heard, or written through a view: known by its content.
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

    def _tensors(self, value: Any, role: str) -> list[tuple[str, Any]]:
        return [(name, leaf) for name, leaf in flatten(value, role) if self._framework.tensors.is_tensor(leaf)]
