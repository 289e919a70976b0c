"""Who owns a tensor, a module, an optimizer: asked here and nowhere else, without importing a framework.

A framework is known by a module in `frameworks/` (or by an entry point of the group `reprod_log.frameworks`)
that has the same name as the framework's own top-level module. It is looked at only when that module is already in
`sys.modules`: nobody's framework is ever imported for them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from reprod_log.errors import CaptureError, listed
from reprod_log.recording import Array

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from reprod_log.frameworks.hooks import Undo
    from reprod_log.recording.shards import MeshPlace, Shard

_OURS = ("jax", "paddle", "tensorflow", "torch")
"""The frameworks that have a folder or a file of their own here."""
GROUP = "reprod_log.frameworks"
"""Entry point group: the name is the framework's top-level module, the object a module with the functions below."""


@runtime_checkable
class TensorFramework(Protocol):
    """What it takes to copy a framework's tensors out."""

    NAME: str
    """The name of its top-level module."""

    def is_tensor(self, value: object) -> bool:
        """Whether this framework owns the tensor."""

    def view(self, tensor: Any) -> tuple[Array, bool]:
        """The values as numpy has them, and whether the array is fresh (False: it may share the tensor's memory).

        bfloat16 and the float8 kinds come in the dtypes of ml_dtypes. Raises UsageError for what has no numpy form.
        """


@runtime_checkable
class Framework(TensorFramework, Protocol):
    """What it takes to watch a framework's models. Every `on_…` gives back how to undo it."""

    # tensors

    def from_numpy(self, array: Array, like: Any = None) -> Any:
        """A new tensor with these values, on the device of the tensor `like`."""

    def cast(self, tensor: Any, dtype: str) -> Any:
        """The tensor in another dtype when it is a floating one, else the tensor itself."""

    def dtype_of(self, tensor: Any) -> str:
        """Its dtype in the words of a recording: float32, bfloat16 …"""

    def device_of(self, tensor: Any) -> str:
        """Where it lives: cpu, cuda:0, gpu:0 …"""

    def on_gradient(self, tensor: Any, call: Callable[[Any], None]) -> Undo | None:
        """Have `call` given the gradient of `tensor` when backward computes it; None when none will come.

        For a parameter that is what the pass adds to its gradient. The undo is `passing` when the hook dies with the
        graph.
        """

    def is_computed(self, tensor: Any) -> bool:
        """Whether gradients would flow back from it into what it was computed from; never so for a batch of data."""

    def in_place_version(self, tensor: Any) -> int:
        """How often the tensor was written in place: after a write, its gradient is that of another value."""

    # several processes

    def shard(self, tensor: Any) -> Shard | None:
        """How a tensor that knows it is distributed over the processes; None for one that is all here."""

    def pieces(self, module: Any) -> list[tuple[Any, Shard]]:
        """The parameters that this wrapper keeps in pieces without their knowing it, with how these lie."""

    def mesh(self, given: Any, modules: Sequence[Any], tensors: Sequence[Any]) -> tuple[MeshPlace, ...] | None:
        """This process's place on the axes of a mesh: the framework's object that the user has `given`, or else the
        one that tensors or modules lie on; () when there is none, None when `given` is no mesh.
        """

    # modules

    def is_module(self, thing: object) -> bool: ...

    def children(self, module: Any) -> list[tuple[str, Any]]:
        """The direct children by name, repeated ones too."""

    def parameters(self, module: Any) -> list[tuple[str, Any]]:
        """The module's own parameters (not the children's), the frozen ones too, without statistics."""

    def buffers(self, module: Any) -> list[tuple[str, Any]]:
        """The module's own other state as it is now, such as running statistics."""

    def kind(self, module: Any) -> str:
        """What it is in words that all frameworks share (linear, conv2d, batchnorm …); '' when it is none of these."""

    def settings(self, module: Any) -> dict[str, Any]:
        """Its plain attributes (numbers, flags, text, tuples of these), without leading underscores."""

    def is_training(self, module: Any) -> bool: ...

    def wrapped(self, module: Any) -> Any | None:
        """The module inside, when this one only wraps it (data parallel, compiled) and its name should not show."""

    def opaque(self, module: Any) -> str:
        """Why its children cannot be listened to ('it is compiled'); '' when they can."""

    def caveat(self, module: Any) -> str:
        """What listening to it changes, if anything."""

    def on_call(
        self,
        module: Any,
        before: Callable[[tuple[Any, ...], dict[str, Any]], None],
        after: Callable[[Any], None],
    ) -> Undo:
        """Have `before(args, kwargs)` and `after(output)` called around each call; `after(None)` when it raises."""

    def on_any_call(
        self, before: Callable[[Any, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]] | None]
    ) -> Undo:
        """Have `before(module, args, kwargs)` called before any module of the process is called.

        It may give other arguments to call it with.
        """

    def convert(self, module: Any, dtype: str) -> None:
        """Turn its floating parameters and buffers into `dtype`, in place."""

    # optimizers

    def is_optimizer(self, thing: object) -> bool: ...

    def optimizer_parameters(self, optimizer: Any) -> list[Any]: ...

    def learning_rates(self, optimizer: Any) -> list[float]:
        """What it will really use, per parameter group."""

    def optimizer_settings(self, optimizer: Any) -> dict[str, Any]:
        """Its class and hyperparameters, as JSON values."""

    def optimizer_state(self, optimizer: Any, parameter: Any) -> list[tuple[str, Any, dict[str, Any]]]:
        """What it keeps for a parameter: canonical name, value, facts to note beside it."""

    def on_step(
        self,
        optimizer: Any,
        before: Callable[[bool], None],
        clipped: Callable[[list[tuple[Any, Any]]], None],
        after: Callable[[], None],
    ) -> Undo:
        """Have `before(has_closure)` and `after()` called around each step.

        `clipped` gets parameters with the gradients that are really used, when the optimizer itself clips them.
        """

    def convert_optimizer(self, optimizer: Any, dtype: str) -> None:
        """Make it ready for parameters that were converted to `dtype`."""

    def on_new_optimizer(self, found: Callable[[Any], None]) -> Undo:
        """Have `found(optimizer)` called for every optimizer made from now on."""

    # gradients

    def takes_gradient(self, parameter: Any) -> bool: ...

    def gradient(self, parameter: Any) -> Any | None:
        """Its gradient as it stands now."""

    def on_backward(self, before: Callable[[Sequence[Any], bool], None], after: Callable[[bool], None]) -> Undo:
        """Have `before(tensors, accumulates)` and `after(well)` called around each backward pass.

        `accumulates` is False for passes that only return gradients; `well` is False when the pass raised.
        """

    def on_scaling(
        self,
        scaled: Callable[[Any, Any], None],
        unscaled: Callable[[Any, float], None],
        skipped: Callable[[Any], None],
    ) -> Undo:
        """Have a gradient scaler's doings told: `scaled(loss, scaled_loss)`, `unscaled(optimizer, scale)`, and
        `skipped(optimizer)` when it found infinite gradients and the parameters stay as they are.
        """

    # the process

    def version(self) -> str: ...

    def is_tracing(self) -> bool:
        """Whether modules are being traced or compiled now, so that calls compute nothing."""

    def threads(self) -> int | None: ...

    def seeds(self) -> dict[str, int]:
        """The seeds of its random generators, as far as they can be read."""

    def seed(self, number: int) -> None: ...

    def rng_state(self) -> Any: ...

    def set_rng_state(self, state: Any) -> None: ...

    def switches(self) -> list[Switch]:
        """What makes runs repeatable."""


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


def framework_of(thing: Any) -> Framework:
    """The loaded framework that a module, an optimizer or a tensor belongs to.

    Raises CaptureError when nobody owns it, or when its framework's models cannot be watched.
    """
    for _, framework in loaded():
        if isinstance(framework, Framework):
            if framework.is_module(thing) or framework.is_optimizer(thing) or framework.is_tensor(thing):
                return framework
        elif framework.is_tensor(thing):
            break
    kind = type(thing)
    full = f"{kind.__module__}.{kind.__qualname__}"
    watchable = [name for name, one in loaded() if isinstance(one, Framework)]
    raise CaptureError(
        f"a {full} cannot be watched: it is no module, optimizer or tensor of "
        f"{listed(watchable) if watchable else 'a framework in this process'}. Models of torch and paddle can be; "
        "tensors of other frameworks are recorded by hand with run.log(name, tensor)."
    )


def loaded() -> Iterator[tuple[str, TensorFramework]]:
    """The frameworks of this process that we know, with their names."""
    for name, load in _known().items():
        if is_loaded(name):
            yield name, cast(TensorFramework, load())


def known_names() -> tuple[str, ...]:
    """Every framework that could be looked up, loaded or not."""
    return tuple(_known())


def is_loaded(name: str) -> bool:
    """Whether the process has the real framework `name` in it.

    `paddle.enable_compat()` puts a stand-in called `torch` into `sys.modules`; a module whose file lies in another
    package's folder is not the one its name says.
    """
    module = sys.modules.get(name)
    if module is None or getattr(module, "Tensor", getattr(module, "Array", None)) is None:
        # Missing, or found in the middle of its own import.
        return False
    file = getattr(module, "__file__", None)
    return file is None or name in (Path(file).stem, Path(file).parent.name)


def owner_of_tensor(value: object) -> TensorFramework | None:
    """The loaded framework that `value` is a tensor of, or None."""
    for _, framework in loaded():
        if framework.is_tensor(value):
            return framework
    return None


@cache
def _known() -> dict[str, Callable[[], ModuleType]]:
    from importlib.metadata import entry_points  # slow to import, and a logger of numpy arrays never needs it

    found: dict[str, Callable[[], ModuleType]] = {}
    for one in entry_points(group=GROUP):
        found[one.name] = _from_entry_point(one)
    for name in _OURS:
        found[name] = _from_folder(f"reprod_log.frameworks.{name}")
    return found


def _from_folder(name: str) -> Callable[[], ModuleType]:
    return lambda: import_module(name)


def _from_entry_point(point: EntryPoint) -> Callable[[], ModuleType]:
    @cache
    def load() -> ModuleType:
        loaded_object = point.load()
        lacking = [name for name in ("NAME", "is_tensor", "view") if not hasattr(loaded_object, name)]
        if lacking:
            raise CaptureError(
                f"the entry point {point.name!r} of group {GROUP!r} ({point.value}) lacks {listed(lacking)}; "
                "see reprod_log.frameworks.contract for what a framework has"
            )
        return cast(ModuleType, loaded_object)

    return load
