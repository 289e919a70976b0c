"""What frameworks share whose models are values: places in a run, module facts, channels moved, settings of windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reprod_log.frameworks.contract import Cotangent, ModuleFacts, Shape, StateFacts
from reprod_log.frameworks.side import Scope
from reprod_log.recording import Array, Key
from reprod_log.recording.recorder import Recorder

Place = tuple[str, int, str]
"""Path, call and role."""


class Put:
    """Takes the arrays of one step into a recording, as far as the scope wants them."""

    def __init__(self, recorder: Recorder, scope: Scope, step: int, to_array: Callable[[Any], Array]) -> None:
        brief = scope.full_steps is not None and step >= scope.full_steps
        self._scope = replace(scope, phases=scope.brief) if brief else scope
        self._recorder, self.step, self._to_array = recorder, step, to_array

    def __call__(
        self,
        phase: str,
        path: str,
        array: Any,
        role: str = "",
        call: int | None = None,
        layer_type: str = "",
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        if self._scope.phases is None or phase in self._scope.phases:
            key = Key(path, phase, self.step, call, role, self._scope.run)
            self._recorder.add(key, self._to_array(array), layer_type=layer_type, meta=meta)

    def layers(self, phase: str, values: Iterable[tuple[Place, Any]], types: Mapping[str, str]) -> None:
        """What modules gave or got back, with their types by path."""
        for (path, call, role), value in values:
            self(phase, path, value, role, call, types.get(path, ""))


# ---- modules --------------------------------------------------------------------------------------------------------


def module_facts(
    modules: Mapping[str, Any],
    tensors: Mapping[str, StateFacts],
    classes: Callable[[Any, Mapping[str, StateFacts]], tuple[str, ...]],
    settings: Callable[[str, Any], Mapping[str, Any]],
) -> tuple[ModuleFacts, ...]:
    """The facts of modules by path, each before those inside it, and of the tensors below them."""
    found = []
    for path, module in modules.items():
        front = f"{path}." if path else ""
        inside = {name.removeprefix(front): one for name, one in tensors.items() if name.startswith(front)}
        below = tuple(f"{other}." for other in modules if other and other != path and other.startswith(front))
        own = tuple(name for name in inside if not f"{front}{name}".startswith(below))
        parent = parent_of(path, modules)
        found.append(ModuleFacts(path, parent, classes(module, inside), settings(path, module), own, inside, {}))
    return tuple(found)


def parent_of(path: str, known: Iterable[str]) -> str | None:
    """The nearest of the known paths above; None for the whole model."""
    if not path:
        return None
    above = {one for one in known if one and path.startswith(f"{one}.")}
    return max(above, key=len, default="")


def written_padding(
    given: Any, window: Sequence[int], stride: Any = 1, dilation: Any = 1, *, fixed: bool = True
) -> Any:
    """Padding as torch writes it, where that says the same at every size; else its word, or both ends of each axis.

    `fixed` is False where the word "same" cannot be written as numbers.
    """
    size = len(window)
    if callable(given):
        return "a function"
    if isinstance(given, str):
        if given.lower() == "valid":
            return [0] * size
        reach = [(one - 1) * apart for one, apart in zip(window, each(dilation, size), strict=True)]
        even = all(one % 2 == 0 for one in reach) and all(one == 1 for one in each(stride, size))
        return [one // 2 for one in reach] if fixed and even and given.lower() == "same" else given
    pairs = [(one, one) if isinstance(one, int) else tuple(one) for one in each(given, size)]
    if all(before == after for before, after in pairs):
        return [int(before) for before, _ in pairs]
    return [int(one) for pair in pairs for one in pair]


def each(value: Any, size: int) -> list[Any]:
    """A setting for each of so many axes."""
    return [value] * size if isinstance(value, int) else list(value)


# ---- images ---------------------------------------------------------------------------------------------------------


def fits(shape: Shape, wanted: Sequence[int | None]) -> bool:
    """Whether an array of this shape can be given where some sizes are fixed."""
    return len(shape) == len(wanted) and all(b is None or a == b for a, b in zip(shape, wanted, strict=True))


@dataclass(frozen=True)
class Channels:
    """Where a layer has its channels: other frameworks are given and give its images with the channels first."""

    last: Callable[[int], bool] = lambda axes: False
    """Whether they are last in arrays of so many axes."""

    def first(self, shape: Shape) -> Shape:
        return (shape[0], shape[-1], *shape[1:-1]) if self.last(len(shape)) else shape

    def outward(self, array: Any) -> Any:
        """An array of the layer as the others have it; anything else as it is."""
        return np.moveaxis(array, -1, 1) if isinstance(array, np.ndarray) and self.last(array.ndim) else array

    def inward(self, array: Any) -> Any:
        return np.moveaxis(array, 1, -1) if isinstance(array, np.ndarray) and self.last(array.ndim) else array

    def cotangent(self, given: Cotangent, role: str, shape: Shape) -> Array | None:
        """The gradient that an output of the layer is given, in its own arrangement."""
        return self.inward(given(role, self.first(shape)))  # type: ignore[no-any-return]  # an array stays one
