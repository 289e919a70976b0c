"""Values in the place of what the modules of a run compute: given outputs, and dropout masks that all sides share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from reprod_log.frameworks import Framework
from reprod_log.frameworks.hooks import Undo
from reprod_log.frameworks.module_tree import kind_of_module, named_modules
from reprod_log.frameworks.nests import mapped
from reprod_log.frameworks.side import Masks, StandIns
from reprod_log.layers.arrangement import canonical_output
from reprod_log.layers.lookup import layer_kind
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
def shared_masks(framework: Framework, model: Any, masks: Masks) -> Iterator[None]:
    """While it lasts, every Dropout module in training mode multiplies its input by the next shared mask."""
    modules = framework.eager

    def attach(module: Any) -> Undo:
        given: list[Any] = []

        def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given.append(next(iter((*args, *kwargs.values())), None))

        def after(output: Any) -> Any:
            tensor, settings = given.pop(), modules.settings(module)
            rate = float(settings.get("p", 0.0))
            if output is None or not modules.is_training(module) or rate == 0.0:
                return None
            mask = masks.draw(tuple(int(size) for size in tensor.shape), rate)
            if settings.get("mode") == "downscale_in_infer":
                # The other way to scale: training only drops values, evaluation scales them down.
                mask = mask * (1.0 - rate)
            return framework.eager.multiply(tensor, mask)

        return framework.eager.on_call(module, before, after)

    with ExitStack() as undo:
        for module in {id(one): one for _, one in named_modules(framework, model)}.values():
            if draws(kind_of_module(framework, module)):
                undo.callback(attach(module))
        yield


def draws(kind: str) -> bool:
    """Whether a layer of this kind draws a mask of random numbers."""
    row = layer_kind(kind)
    return row is not None and row.random
