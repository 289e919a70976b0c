"""gear: a third framework in one file: numpy arrays, modules with gradients written by hand, and what is asked of it.

Nothing outside this file knows it. The first half is what a package of its own would be, the second half what makes it
known to reprod_log.
"""

from __future__ import annotations

import numpy as np

from reprod_log.frameworks.contract import Eager, Framework, OwnTensor, TensorFacts
from reprod_log.frameworks.hooks import Hook, around_backward, passing, replaced
from reprod_log.layers.rows import Column, Setting, TensorMap
from reprod_log.layers.transform import SWAP

# ---- the framework --------------------------------------------------------------------------------------------------


class Tensor:
    """An array that remembers what it was computed from: pairs of a tensor and how its gradient follows."""

    def __init__(self, array, parents=(), trained=False):
        self.array, self.parents, self.grad, self.hooks = np.asarray(array), parents, None, []
        self.needs_grad = trained or any(one.needs_grad for one, _ in parents)

    shape = property(lambda self: self.array.shape)

    def __add__(self, other):
        other = other if isinstance(other, Tensor) else Tensor(np.broadcast_to(other, self.shape))
        return Tensor(self.array + other.array, ((self, lambda g: g), (other, lambda g: g)))

    def __sub__(self, other):
        return self + other * -1.0

    def __mul__(self, other):
        factor = other.array if isinstance(other, Tensor) else np.asarray(other, self.array.dtype)
        other = other if isinstance(other, Tensor) else Tensor(factor)
        return Tensor(self.array * factor, ((self, lambda g: g * factor), (other, lambda g: g * self.array)))

    def sum(self):
        return Tensor(self.array.sum(), ((self, lambda g: np.broadcast_to(g, self.shape)),))

    def mean(self):
        return self.sum() * (1.0 / self.array.size)

    def backward(self):
        order, seen = [], set()

        def visit(tensor):
            if id(tensor) not in seen and tensor.needs_grad:
                seen.add(id(tensor))
                for parent, _ in tensor.parents:
                    visit(parent)
                order.append(tensor)

        visit(self)
        gradients = {id(self): np.ones(self.shape, self.array.dtype)}
        for tensor in reversed(order):
            gradient = gradients[id(tensor)]
            for hook in tensor.hooks:
                hook(Tensor(gradient))
            if not tensor.parents:
                tensor.grad = Tensor(gradient if tensor.grad is None else tensor.grad.array + gradient)
            for parent, follow in tensor.parents:
                if parent.needs_grad:
                    gradients[id(parent)] = gradients.get(id(parent), 0) + follow(gradient)


class Module:
    training = True

    def __call__(self, *args, **kwargs):
        hooks = list(vars(self).get("hooks", {}).values())
        for before, _ in hooks:
            before(args, kwargs)
        output = None
        try:
            output = self.forward(*args, **kwargs)
        finally:
            for _, after in hooks:
                other = after(output)
                output = output if other is None else other
        return output


class Linear(Module):
    """The weight lies as (inputs, outputs)."""

    def __init__(self, inputs, outputs, seed=0):
        random = np.random.default_rng(seed)
        self.kernel = Tensor(random.normal(size=(inputs, outputs)).astype(np.float32) / inputs**0.5, trained=True)
        self.offset = Tensor(random.normal(size=outputs).astype(np.float32), trained=True)

    def forward(self, x):
        rows, weight = x.array, self.kernel.array
        ways = ((x, lambda g: g @ weight.T), (self.kernel, lambda g: rows.T @ g), (self.offset, lambda g: g.sum(0)))
        return Tensor(rows @ weight + self.offset.array, ways)


class LayerNorm(Module):
    def __init__(self, size, tiny=1e-5):
        self.tiny, self.size = tiny, [size]
        self.gain, self.shift = (Tensor(np.full(size, v, np.float32), trained=True) for v in (1, 0))

    def forward(self, x):
        width = np.sqrt(x.array.var(1, keepdims=True) + x.array.dtype.type(self.tiny))
        normal = (x.array - x.array.mean(1, keepdims=True)) / width

        def back(g):
            g = g * self.gain.array
            return (g - g.mean(1, keepdims=True) - normal * (g * normal).mean(1, keepdims=True)) / width

        ways = ((x, back), (self.gain, lambda g: (g * normal).sum(0)), (self.shift, lambda g: g.sum(0)))
        return Tensor(normal * self.gain.array + self.shift.array, ways)


class Tanh(Module):
    def forward(self, x):
        y = np.tanh(x.array)
        return Tensor(y, ((x, lambda g: g * (1 - y * y)),))


class SGD:
    def __init__(self, model, rate):
        self.parameters, self.rate = [one.tensor for _, m in walk(model) for one in PARTS.own(m)], rate

    def step(self):
        for one in self.parameters:
            if one.grad is not None:
                one.array = one.array - one.array.dtype.type(self.rate) * one.grad.array


def walk(module, path=""):
    yield path, module
    for name, child in PARTS.children(module):
        yield from walk(child, f"{path}.{name}".strip("."))


# ---- what reprod_log has to know of it ------------------------------------------------------------------------------


class Tensors:
    def is_tensor(self, value):
        return isinstance(value, Tensor)

    def view(self, tensor):
        return tensor.array, False

    def tensor(self, array, *, like=None, dtype=None, gradient=False):
        floating = array.dtype.kind == "f"
        return Tensor(array.astype(dtype or array.dtype), trained=gradient and floating)

    def facts(self, tensor):
        return TensorFacts(tensor.shape, tensor.array.dtype.name, "cpu")


class Gear(Eager):
    def is_module(self, thing):
        return isinstance(thing, Module)

    def children(self, module):
        return [(name, one) for name, one in vars(module).items() if isinstance(one, Module)]

    def own(self, module):
        return [OwnTensor(name, one, trained=True) for name, one in vars(module).items() if isinstance(one, Tensor)]

    def state_names(self, model):
        return {f"{path}.{one.name}".strip("."): one.tensor for path, m in walk(model) for one in self.own(m)}

    def convert(self, module, dtype):
        for tensor in self.state_names(module).values():
            tensor.array = tensor.array.astype(dtype)

    def stores(self, module):
        yield vars(module)

    def on_call(self, module, before, after):
        pair = Hook(before), Hook(after)
        hooks = vars(module).setdefault("hooks", {})
        hooks[id(pair)] = pair
        return lambda: hooks.pop(id(pair), None)

    def on_gradient(self, tensor, call):
        if not tensor.needs_grad:
            return None
        hook = Hook(call)
        tensor.hooks.append(hook)
        return passing if tensor.parents else hook.silence

    def on_backward(self, before, after):
        return around_backward(Tensor, (("backward", True),), lambda args, _: [args[0]], before, after)

    def on_step(self, optimizer, before, clipped, after):
        step = optimizer.step

        def instead():
            before(False)
            step()
            after()

        return replaced(optimizer, "step", instead)

    def is_computed(self, tensor):
        return bool(tensor.parents)

    def takes_gradient(self, tensor):
        return tensor.needs_grad

    def gradient(self, tensor):
        return tensor.grad

    def set_gradient(self, tensor, array):
        tensor.grad = None if array is None else Tensor(array.astype(tensor.array.dtype))

    def backward(self, compute):
        value = compute()
        value.backward()
        return value

    def write(self, tensor, array):
        tensor.array = np.array(array, tensor.array.dtype).reshape(tensor.shape)

    def cast(self, tensor, dtype):
        return Tensor(tensor.array.astype(dtype)) if tensor.array.dtype.kind == "f" else tensor

    def multiply(self, tensor, factors, *, in_place=False):
        return tensor * factors

    def is_optimizer(self, thing):
        return isinstance(thing, SGD)

    def parameters_of(self, optimizer):
        return optimizer.parameters

    def rates(self, optimizer):
        return [optimizer.rate]

    def describe(self, optimizer):
        return {"type": "SGD", "groups": [{"lr": optimizer.rate}], "parameters_in_groups": [len(optimizer.parameters)]}

    def clear(self, optimizer):
        for one in optimizer.parameters:
            one.grad = None


PARTS = Gear()
FRAMEWORK = Framework(
    "gear",
    Tensors(),
    PARTS,
    columns={
        "linear": Column(("Linear",), (TensorMap("kernel", ("weight",), SWAP), TensorMap("offset", ("bias",)))),
        "layernorm": Column(
            ("LayerNorm",),
            (TensorMap("gain", ("weight",)), TensorMap("shift", ("bias",))),
            settings={"eps": Setting("tiny"), "normalized_shape": Setting("size")},
        ),
        "tanh": Column(("Tanh",)),
    },
)
