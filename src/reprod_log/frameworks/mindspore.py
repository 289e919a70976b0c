"""MindSpore in pynative mode: cells are watched like modules.

Gradients are what a function returns there, and belong to no parameter. So the one place that every backward pass goes
through is listened to: it knows the parameters that were asked for and what came out for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import mindspore
import numpy as np
from mindspore import nn
from mindspore.common.api import _pynative_executor
from mindspore.ops.composite import base

from reprod_log.errors import CaptureError
from reprod_log.frameworks.contract import Eager, Framework, OwnTensor, TensorFacts, plain_settings
from reprod_log.frameworks.hooks import (
    After,
    AfterBackward,
    Before,
    BeforeBackward,
    Clipped,
    Hook,
    Undo,
    around_module,
    passing,
    replaced,
)
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.nests import flatten
from reprod_log.frameworks.values import each, written_padding
from reprod_log.recording import Array
from reprod_log.recording.entry import dtype_named

_FLOATS = ("Float16", "BFloat16", "Float32", "Float64")
_STATISTICS = ("moving_mean", "moving_variance")
_INHERITED = (
    "training", "requires_grad", "is_top_cell", "arguments_key", "grad_ops_label", "has_bprop",
)  # fmt: skip
"""Plain attributes that every cell has, besides those with a leading underscore."""
_SLOTS: Mapping[str, Mapping[str, str]] = {
    "SGD": {"accum": "momentum_buffer"},
    "Momentum": {"moments": "momentum_buffer"},
    "Adam": {"moment1": "exp_avg", "moment2": "exp_avg_sq"},
    "AdamWeightDecay": {"moments1": "exp_avg", "moments2": "exp_avg_sq"},
    "RMSProp": {"ms": "square_avg"},
}
"""Lists of what an optimizer keeps for its parameters, with the canonical names."""
_KINDS = {"Momentum": "SGD", "AdamWeightDecay": "AdamW", "RMSProp": "RMSprop"}
"""What others call an optimizer."""
_WORDS = {"epsilon": "eps", "use_nesterov": "nesterov", "use_amsgrad": "amsgrad", "decay": "rho"}


class MindSporeTensors:
    def is_tensor(self, value: object) -> bool:
        return isinstance(value, mindspore.Tensor)

    def view(self, tensor: Any) -> tuple[Array, bool]:
        if tensor.dtype == mindspore.bfloat16:
            # Every value of it is one of float32.
            return tensor.astype(mindspore.float32).asnumpy().astype(dtype_named("bfloat16")), True
        return np.array(tensor.asnumpy()), True

    def tensor(self, array: Array, *, like: Any = None, dtype: str | None = None, gradient: bool = False) -> Any:
        return mindspore.Tensor(np.ascontiguousarray(array if dtype is None else array.astype(dtype)))

    def facts(self, tensor: Any) -> TensorFacts:
        return TensorFacts(tuple(tensor.shape), str(tensor.dtype).lower(), "cpu")


class MindSpore(Eager):
    def __init__(self) -> None:
        self._gradients: dict[int, tuple[Any, Any]] = {}
        """The last gradient of a parameter, by its id, with the parameter, so that nobody else gets its number."""
        self._listeners: dict[int, list[Hook]] = {}
        self._outputs: list[Any] = []
        """What the function that is differentiated now has given."""
        self._computed: dict[int, Any] = {}
        """What cells gave while a function is differentiated, by id: tensors themselves do not tell."""

    # cells

    def is_module(self, thing: object) -> bool:
        return isinstance(thing, nn.Cell) and not isinstance(thing, nn.Optimizer)

    def children(self, module: Any) -> list[tuple[str, Any]]:
        return [(name, child) for name, child in module._cells.items() if child is not None]

    def own(self, module: Any) -> list[OwnTensor]:
        # Statistics are parameters of MindSpore that take no gradient.
        return [
            OwnTensor(name, tensor, trained=name not in _STATISTICS)
            for name, tensor in module._params.items()
            if tensor is not None
        ]

    def state_names(self, model: Any) -> dict[str, Any]:
        def below(module: Any, path: str) -> Iterator[tuple[str, Any]]:
            for one in self.own(module):
                yield join(path, one.name), one.tensor
            for name, child in self.children(module):
                yield from below(child, join(path, name))

        return dict(below(model, ""))

    def settings(self, module: Any) -> dict[str, Any]:
        own = {
            name: value for name, value in plain_settings(module, _INHERITED).items() if f"_{name}" not in vars(module)
        }
        if "pad_mode" in own and "kernel_size" in own:
            own["padding"] = _padding(module)
        return own

    def convert(self, module: Any, dtype: str) -> None:
        for parameter in module.get_parameters():
            if parameter.dtype in (mindspore.float16, mindspore.bfloat16, mindspore.float32, mindspore.float64):
                parameter.set_dtype(getattr(mindspore, dtype))

    def stores(self, module: Any) -> Iterator[dict[str, Any] | list[Any]]:
        yield module._params

    # calls, backward passes and steps

    def on_call(self, module: Any, before: Before, after: After) -> Undo:
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

    def on_backward(self, before: BeforeBackward, after: AfterBackward) -> Undo:
        forward, backward = base._pynative_forward_run, base._pynative_func_grad_backward

        def instead_forward(*args: Any, **kwargs: Any) -> Any:
            run_args, outputs = forward(*args, **kwargs)
            self._outputs.append(outputs)
            return run_args, outputs

        def instead_backward(function: Any, operation: Any, weights: Any, *args: Any, **kwargs: Any) -> Any:
            outputs = self._outputs.pop() if self._outputs else ()
            first = outputs[0] if isinstance(outputs, tuple) and outputs else outputs
            before([first] if isinstance(first, mindspore.Tensor) else [], True)
            returned: list[tuple[Any, Any]] | None = None
            try:
                result = backward(function, operation, weights, *args, **kwargs)
                self._deliver(weights, result)
                returned = []
            finally:
                self._computed.clear()
                after(returned)
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

    def on_step(self, optimizer: Any, before: Callable[[bool], None], clipped: Clipped, after: Undo) -> Undo:
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

    def multiply(self, tensor: Any, factors: Array, *, in_place: bool = False) -> Any:
        return tensor * mindspore.Tensor(factors.astype(np.float32))

    # optimizers

    def is_optimizer(self, thing: object) -> bool:
        return isinstance(thing, nn.Optimizer)

    def parameters_of(self, optimizer: Any) -> list[Any]:
        return list(optimizer._parameters)

    def rates(self, optimizer: Any) -> list[float]:
        rate = optimizer.get_lr()
        rates = rate if isinstance(rate, (tuple, list)) else [rate]
        # They are kept as float32, which stand for the shortest number that is nearest to them.
        return list(dict.fromkeys(float(str(one.asnumpy().reshape(()))) for one in rates))

    def describe(self, optimizer: Any) -> dict[str, Any]:
        plain = {name: value for name, value in vars(optimizer).items() if isinstance(value, (bool, int, float))}
        known = {_WORDS.get(name, name): value for name, value in plain.items() if not name.startswith("_")}
        name = type(optimizer).__name__
        group = {
            word: known[word]
            for word in ("eps", "nesterov", "amsgrad", "rho", "dampening", "centered", "momentum")
            if word in known
        }
        momentum = optimizer._params.get("momentum")
        if momentum is not None:
            group["momentum"] = float(str(momentum.asnumpy().reshape(())))
        group["lr"] = self.rates(optimizer)[0]
        return {"type": _KINDS.get(name, name), "groups": [group]}

    def recorded_state(self, optimizer: Any, parameter: Any) -> list[tuple[str, Any, dict[str, Any]]]:
        places = [place for place, one in enumerate(optimizer._parameters) if one is parameter]
        if not places:
            return []
        facts = {"optimizer_step": int(optimizer.global_step.asnumpy().reshape(()))}
        slots = _SLOTS.get(type(optimizer).__name__, {})
        if "momentum" in optimizer._params and not float(optimizer._params["momentum"].asnumpy()):
            slots = {}
        return [(role, getattr(optimizer, name)[places[0]], facts) for name, role in slots.items()]

    def read_slots(self, optimizer: Any, parameter: Any) -> dict[str, Array]:
        return {role: value.asnumpy() for role, value, _ in self.recorded_state(optimizer, parameter)}

    def clear(self, optimizer: Any) -> None:
        pass  # gradients are not kept by parameters

    # the process

    def version(self) -> str:
        return str(mindspore.__version__)

    def seeds(self) -> dict[str, int]:
        seed = mindspore.get_seed()
        return {} if seed is None else {"mindspore": int(seed)}

    def seed(self, number: int) -> None:
        mindspore.set_seed(number)


def _padding(module: Any) -> Any:
    """As torch writes it, where that says the same at every size."""
    window = each(module.kernel_size, 2)
    padding = getattr(module, "padding", 0)
    if str(module.pad_mode).lower() != "pad":
        padding = str(module.pad_mode).lower()
    elif not isinstance(padding, int):
        padding = list(zip(padding[::2], padding[1::2], strict=True))
    return written_padding(padding, window, getattr(module, "stride", 1), getattr(module, "dilation", 1))


FRAMEWORK = Framework("mindspore", MindSporeTensors(), MindSpore())
