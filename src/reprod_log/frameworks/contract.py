"""The contract between reprod_log and a framework: the only types that a framework's folder has to know.

A framework is one value, `FRAMEWORK`, made of the parts that are described here by protocols.

    tensors               every framework: its tensors as arrays
    parts                 modules that run eagerly: one object of a class derived from Eager, operators in it if it can
    programs              functions over trees and graphs instead: models as values, and how these run
    distributed, export   optional

A framework with `parts` is run by capture/eager.py; one with `programs` runs by itself, and writes five functions
(owns, layers, state, with_state, run) and what else it `can`. Where models are arrays over a tree of modules,
programs.py writes these, and the framework a Model and an Engine (trees.py).
"""

from __future__ import annotations

import hashlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from reprod_log.errors import CaptureError, listed
from reprod_log.frameworks.hooks import (
    After,
    AfterBackward,
    AnyBefore,
    Before,
    BeforeBackward,
    Clipped,
    ScalerMethods,
    Undo,
    passing,
)
from reprod_log.frameworks.nests import flatten, mapped
from reprod_log.recording import Array

if TYPE_CHECKING:
    from reprod_log.frameworks.side import Scope, Side
    from reprod_log.layers.optimizers import OptimizerColumn, Slot
    from reprod_log.layers.rows import Column
    from reprod_log.recording import ModuleInfo, Recording
    from reprod_log.recording.shards import MeshPlace, Shard

Shape = tuple[int, ...]

Capability = Literal["watch", "gradient", "update", "float64", "isolate", "operators", "emulate"]
"""What can be done with a model besides running it: what a framework cannot do is evidence that is missing."""
_EAGER: frozenset[Capability] = frozenset(("watch", "gradient", "update", "float64", "isolate"))


# ---- values ---------------------------------------------------------------------------------------------------------


class TensorFacts(NamedTuple):
    """What is known of a tensor without its values."""

    shape: Shape
    dtype: str
    """float32, bfloat16 …: the words of a recording."""
    device: str
    """cpu, cuda:0, gpu:0 …"""


class OwnTensor(NamedTuple):
    """One tensor that a module itself keeps, not its children."""

    name: str
    tensor: Any
    trained: bool
    """Whether it is a parameter, also a frozen one; running statistics are not."""
    persistent: bool = True
    """Whether a checkpoint has it."""
    counter: bool = False
    """A number of batches and the like: transferred with the weights, not recorded."""
    has_values: bool = True
    """False for a parameter whose shape the first call will tell."""


@dataclass(frozen=True)
class KeptForm:
    """A weight that a layer keeps in another form: which form, and over which axis of the stored weight (None: all)."""

    form: Literal["WeightNorm", "SpectralNorm"]
    axis: int | None


Rounding = Literal["packed", "none", "declared", "fitted"]
"""How layers of a quantised model run: as they are packed; without rounding; with weights and activations rounded as
they declare; rounded in the same way, with ranges that fit the values."""


class Scheme(NamedTuple):
    """How a layer is quantised."""

    dtype: str
    """int8, float8_e4m3fn …: what its weights are kept in."""
    activations: Literal["", "dynamic", "static"]
    """Whether what it takes or gives is rounded as well, in a range of each batch or a fixed one."""


@dataclass(frozen=True)
class ParameterTreatment:
    """The rate and the decay that one parameter gets, whichever of the framework's ways they were set by."""

    parameter: Any
    lr: float
    l1: float = 0.0
    """Coefficient of sign(w), added to the gradient."""
    l2: float = 0.0
    """Coefficient of w, added to the gradient."""
    decoupled: float = 0.0
    """Coefficient of w, taken off beside the gradient's update (AdamW)."""


@dataclass(frozen=True)
class Switch:
    """A setting of a framework that decides whether a run can be repeated bit for bit."""

    name: str
    wanted: tuple[Any, ...]
    """Values that do, the usual one first."""
    read: Callable[[], Any]
    write: Callable[[Any], None] | None
    """None when it only takes effect before the framework starts."""
    why: str = ""


@dataclass(frozen=True)
class Call:
    """What a region was given at its first call, with arrays in place of tensors."""

    path: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: Mapping[str, Shape]
    """Shapes of the floating outputs by role."""
    exchanged: bool = False
    """Whether the module to be run takes time and batch in the opposite order."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """What the reference calls each argument, where that is not what it is called here."""
    shared: frozenset[str] | None = None
    """The outputs that the partner gives as well, which alone are given gradients; None: all."""

    def changed(self, change: Callable[[Array], Array]) -> Call:
        """The same call with `change(array)` in the place of every array."""

        def convert(_: str, leaf: Any) -> Any:
            return change(leaf) if isinstance(leaf, np.ndarray) else leaf

        return replace(self, args=mapped(self.args, convert), kwargs=mapped(dict(self.kwargs), convert))


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer: what it got and what it returned, flattened and copied."""

    path: str
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]

    @cached_property
    def input_digest(self) -> bytes:
        """Equal for calls that got exactly the same values."""
        digest = hashlib.blake2b(digest_size=16)
        for array in self.inputs:
            digest.update(f"{array.shape}{array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.digest()


@dataclass(frozen=True)
class StateFacts:
    """One tensor of a model's state, without its values."""

    shape: Shape | None
    """None for a parameter whose shape the first call will tell."""
    dtype: str
    trained: bool
    """Whether it is a parameter, a frozen one too."""
    first: str
    """The first name of the same tensor: equal for tied weights."""


@dataclass(frozen=True)
class ModuleFacts:
    """One module of a model: plain values only."""

    path: str
    parent: str | None
    """The path of the module around it."""
    classes: tuple[str, ...]
    """Dotted names of its class and of those that this descends from."""
    settings: Mapping[str, Any]
    """Its plain attributes, without leading underscores."""
    own: tuple[str, ...]
    """Names of its own tensors that a checkpoint has."""
    inside: Mapping[str, StateFacts]
    """Its own tensors and those of everything inside it, by name within the module."""
    kept: Mapping[str, KeptForm]
    """Weights that are kept in weight norm's or spectral norm's form."""
    aliases: tuple[str, ...] = ()
    """Further paths of the same module."""


@dataclass(frozen=True)
class Evaluated:
    """What a region or a function gave when it was run alone."""

    outputs: Mapping[str, Array]
    """By role."""
    input_gradients: Mapping[str, Array] = field(default_factory=dict)
    """By role; empty when nothing of the output has a gradient."""
    parameter_gradients: Mapping[str, Array] = field(default_factory=dict)
    """By path inside the region."""
    buffers: Mapping[str, Array] = field(default_factory=dict)
    """Floating buffers after the call, by path inside the region."""
    layer_type: str = ""


@dataclass(frozen=True)
class Operator:
    """One call: its name, what went in and came out, and the line of the user's code that made it."""

    name: str
    inputs: tuple[int, ...]
    """Numbers of tensors in the trace."""
    outputs: tuple[int, ...]
    line: str
    given: str = ""
    """Its plain arguments."""
    written: str = ""
    """For a function with a backward pass written by hand: its class and where that is."""


@dataclass
class Trace:
    """Every operator of one forward pass of a layer or a loss, in order."""

    operators: list[Operator] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)
    """Every tensor in float64, by its number."""
    values: list[Array] = field(default_factory=list)
    """The same, sorted."""
    gradients: dict[int, Array] = field(default_factory=dict)
    """Sorted gradients of the tensors that have one, by their numbers."""
    results: tuple[int, ...] = ()
    """Numbers of what came out in the end."""
    calls: list[Callable[[Mapping[int, Array]], Sequence[Array]]] = field(default_factory=list)
    """What each operator gives with these values for some of its inputs; none where the framework cannot tell."""

    def behind(self, numbers: Collection[int]) -> list[Operator]:
        """The operators that these tensors were computed by, in order."""
        needed, found = set(numbers), []
        for one in reversed(self.operators):
            if not needed.isdisjoint(one.outputs):
                needed.update(one.inputs)
                found.append(one)
        return found[::-1]

    def to_results(self) -> Trace:
        """The trace without operators that nothing that came out in the end depends on; what they made is empty."""
        behind = set(map(id, self.behind(self.results)))
        both = [(one, call) for one, call in zip(self.operators, self.calls, strict=True) if id(one) in behind]
        gone = {number for one in self.operators if id(one) not in behind for number in one.outputs}
        arrays, values = (
            [np.empty(0) if number in gone else one for number, one in enumerate(of)]
            for of in (self.arrays, self.values)
        )
        operators, calls = [one for one, _ in both], [call for _, call in both]
        return replace(self, operators=operators, calls=calls, arrays=arrays, values=values)


@dataclass(frozen=True)
class Kernel:
    """One kernel of a program: what it was given and gave, by number, and where it was called."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    path: str
    """The module whose code called it."""
    line: str


@dataclass
class Program:
    """Every kernel of one forward pass in float64. Its tensors have numbers."""

    kernels: list[Kernel] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)
    """Every tensor by its number."""
    weights: dict[int, str] = field(default_factory=dict)
    """Parameters and buffers: number to name."""
    given: dict[str, int] = field(default_factory=dict)
    """The batch, by role."""
    results: dict[str, int] = field(default_factory=dict)
    """What came out, by role; the loss is `loss`."""
    written: dict[int, int] = field(default_factory=dict)
    """Tensors that were written in place: the number before for the number after."""

    @abstractmethod
    def again(self, place: int, tensors: Mapping[int, Any]) -> list[Any]:
        """The results of the kernel at this place with other tensors for some of its inputs."""
        raise NotImplementedError

    @abstractmethod
    def tensor(self, array: Array) -> Any:
        """A tensor that `again` takes."""
        raise NotImplementedError

    @abstractmethod
    def array(self, tensor: Any) -> Array:
        """Its values."""
        raise NotImplementedError


def plain_settings(module: Any, inherited: Collection[str] = ("training",)) -> dict[str, Any]:
    """The plain attributes of a module without leading underscores; not those that every module has."""
    found = {name: _plain(value) for name, value in vars(module).items() if name not in inherited}
    return {name.lstrip("_"): value for name, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    """The value as JSON has it; None when it is not a plain setting."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)) and all(isinstance(item, (bool, int, float, str)) for item in value):
        return list(value)
    return None


# ---- the parts ------------------------------------------------------------------------------------------------------


class Tensors(Protocol):
    """All that a framework of tensors only has."""

    def is_tensor(self, value: object) -> bool:
        """Whether this framework owns the tensor."""

    def view(self, tensor: Any) -> tuple[Array, bool]:
        """The values as numpy has them, and whether the array is fresh (False: it may share the tensor's memory).

        bfloat16 and the float8 dtypes come in the dtypes of ml_dtypes. Raises UsageError for what has no numpy form.
        """

    def tensor(self, array: Array, *, like: Any = None, dtype: str | None = None, gradient: bool = False) -> Any:
        """A new tensor with these values, on the device of the tensor `like` and in another dtype if given.

        With `gradient` a floating one collects its own gradient.
        """

    def facts(self, tensor: Any) -> TensorFacts: ...


class Eager(Protocol):
    """A framework whose modules run eagerly. Only frameworks/ and capture/ call these functions.

    Those with a body are right for a framework without wrappers, compilers, gradient scalers and random streams.
    """

    operators: Operators | None = None

    # what a model consists of

    def is_module(self, thing: object) -> bool: ...

    def children(self, module: Any) -> list[tuple[str, Any]]:
        """The direct children by name, in the order of registration, repeated ones too."""

    def own(self, module: Any) -> list[OwnTensor]:
        """The module's own parameters and buffers; none that it derives from others at each call."""

    def state_names(self, model: Any) -> dict[str, Any]:
        """Every tensor of the model's state under every name that its own files would have."""

    def settings(self, module: Any) -> dict[str, Any]:
        """Its plain attributes (numbers, flags, text, lists of these), without leading underscores."""
        return plain_settings(module)

    def set_setting(self, module: Any, name: str, value: Any) -> None:
        """Give it another setting, under the name that `settings` has."""
        for attribute in (name, f"_{name}"):
            if attribute in vars(module):
                kept = vars(module)[attribute]
                setattr(module, attribute, type(kept)(value) if isinstance(kept, (tuple, list)) else value)

    def is_training(self, module: Any) -> bool:
        return bool(getattr(module, "training", False))

    def wrapped(self, module: Any) -> Any | None:
        """The module inside, when this one only wraps it (data parallel, compiled) and its name should not show."""
        return None

    def opaque(self, module: Any) -> str:
        """The id of the reason why calls of its children cannot be recorded ("it is compiled"); '' when they can."""
        return ""

    def caveat(self, module: Any) -> str:
        """The id of a note (with places for paths and type) on what recording it changes; '' when nothing."""
        return ""

    def kept_weights(self, module: Any) -> dict[str, KeptForm]:
        """Weights of the module that are kept in weight norm's or spectral norm's form, by name."""
        return {}

    def refresh(self, module: Any) -> None:
        """Recompute weights that the module derives from what was just written."""
        return

    def convert(self, module: Any, dtype: str) -> None:
        """Turn its floating parameters and buffers into `dtype`, in place."""

    def readable(self, model: Any, call: Callable[[Any], Any]) -> Any | None:
        """A copy of a quantised model whose layers show their weights and run in every `Rounding`, packed at first;
        None for a model without such layers. `call` runs a model once. UsageError when a layer cannot be read."""
        return None

    def schemes(self, model: Any) -> dict[str, Scheme]:
        """How the layers of a readable model are quantised, by path."""
        return {}

    def set_rounding(self, model: Any, rounding: Rounding) -> None:
        """Have a readable model round in this way from now on, in place."""
        return

    def make_copyable(self, model: Any) -> None:
        """Put what keeps a model from being copied into a form that can be."""
        return

    def stores(self, module: Any) -> Iterator[dict[str, Any] | list[Any]]:
        """The containers in which the module itself keeps its tensors, so that others can stand in for them."""

    def hook_stores(self, module: Any) -> Iterator[dict[Any, Any]]:
        """The containers in which it keeps the hooks around its calls."""
        yield from ()

    def quiet(self, model: Any) -> AbstractContextManager[None]:
        """While it lasts: evaluation mode, no gradients, no fused or compiled path."""
        return nullcontext()

    # what happens while a program runs, and its gradients; every `on_…` gives back how to undo it

    def on_call(self, module: Any, before: Before, after: After) -> Undo:
        """Have `before(args, kwargs)` and `after(output)` called around each call; `after(None)` when it raises.

        What `after` returns, if not None, stands in for the output.
        """

    def on_any_call(self, before: AnyBefore) -> Undo:
        """Have `before(module, args, kwargs)` called before any module of the process is called.

        It may give other arguments to call it with.
        """
        return passing

    def on_gradient(self, tensor: Any, call: Callable[[Any], Any]) -> Undo | None:
        """Have `call` given the gradient of `tensor` when backward computes it; None when none will come.

        What `call` returns, if not None, stands in for the gradient.

        For a parameter that is what the pass adds to its gradient. The undo is `passing` when the hook dies with the
        graph.
        """

    def on_backward(self, before: BeforeBackward, after: AfterBackward) -> Undo:
        """Have `before(tensors, accumulates)` and `after(returned)` called around each backward pass.

        `accumulates` is False for passes that only return gradients: `returned` has these, each with its tensor. It is
        None when the pass raised.
        """

    def on_step(self, optimizer: Any, before: Callable[[bool], None], clipped: Clipped, after: Undo) -> Undo:
        """Have `before(has_closure)` and `after()` called around each step.

        `clipped` gets parameters with the gradients that are really used, when the optimizer itself clips them.
        """

    def on_new_optimizer(self, found: Callable[[Any], None]) -> Undo:
        """Have `found(optimizer)` called for every optimizer made from now on."""
        return passing

    def scaler(self) -> ScalerMethods | None:
        """Where its gradient scaler can be listened to."""
        return None

    def is_tracing(self) -> bool:
        """Whether modules are being traced or compiled now, so that calls compute nothing."""
        return False

    def is_computed(self, tensor: Any) -> bool:
        """Whether gradients would flow back from it into what it was computed from; never so for a batch of data."""

    def in_place_version(self, tensor: Any) -> int:
        """How often the tensor was written in place: after a write, its gradient is that of another value."""
        return 0

    def takes_gradient(self, tensor: Any) -> bool: ...

    def gradient(self, tensor: Any) -> Any | None:
        """Its gradient as it stands now, dense."""

    def set_gradient(self, tensor: Any, array: Array | None) -> None:
        """Replace its gradient, or forget it."""

    def backward(self, compute: Callable[[], Any]) -> Any:
        """The scalar that `compute` gives; the gradients are then with their parameters."""

    def write(self, tensor: Any, array: Array) -> None:
        """Overwrite its values in place; dtype, device and trainability stay."""

    def cast(self, tensor: Any, dtype: str) -> Any:
        """The tensor in another dtype when it is a floating one, else the tensor itself."""

    def multiply(self, tensor: Any, factors: Array, *, in_place: bool = False) -> Any:
        """Element by element, with gradient."""

    def masked(self, draw: Draw) -> AbstractContextManager[None]:
        """While it lasts, every dropout, of a layer or called by itself, multiplies by the mask drawn for it."""
        return nullcontext()

    # what an optimizer does, and the state that it keeps

    def is_optimizer(self, thing: object) -> bool: ...

    def parameters_of(self, optimizer: Any) -> list[Any]: ...

    def rates(self, optimizer: Any) -> list[float]:
        """The learning rate that it will really use, per parameter group."""

    def describe(self, optimizer: Any) -> dict[str, Any]:
        """Its class and hyperparameters, as JSON values under the framework's own names."""

    def treatments(self, optimizer: Any) -> list[ParameterTreatment]:
        """Rate and decay of every parameter."""
        return [ParameterTreatment(one, self.rates(optimizer)[0]) for one in self.parameters_of(optimizer)]

    def recorded_state(self, optimizer: Any, parameter: Any) -> list[tuple[str, Any, dict[str, Any]]]:
        """What it keeps for a parameter: canonical name, value, facts to note beside it."""
        return []

    def is_kept(self, optimizer: Any, parameter: Any, slot: Slot) -> bool:
        """Whether it keeps this slot of its column for a parameter with its present settings."""
        return False

    def read_slots(self, optimizer: Any, parameter: Any) -> dict[str, Array]:
        """The state of one parameter under the framework's own names; empty before the first step."""
        return {}

    def write_slots(self, optimizer: Any, parameter: Any, slots: Mapping[str, Array]) -> None:
        """Replace the state of one parameter; an empty one is as before the first step."""
        return

    def constants(self, optimizer: Any, parameter: Any) -> dict[str, float]:
        """The numbers that its state depends on for this parameter: lr, beta1, beta2."""
        return {"lr": self.rates(optimizer)[0], "beta1": 0.0, "beta2": 0.0}

    def step(self, optimizer: Any) -> None:
        """Make one update."""
        optimizer.step()

    def clear(self, optimizer: Any) -> None:
        """Forget the gradients of its parameters."""

    def convert_optimizer(self, optimizer: Any, dtype: str) -> None:
        """Make it ready for parameters that were converted to `dtype`."""
        return

    # the framework as a part of the process

    def version(self) -> str:
        return ""

    def threads(self) -> int | None:
        return None

    def seeds(self) -> dict[str, int]:
        """The seeds of its random generators, as far as they can be read."""
        return {}

    def seed(self, number: int) -> None:
        return

    def random_state(self) -> Any:
        return None

    def set_random_state(self, state: Any) -> None:
        return

    def precision(self, dtype: str) -> AbstractContextManager[None]:
        """While it lasts, new tensors and variables are of this dtype; in float64, conversions to float32 as well.

        In a float32 program these round nothing, and in its float64 pass they would.
        """
        return nullcontext()

    def uncompiled(self) -> AbstractContextManager[None]:
        """While it lasts, compiled models run their Python code, and nothing is compiled."""
        return nullcontext()

    def switches(self) -> list[Switch]:
        """What makes runs repeatable."""
        return []


Draw = Callable[[tuple[int, ...], float], Array | None]
"""Gives a mask of this shape that drops elements at this rate; None: nothing is dropped."""
OperatorHook = Callable[..., None]
"""Called after an operator as (name, what it was given, what it gave, how to call it again, its class if its backward
is written by hand)."""
KernelHook = Callable[
    [str, Callable[..., Any], tuple[tuple[Any, ...], Mapping[str, Any]], tuple[int, ...], Callable[[], Any]], Any
]
"""Called instead of a kernel as (name, again, given, written, run), and gives its result.

`run()` does what was asked; `again(*args, **kwargs)` does the same with other tensors and writes into none of them.
`written` are the places of the arguments that the kernel itself writes into.
"""


class Operators(Protocol):
    """The operators that a program calls, one by one; and narrow types, whatever kernels the framework has for them."""

    emulates: bool = False
    """Whether it has the last two."""

    def each_operator(self, call: OperatorHook) -> AbstractContextManager[None]:
        """While it lasts, `call` is called after every operator of the user's code."""

    def each_kernel(self, call: KernelHook, *, gradients: bool = False) -> AbstractContextManager[None]:
        """While it lasts, `call` is called instead of every kernel, and no floating type is narrower than float64.

        With `gradients` the program can run its own backward passes.
        """

    def emulated(self, dtype: str) -> AbstractContextManager[None]:
        """While it lasts, kernels whose result is of `dtype` compute in float32 and round once."""
        raise CaptureError("this framework does not emulate narrow types")

    def autocast(self, dtype: str) -> AbstractContextManager[None]:
        """While it lasts, the framework itself chooses the kernels that it runs in `dtype`."""
        raise CaptureError("this framework does not emulate narrow types")


class Distributed(Protocol):
    """Tensors that lie on several processes."""

    def shard(self, tensor: Any) -> Shard | None:
        """How a tensor that knows it is distributed over the processes; None for one that is all here."""

    def pieces(self, module: Any) -> list[tuple[Any, Shard]]:
        """The parameters that this wrapper keeps in pieces without their knowing it, with how these lie."""

    def mesh(self, given: Any, modules: Sequence[Any], tensors: Sequence[Any]) -> tuple[MeshPlace, ...] | None:
        """This process's place on the axes of a mesh: the framework's object that the user has `given`, or else the
        one that tensors or modules lie on; () when there is none, None when `given` is not a mesh.
        """


class Export(Protocol):
    """Models exported to an engine that runs without the framework's Python."""

    ENGINES: tuple[str, ...]
    """Ways to export a model, the usual one first."""

    def export(self, model: Any, inputs: Any, folder: Path, engine: str) -> Callable[[Any], Any]:
        """A function from inputs (arrays) to outputs, run by the exported engine."""


def no_operators(framework: Framework) -> CaptureError:
    """What is raised when the operators of a framework are asked for that does not show them."""
    return CaptureError(f"operators of {framework.name} cannot be recorded one by one")


Cotangent = Callable[[str, Shape], "Array | None"]
"""The gradient to begin a backward pass with, for an output of this role and shape; None: none for this output."""


class Runner(ABC):
    """Where programs run: that of eager frameworks is capture/eager.py, functions and graphs bring their own."""

    @abstractmethod
    def run(self, side: Side, batches: Sequence[tuple[Any, Any]], scope: Scope) -> Recording:
        """The recording of all batches, from the side's own start. The side is not changed."""

    def calls(self, side: Side, batch: tuple[Any, Any]) -> list[Call]:
        """The first call of every module that was given tensors and plain values only, children before parents."""
        raise CaptureError(f"layers of {side.framework.name} cannot be run alone")

    def call(self, side: Side, path: str, call: Call, scope: Scope, cotangent: Cotangent) -> Evaluated:
        """The module at `path` alone on what `call` says, forward and backward."""
        raise CaptureError(f"layers of {side.framework.name} cannot be run alone")

    def evaluate(
        self, framework: Framework, function: Callable[..., Any], arguments: Sequence[Any], dtype: str | None
    ) -> Evaluated:
        """A function that is not a module (a loss), and the gradients of its arguments under the sum of its values."""
        raise CaptureError(f"functions of {framework.name} have no gradients")

    def operators_of_call(self, side: Side, path: str, call: Call, scope: Scope, cotangent: Cotangent) -> Trace:
        """Every operator of one module, run alone."""
        raise no_operators(side.framework)

    def operators_of_loss(self, side: Side, batch: tuple[Any, Any], scope: Scope) -> Trace:
        """Every operator of a batch's step that a loss depends on, but for those of the models."""
        raise no_operators(side.framework)

    def program(self, side: Side, batch: tuple[Any, Any], scope: Scope) -> Program:
        """Every kernel of a forward pass and of the loss in float64, without dropout."""
        raise no_operators(side.framework)


@dataclass(frozen=True)
class Listener:
    """Who listens to models while a program of the user's own runs them, also inside compiled functions."""

    models: Mapping[str, Any] | None
    """Those to listen to, by name; None: every outermost one that is called."""
    found: Callable[[str, Sequence[ModuleInfo]], None]
    """Called before the first report of a model, with its name and modules."""
    report: Callable[..., None]
    """Called as (phase, path, array, role, number, layer_type), in the order in which the program computes.

    `number` tells calls apart that stand at different places of the program: a loop repeats it.
    """
    know: Callable[[Mapping[str, Any]], None]
    """Called with what should stand in the provenance."""
    attempt: Callable[..., Any]
    """Calls a function of ours inside the user's program: None when it fails, which ends the recording only."""


class Programs(Runner):
    """Models as values, and how they run: functions over trees of parameters, graphs."""

    can: frozenset[Capability] = frozenset()

    @abstractmethod
    def owns(self, model: object) -> bool: ...

    @abstractmethod
    def layers(self, model: Any) -> tuple[ModuleFacts, ...]:
        """Every module once, under its first path, a module before those inside it."""

    @abstractmethod
    def state(self, model: Any) -> Mapping[str, Array]:
        """The values of every tensor that `layers` names, by its path."""

    @abstractmethod
    def with_state(self, model: Any, arrays: Mapping[str, Array]) -> Any:
        """The model with these values in place of its own, which it keeps."""

    def called_once(self, side: Side, batch: tuple[Any, Any]) -> Any:
        """The side's model with what only a call tells of its modules, where these are made as it is called."""
        return side.model

    def constants(self, model: Any) -> Mapping[str, Array]:
        """Weights that are a part of the model and cannot be replaced, by name."""
        return {}

    def readable(self, model: Any, reference: Side) -> Any | None:
        """A quantised model with the reference's weights, which runs in every `Rounding`, packed at first; None for a
        model without rounding. UsageError when a layer cannot be read."""
        return None

    def schemes(self, model: Any) -> dict[str, Scheme]:
        """How the layers of a readable model are quantised, by path."""
        return {}

    def rounding(self, model: Any, way: Rounding) -> Any:
        """A readable model that rounds in this way."""
        return model

    def is_optimizer(self, thing: object) -> bool:
        return False

    def listening(self, listener: Listener) -> AbstractContextManager[None]:
        """While it lasts, the listener is given what models compute inside a program of the user's own."""
        raise CaptureError("models of this framework cannot be watched; compare them with align_models")

    def settle(self) -> None:
        """Wait until everything that was computed up to now is reported."""
        return


@dataclass(frozen=True)
class Framework:
    """One framework: `parts` or `programs`, where more is known of it than its tensors."""

    name: str
    """Of its top-level module, of its column in the tables of layers/, of its folder."""
    tensors: Tensors
    parts: Eager | None = None
    programs: Programs | None = None
    distributed: Distributed | None = None
    export: Export | None = None
    columns: Mapping[str, Column] = field(default_factory=dict)
    """By kind of layer: a framework from outside brings what the table of layers says of the others."""
    optimizers: Mapping[str, OptimizerColumn] = field(default_factory=dict)
    """By kind of optimizer: the same for the table of optimizers."""

    @property
    def eager(self) -> Eager:
        """The parts of an eager framework; CaptureError when it is none."""
        if self.parts is None:
            raise CaptureError(
                f"models of {self.name} cannot be watched while a program calls them; record their tensors by hand "
                "with run.log(name, tensor)"
            )
        return self.parts

    @property
    def version(self) -> str:
        """The version of the framework in this process; '' when it does not tell."""
        if self.parts is not None:
            return self.parts.version()
        return str(getattr(sys.modules.get(self.name), "__version__", ""))

    @property
    def can(self) -> frozenset[Capability]:
        """What can be done with models of this framework."""
        if self.parts is None:
            return frozenset() if self.programs is None else self.programs.can
        operators = self.parts.operators
        if operators is None:
            return _EAGER
        return _EAGER | {"operators", "emulate"} if operators.emulates else _EAGER | {"operators"}

    def tensors_in(self, nest: Any, name: str = "") -> list[tuple[str, Any]]:
        """Its tensors in a nest with their roles, in order."""
        return [(role, leaf) for role, leaf in flatten(nest, name) if self.tensors.is_tensor(leaf)]

    def owns_optimizer(self, thing: object) -> bool:
        if self.parts is not None:
            return self.parts.is_optimizer(thing)
        return self.programs is not None and self.programs.is_optimizer(thing)

    def owns(self, model: object) -> bool:
        """Whether it is a model of this framework."""
        if self.parts is not None:
            return self.parts.is_module(model)
        return self.programs is not None and self.programs.owns(model)


def framework_from(found: Any, where: str) -> Framework:
    """What an entry point offers as a framework: its value FRAMEWORK, or a module that knows tensors only."""
    found = getattr(found, "FRAMEWORK", found)
    if isinstance(found, Framework):
        return found
    lacking = [name for name in ("NAME", "is_tensor", "view") if not hasattr(found, name)]
    if lacking:
        raise CaptureError(
            f"{where} lacks {listed(lacking)}; see reprod_log.frameworks.contract for what a framework has"
        )
    if hasattr(found, "on_call"):
        raise CaptureError(
            f"{where} has the functions of an earlier version. Models are now watched through one value FRAMEWORK "
            "(reprod_log.frameworks.contract.Framework) with its parts: modules, hooks, optimizers, process"
        )
    return Framework(found.NAME, found)
