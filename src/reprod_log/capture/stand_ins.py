"""Values in the place of what the modules of a run compute: given outputs, and dropout masks that all sides share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from reprod_log.frameworks import Framework
from reprod_log.frameworks.module_tree import kind_of_module, named_modules
from reprod_log.frameworks.nests import mapped
from reprod_log.frameworks.side import Masks, StandIns
from reprod_log.layers.arrangement import canonical_output
from reprod_log.recording import Array, Key


class Feeding:
    """Puts stand-ins into a run; what the run itself computes is recorded first."""

    def __init__(self, framework: Framework, values: StandIns, step: Callable[[], int]) -> None:
        self._framework, self._values, self._step = framework, values, step
        self._calls: Counter[str] = Counter()
        self._counted = -1

    @contextmanager
    def attached(self, model: Any, parameters: Mapping[str, Any]) -> Iterator[None]:
        """While it lasts, the modules of the model give what stands in for their outputs."""
        with ExitStack() as undo:
            for path, module in named_modules(self._framework, model):
                after = partial(self._after, path, module)
                undo.callback(self._framework.eager.on_call(module, partial(self._before, parameters), after))
            yield

    def _before(self, parameters: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """At the first call of a step, give the parameters what they should be when it begins."""
        step = self._step()
        if step == self._counted:
            return
        self._counted = step
        self._calls.clear()
        for path, array in self._values.parameters.get(step, {}).items():
            if path in parameters:
                self._framework.eager.write(parameters[path], array)

    def _after(self, path: str, module: Any, output: Any) -> Any:
        step, call = self._counted, self._calls[path]
        self._calls[path] += 1
        if output is None or canonical_output(kind_of_module(self._framework, module), output) is not output:
            # Its roles are not those of what it gives here.
            return None
        return mapped(output, partial(self._instead, path, step, call), "output")

    def _instead(self, path: str, step: int, call: int, role: str, tensor: Any) -> Any:
        array = self._values.outputs.get(Key(path, "forward", step, call, role))
        framework, hooks = self._framework, self._framework.eager
        if array is None or not framework.tensors.is_tensor(tensor) or tuple(tensor.shape) != array.shape:
            return tensor
        gradient = self._values.gradients.get(Key(path, "backward", step, call, role))
        if gradient is not None:
            hooks.on_gradient(tensor, partial(self._gradient, gradient))
        # A tensor of its own: what a module gives may be what it was given, or be kept for its backward pass.
        made = tensor * 1
        hooks.write(made, array)
        return made

    def _gradient(self, array: Array, computed: Any) -> Any:
        return self._framework.tensors.tensor(array, like=computed) if tuple(computed.shape) == array.shape else None


@contextmanager
def shared_masks(framework: Framework, masks: Masks) -> Iterator[None]:
    """While it lasts, every dropout multiplies what it is given by the next shared mask.

    Which one is the next is kept in the seed of the framework's own random numbers: code that puts these back to run a
    part a second time (checkpointing) is given the same masks again.
    """
    eager = framework.eager
    begun: dict[int, int] = {}

    def draw(shape: tuple[int, ...], rate: float) -> Array:
        seed = next(iter(eager.seeds().values()))
        masks.call = seed - begun.setdefault(masks.step, seed)
        eager.seed(seed + 1)
        return masks.draw(shape, rate)

    with eager.masked(draw):
        yield
