"""twig: a framework of functions over trees of arrays, in one file: nothing has a state, nothing can be hooked.

A model is a value: a function and the tree of arrays it is applied to. Nothing outside this file knows it. The first
half is what a package of its own would be, the second half what makes it known to reprod_log.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from reprod_log.frameworks import contract
from reprod_log.frameworks.contract import Call, Evaluated, Framework, ModuleFacts, StateFacts, TensorFacts
from reprod_log.frameworks.module_tree import info_of, join
from reprod_log.layers.rows import Column, Setting, TensorMap
from reprod_log.layers.transform import SWAP
from reprod_log.recording import Key, current_provenance
from reprod_log.recording.recorder import Recorder

# ---- the framework --------------------------------------------------------------------------------------------------


class Model(NamedTuple):
    """A function and the tree of arrays that it is applied to."""

    function: Any
    tree: dict[str, Any]


@dataclass(frozen=True)
class Linear:
    inputs: int
    outputs: int
    seed: int = 0

    def tree(self):
        random = np.random.default_rng(self.seed)
        kernel = random.normal(size=(self.inputs, self.outputs)).astype(np.float32) / self.inputs**0.5
        return {"kernel": kernel.astype(np.float32), "offset": random.normal(size=self.outputs).astype(np.float32)}

    def apply(self, tree, x):
        """The output, and from its gradient those of the input and of the tree."""
        back = lambda g: (g @ tree["kernel"].T, {"kernel": x.T @ g, "offset": g.sum(0)})  # noqa: E731
        return x @ tree["kernel"] + tree["offset"], back


@dataclass(frozen=True)
class LayerNorm:
    size: int
    tiny: float = 1e-5

    def tree(self):
        return {"gain": np.ones(self.size, np.float32), "shift": np.zeros(self.size, np.float32)}

    def apply(self, tree, x):
        width = np.sqrt(x.var(1, keepdims=True) + x.dtype.type(self.tiny))
        normal = (x - x.mean(1, keepdims=True)) / width

        def back(g):
            h = g * tree["gain"]
            inner = (h - h.mean(1, keepdims=True) - normal * (h * normal).mean(1, keepdims=True)) / width
            return inner, {"gain": (g * normal).sum(0), "shift": g.sum(0)}

        return normal * tree["gain"] + tree["shift"], back


@dataclass(frozen=True)
class Tanh:
    def tree(self):
        return {}

    def apply(self, tree, x):
        y = np.tanh(x)
        return y, lambda g: (g * (1 - y * y), {})


@dataclass(frozen=True)
class Chain:
    """Functions one after the other, by name; what goes between them may be multiplied by a factor."""

    parts: dict[str, Any] = field(hash=False)
    factors: dict[str, float] = field(default_factory=dict)

    def tree(self):
        return {name: part.tree() for name, part in self.parts.items()}

    def model(self):
        return Model(self, self.tree())


@dataclass(frozen=True)
class SGD:
    rate: float


def applied(function, tree, x, tap, path=""):
    """The output and the way back; `tap(path, function, phase, role, array)` gets every value and gradient."""
    tap(path, function, "forward", "input.0", x)
    if isinstance(function, Chain):
        ways, y = {}, x
        for name, part in function.parts.items():
            y, ways[name] = applied(part, tree[name], y, tap, join(path, name))
            y = y * y.dtype.type(function.factors.get(name, 1.0))

        def inner(g):
            gradients = {}
            for name, way in reversed(ways.items()):
                g, gradients[name] = way(g * g.dtype.type(function.factors.get(name, 1.0)))
            return g, gradients
    else:
        y, inner = function.apply(tree, x)
    tap(path, function, "forward", "output", y)

    def back(g):
        tap(path, function, "backward", "output", g)
        return inner(g)

    return y, back


# ---- what reprod_log has to know of it ------------------------------------------------------------------------------


def flat(tree, path=""):
    for name, one in tree.items():
        yield from flat(one, join(path, name)) if isinstance(one, dict) else [(join(path, name), one)]


def changed(tree, change, path=""):
    return {
        name: changed(one, change, join(path, name)) if isinstance(one, dict) else change(join(path, name), one)
        for name, one in tree.items()
    }


def with_settings(function, settings, path=""):
    if isinstance(function, Chain):
        parts = {name: with_settings(part, settings, join(path, name)) for name, part in function.parts.items()}
        return replace(function, parts=parts)
    return replace(function, **settings.get(path, {}))


def at(model, path):
    function, tree = model
    for name in path.split(".") if path else ():
        function, tree = function.parts[name], tree[name]
    return Model(function, tree)


def cast(value, dtype):
    return value.astype(dtype) if dtype and isinstance(value, np.ndarray) and value.dtype.kind == "f" else value


class Tensors:
    """Its tensors are numpy's own arrays, which everybody knows."""

    def is_tensor(self, value):
        return False

    def view(self, tensor):
        return tensor, False

    def tensor(self, array, *, like=None, dtype=None, gradient=False):
        return array.astype(dtype or array.dtype)

    def facts(self, tensor):
        return TensorFacts(tensor.shape, tensor.dtype.name, "cpu")


class Programs(contract.Programs):
    can = frozenset(("gradient", "update", "float64", "isolate"))

    def owns(self, model):
        return isinstance(model, Model)

    def layers(self, model, path="", parent=None):
        function, tree = model
        inside = {n: StateFacts(a.shape, a.dtype.name, True, join(path, n)) for n, a in flat(tree)}
        chained = isinstance(function, Chain)
        classes = (f"twig.{type(function).__name__}",)
        settings = (
            {} if chained else asdict(function) | ({"size": [function.size]} if hasattr(function, "size") else {})
        )
        own = () if chained else tuple(tree)
        found = [ModuleFacts(path, parent, classes, settings, own, inside, {})]
        for name in function.parts if chained else ():
            found += self.layers(at(model, name), join(path, name), path)
        return tuple(found)

    def state(self, model):
        return dict(flat(model.tree))

    def with_state(self, model, arrays):
        return model._replace(tree=changed(model.tree, lambda path, one: cast(arrays.get(path, one), one.dtype)))

    def begun(self, side, scope):
        """The model as a run of this scope begins."""
        model = self.with_state(side.model, scope.state)
        tree = changed(model.tree, lambda _, one: cast(one, scope.dtype))
        return Model(with_settings(model.function, scope.settings), tree)

    def run(self, side, batches, scope):
        recorder = Recorder()
        model = self.begun(side, scope)
        optimizer = None if side.optimizer is None else side.optimizer(model)
        for step, (inputs, targets) in enumerate(batches):

            def put(phase, path, array, role="", call=None, layer="", step=step):
                if scope.phases is None or phase in scope.phases:
                    recorder.add(Key(path, phase, step, call, role, scope.run), np.array(array), layer_type=layer)

            def tap(path, function, phase, role, array, put=put):
                put(phase, path, array, role, 0, type(function).__name__)

            x = cast(np.asarray(next(iter(inputs.values())) if isinstance(inputs, dict) else inputs[0]), scope.dtype)
            put("data", "", x, "input.0", 0)
            outputs, back = applied(*model, x, tap)
            before = self.state(model)
            if side.loss is not None:
                loss, gradient = side.loss_of(outputs, cast(targets, scope.dtype))
                put("loss", "loss", loss)
                gradients = dict(flat(back(gradient)[1]))
                for path, array in gradients.items():
                    put("gradient", path, array, "raw")
            if optimizer is not None:
                gradients |= {path: array.astype(x.dtype) for path, array in scope.gradients.get(step, {}).items()}
                put("lr", "optimizer", np.float64(optimizer.rate), "group0")
                rate = x.dtype.type(optimizer.rate)
                model = self.with_state(model, {path: one - rate * gradients[path] for path, one in before.items()})
            for path, one in self.state(model).items():
                if optimizer is not None:
                    put("update", path, one - before[path])
                put("parameter", path, one)
        described = (
            {}
            if optimizer is None
            else {"optimizers": {"optimizer": {"type": "SGD", "groups": [{"lr": optimizer.rate}]}}}
        )
        recorder.describe(
            current_provenance(framework="twig", extra=described),
            [info_of(one, "twig") for one in self.layers(side.model)],
        )
        return recorder.close()

    def calls(self, side, batch):
        found = {}

        def tap(path, function, phase, role, array):
            if role == "output":
                found[path] = Call(path, (given.pop(path),), {}, {"output": array.shape})
            else:
                given[path] = array

        given = {}
        applied(*side.model, np.asarray(batch[0][0]), tap)
        return list(found.values())

    def call(self, side, path, call, scope, cotangent):
        function, tree = at(self.begun(side, scope), path)
        x = cast(next(iter((*call.args, *call.kwargs.values()))), scope.dtype)
        output, back = applied(function, tree, x, lambda *_: None)
        weights = cotangent("output", output.shape)
        if weights is None:
            return Evaluated({"output": output}, layer_type=type(function).__name__)
        inner, gradients = back(weights.astype(output.dtype))
        return Evaluated(
            {"output": output}, {"input.0": inner}, dict(flat(gradients)), layer_type=type(function).__name__
        )


PROGRAMS = Programs()
FRAMEWORK = Framework(
    "twig",
    Tensors(),
    programs=PROGRAMS,
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
