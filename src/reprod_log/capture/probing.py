"""Probing: a model called with other values than its own, in its tensors, outputs or dropout masks, for the time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

from reprod_log.frameworks import Framework, watchable
from reprod_log.frameworks.contract import LayerCall
from reprod_log.frameworks.hooks import Undo
from reprod_log.frameworks.module_tree import kind_of_module, modules_below, named_modules
from reprod_log.frameworks.nests import mapped
from reprod_log.frameworks.side import NARROW, Masks, StandIns
from reprod_log.frameworks.tensors import cast_floating, to_numpy
from reprod_log.layers.arrangement import canonical_output
from reprod_log.recording import Array, Key


@contextmanager
def stand_ins(framework: Framework, model: Any, arrays: Mapping[int, Array], dtype: str | None) -> Iterator[None]:
    """While it lasts, tensors (by `id`) have other values; with a dtype, all floating tensors are of that dtype.

    The model's own tensors are not touched, so nothing has to be copied back.
    """
    new: dict[int, Any] = {}

    modules = framework.eager
    parts = modules_below(framework, model)
    # Not the working space of a layer, which may never have been filled, nor weights that a hook computes.
    own = {id(one.tensor) for part in parts for one in modules.own(part) if one.has_values}

    def stand_in(tensor: Any) -> Any:
        if id(tensor) not in own:
            return tensor
        if id(tensor) not in new:
            new[id(tensor)] = _stand_in(framework, tensor, arrays.get(id(tensor)), dtype)
        return new[id(tensor)]

    with ExitStack() as undo:
        for part in parts:
            # A weight that a hook computes before each call stands in the module itself.
            for name in modules.kept_weights(part).keys() & vars(part).keys():
                undo.callback(vars(part).__setitem__, name, vars(part)[name])
            for store in modules.stores(part):
                if isinstance(store, dict):
                    undo.callback(store.update, dict(store))
                    store.update({name: stand_in(tensor) for name, tensor in store.items()})
                else:
                    undo.callback(store.__setitem__, slice(None), list(store))
                    store[:] = [stand_in(tensor) for tensor in store]
        yield


def _stand_in(framework: Framework, tensor: Any, array: Array | None, dtype: str | None) -> Any:
    facts = framework.tensors.facts(tensor)
    values = to_numpy(tensor) if array is None else array.reshape(facts.shape)
    floating = facts.dtype.startswith(("float", "bfloat"))
    kept = dtype if dtype is not None and floating else facts.dtype
    made = framework.tensors.tensor(values, like=tensor, dtype=kept)
    # What a library notes on its parameters (whether one is distributed, say), its layers ask for when they run.
    for name in vars(tensor).keys() - vars(made).keys():
        setattr(made, name, vars(tensor)[name])
    return made


@contextmanager
def undisturbed(framework: Framework, model: Any) -> Iterator[None]:
    """While it lasts: evaluation mode, no gradients, no foreign hooks. Mode, hooks and random state are put back."""
    eager = framework.eager
    with ExitStack() as undo:
        undo.callback(eager.set_random_state, eager.random_state())
        undo.enter_context(eager.quiet(model))
        for part in modules_below(framework, model):
            for store in eager.hook_stores(part):
                undo.callback(store.update, dict(store))
                undo.callback(store.clear)
                for key in [key for key, hook in store.items() if not _is_of(framework, type(hook))]:
                    del store[key]
        yield


def _is_of(framework: Framework, cls: type) -> bool:
    return cls.__module__.partition(".")[0] == framework.name


def call_on_arrays(framework: Framework, module: Any, arguments: Any, keywords: Mapping[str, Any]) -> tuple[Array, ...]:
    """Call the module with arrays turned into tensors on its device; all its output tensors as arrays."""
    tensors, modules = framework.tensors, framework.eager
    own = next((one.tensor for part in modules_below(framework, module) for one in modules.own(part)), None)
    kept = "" if own is None else tensors.facts(own).dtype
    # Layers of a narrow type take no wider inputs.
    narrow = kept if kept in NARROW else None

    def convert(_: str, leaf: Any) -> Any:
        if tensors.is_tensor(leaf):
            leaf = to_numpy(leaf)
        return tensors.tensor(cast_floating(leaf, narrow), like=own) if isinstance(leaf, np.ndarray) else leaf

    return arrays_in(framework, module(*mapped(arguments, convert), **mapped(dict(keywords), convert)))


def arrays_in(framework: Framework, structure: Any) -> tuple[Array, ...]:
    """Copies of all tensors of a nest, in order."""
    return tuple(to_numpy(tensor) for _, tensor in framework.tensors_in(structure))


@contextmanager
def each_call(
    framework: Framework, modules: Mapping[str, Any], record: Callable[[LayerCall], object]
) -> Iterator[None]:
    """While it lasts, `record` gets every call of the modules (by path), in the order in which they end."""

    def attach(path: str, module: Any) -> Undo:
        pending: list[tuple[Array, ...]] = []

        def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            pending.append(arrays_in(framework, (args, kwargs)))

        def after(output: Any) -> None:
            inputs = pending.pop()
            if output is not None:
                record(LayerCall(path, inputs, arrays_in(framework, output)))

        return framework.eager.on_call(module, before, after)

    with ExitStack() as undo:
        for path, module in modules.items():
            undo.callback(attach(path, module))
        yield


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


@contextmanager
def deterministic(seed: int = 0) -> Iterator[None]:
    """Inside the block random numbers start from `seed` and every switch that makes runs repeatable is set.

    It holds for Python, numpy and each framework that is loaded. Afterwards seeds, random states and switches are as
    they were. What can only be set before a program starts is not touched.
    """
    with ExitStack() as undo:
        undo.callback(random.setstate, random.getstate())
        undo.callback(np.random.set_state, np.random.get_state())
        random.seed(seed)
        np.random.seed(seed % 2**32)
        for framework in watchable():
            process = framework.eager
            undo.callback(process.set_random_state, process.random_state())
            for switch in process.switches():
                if switch.write is not None and switch.read() not in switch.wanted:
                    undo.callback(switch.write, switch.read())
                    switch.write(switch.wanted[0])
            process.seed(seed)
        yield
