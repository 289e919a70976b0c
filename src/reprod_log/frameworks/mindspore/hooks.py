"""Calls, backward passes and steps of MindSpore in pynative mode.

Gradients are what a function returns there, and belong to no parameter. So the one place that every backward pass goes
through is listened to: it knows the parameters that were asked for and what came out for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import mindspore
import numpy as np
from mindspore import nn
from mindspore.common.api import _pynative_executor
from mindspore.ops.composite import base

from reprod_log.errors import CaptureError
from reprod_log.frameworks import contract
from reprod_log.frameworks.hooks import Hook, Undo, around_module, passing, replaced
from reprod_log.frameworks.nests import flatten
from reprod_log.recording import Array

_FLOATS = ("Float16", "BFloat16", "Float32", "Float64")


class MindSporeHooks(contract.Hooks):
    def __init__(self) -> None:
        self._gradients: dict[int, tuple[Any, Any]] = {}
        """The last gradient of a parameter, by its id, with the parameter, so that nobody else gets its number."""
        self._listeners: dict[int, list[Hook]] = {}
        self._outputs: list[Any] = []
        """What the function that is differentiated now has given."""
        self._computed: dict[int, Any] = {}
        """What cells gave while a function is differentiated, by id: tensors themselves do not tell."""

    def on_call(
        self,
        module: Any,
        before: Callable[[tuple[Any, ...], dict[str, Any]], None],
        after: Callable[[Any], Any],
    ) -> Undo:
        def leave(output: Any) -> Any:
            if _pynative_executor.grad_flag():
                self._computed |= {id(one): one for _, one in flatten(output) if isinstance(one, mindspore.Tensor)}
            return after(output)

        return around_module(nn.Cell, self.is_tracing, module, before, leave)

    def on_gradient(self, tensor: Any, call: Callable[[Any], Any]) -> Undo | None:
        hook = Hook(call)
        if isinstance(tensor, mindspore.Parameter):
            if not tensor.requires_grad:
                return None
            self._listeners.setdefault(id(tensor), []).append(hook)
            return hook.silence
        if not self.is_computed(tensor):
            return None
        tensor.register_hook(lambda gradient: hook(gradient))
        return passing

    def on_backward(self, before: Callable[[Sequence[Any], bool], None], after: Callable[[bool], None]) -> Undo:
        forward, backward = base._pynative_forward_run, base._pynative_func_grad_backward

        def instead_forward(*args: Any, **kwargs: Any) -> Any:
            run_args, outputs = forward(*args, **kwargs)
            self._outputs.append(outputs)
            return run_args, outputs

        def instead_backward(function: Any, operation: Any, weights: Any, *args: Any, **kwargs: Any) -> Any:
            outputs = self._outputs.pop() if self._outputs else ()
            first = outputs[0] if isinstance(outputs, tuple) and outputs else outputs
            before([first] if isinstance(first, mindspore.Tensor) else [], True)
            well = False
            try:
                result = backward(function, operation, weights, *args, **kwargs)
                self._deliver(weights, result)
                well = True
            finally:
                self._computed.clear()
                after(well)
            return result

        undo = ExitStack()
        undo.callback(replaced(base, "_pynative_forward_run", instead_forward))
        undo.callback(replaced(base, "_pynative_func_grad_backward", instead_backward))
        return undo.close

    def _deliver(self, weights: Any, result: Any) -> None:
        """Give each parameter what came out for it: the last of the results where inputs were asked for as well."""
        if weights is None or not len(weights):
            return
        own = [weights] if isinstance(weights, mindspore.Parameter) else list(weights)
        found = [result] if isinstance(result, mindspore.Tensor) else list(result)
        if len(found) == 2 and isinstance(found[1], (tuple, list)):
            found = list(found[1])
        if len(found) != len(own):
            raise CaptureError(f"a backward pass gave {len(found)} gradients for {len(own)} parameters")
        for parameter, gradient in zip(own, found, strict=True):
            self._gradients[id(parameter)] = (parameter, gradient)
            for hook in self._listeners.get(id(parameter), ()):
                hook(gradient)

    def on_step(
        self,
        optimizer: Any,
        before: Callable[[bool], None],
        clipped: Callable[[list[tuple[Any, Any]]], None],
        after: Callable[[], None],
    ) -> Undo:
        def enter(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            # What the optimizer is given is what it uses, whatever was done to the gradients meanwhile.
            given = args[0] if args else kwargs.get("gradients", ())
            for parameter, gradient in zip(optimizer._parameters, given, strict=False):
                self._gradients[id(parameter)] = (parameter, gradient)
            before(False)

        def leave(output: Any) -> None:
            after()

        return around_module(nn.Cell, self.is_tracing, optimizer, enter, leave)

    def is_computed(self, tensor: Any) -> bool:
        return id(tensor) in self._computed and str(tensor.dtype) in _FLOATS

    def takes_gradient(self, tensor: Any) -> bool:
        return bool(getattr(tensor, "requires_grad", False))

    def gradient(self, tensor: Any) -> Any | None:
        return self._gradients.get(id(tensor), (None, None))[1]

    def set_gradient(self, tensor: Any, array: Array | None) -> None:
        if array is None:
            self._gradients.pop(id(tensor), None)
        else:
            self._gradients[id(tensor)] = (tensor, mindspore.Tensor(np.asarray(array)))

    def backward(self, compute: Callable[[], Any]) -> Any:
        raise CaptureError("models of mindspore are recorded in a loop of one's own: watch them, or reprod run")

    def write(self, tensor: Any, array: Array) -> None:
        tensor.set_data(mindspore.Tensor(np.ascontiguousarray(array), tensor.dtype))

    def cast(self, tensor: Any, dtype: str) -> Any:
        return tensor.astype(getattr(mindspore, dtype)) if str(tensor.dtype) in _FLOATS else tensor

    def multiply(self, tensor: Any, factors: Array) -> Any:
        return tensor * mindspore.Tensor(factors.astype(np.float32))
