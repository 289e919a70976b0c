"""Trees: models that are values, arrays by path over a tree of modules; how they are listened to and computed with.

A framework of such models writes a Model (what it consists of, and how it is put together from arrays) and an Engine
(how functions of arrays run); programs.py runs them, and watching.py listens to them in a loop of the user's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reprod_log.frameworks.contract import Draw, ModuleFacts
from reprod_log.frameworks.hooks import replaced
from reprod_log.frameworks.module_tree import info_of
from reprod_log.frameworks.nests import flatten, mapped
from reprod_log.frameworks.side import Scope
from reprod_log.frameworks.tensors import cast_floating
from reprod_log.frameworks.values import Channels, Place
from reprod_log.recording import Array, ModuleInfo

Leaves = Mapping[str, Any]


# ---- models ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leaf:
    """One array of a model's state."""

    path: str
    trained: bool
    recorded: bool
    """False for keys and counters of random numbers."""
    shape: tuple[int, ...]
    dtype: str
    frozen: bool = False
    """A parameter that is not trained."""

    @property
    def phase(self) -> str:
        return "parameter" if self.trained or self.frozen else "buffer"


class Model(ABC):
    """A model, with what of its modules is known."""

    package: str
    """The library's top-level module: the name of its column in the tables of layers."""
    arrays: Mapping[str, Any]
    """Every array of its state by path."""
    leaves: tuple[Leaf, ...]

    @abstractmethod
    def modules(self) -> Mapping[str, Any]:
        """The modules by path, each before those inside it; None for one of which only a call will tell more."""

    @abstractmethod
    def facts(self) -> tuple[ModuleFacts, ...]: ...

    @abstractmethod
    def call(
        self, path: str, args: Any, kwargs: Any, arrays: Mapping[str, Any], scope: Scope, taps: Taps
    ) -> tuple[Any, Mapping[str, Any]]:
        """What the module at this path gives, the whole model for '', and the arrays that the call has changed.

        The model has these arrays and is as the scope wants it; calls of its modules go through the taps.
        """

    @abstractmethod
    def channels(self, module: ModuleInfo) -> Channels:
        """Where one of its modules has the channels of images."""

    def opened(self, scope: Scope) -> AbstractContextManager[None]:
        """While it lasts, the model itself is as the scope wants it."""
        return nullcontext()

    def arranged(self, inputs: Any) -> Any:
        """The inputs as the model takes them."""
        return inputs

    def built(self, modules: Mapping[str, Any]) -> Model:
        """The model with the modules that a call has shown."""
        return self

    @property
    def has_images_last(self) -> bool:
        """Whether images have their channels last between its modules."""
        return False

    @property
    def to_train(self) -> Any:
        """What the maker of an optimizer is given."""
        return self

    @property
    def about(self) -> dict[str, Any]:
        """What should stand in the provenance."""
        return {}

    dtype = "float32"

    def infos(self) -> list[ModuleInfo]:
        return [info_of(one, self.package) for one in self.facts()]


class Optimizer(ABC):
    """An optimizer at work on arrays by path."""

    rate: float | None = None
    """The learning rate of the next step, where it can be read."""

    @abstractmethod
    def step(self, values: Mapping[str, Any], gradients: Leaves) -> dict[str, Any]:
        """The trained arrays after one update."""

    @abstractmethod
    def kept(self) -> Iterator[tuple[str, str, Any, Mapping[str, Any]]]:
        """What it keeps for each parameter after a step: path, canonical name, values, facts."""

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """What should stand in the provenance."""


# ---- computing ------------------------------------------------------------------------------------------------------


class Computed(NamedTuple):
    """What came out of one pass."""

    result: Any
    gradients: Leaves
    """By leaf."""
    values: Mapping[Place, Any]
    """What modules were given and gave, in the order of execution."""
    back: Mapping[Place, Any]
    """The gradients of what modules gave."""
    taps: Taps


Function = Callable[[Leaves, Any, "Taps"], tuple[Any, Any]]
"""From leaves, whatever else goes in, and taps: to the number that is differentiated for the leaves, and what else
comes out."""
Pass = Callable[[Leaves, Any, Draw], Computed]


class Engine(ABC):
    """How functions of one framework's arrays run."""

    name: str

    @abstractmethod
    def is_tensor(self, value: object) -> bool: ...

    @abstractmethod
    def is_floating(self, tensor: Any) -> bool: ...

    @abstractmethod
    def tensor(self, array: Any, dtype: Any = None) -> Any: ...

    @abstractmethod
    def to_array(self, tensor: Any) -> Array: ...

    @abstractmethod
    def sum(self, tensor: Any) -> Any: ...

    @abstractmethod
    def prepared(self, function: Function, taps: Callable[[], Taps], *, backward: bool, wide: bool = False) -> Pass:
        """The function as models of this framework run, to be called any number of times.

        `wide`: in float64, in the places too where its author asked for less.
        """

    def shapes(self, function: Callable[..., Any], *args: Any) -> Any:
        """What a function gives, of which only shapes and types are wanted."""
        return function(*args)

    def cast(self, value: Any, dtype: str | None) -> Any:
        """A tensor, in another dtype when it is a floating one."""
        return self.tensor(cast_floating(self.to_array(value), dtype))

    def precision(self, dtype: str | None) -> AbstractContextManager[Any]:
        """While it lasts, tensors can be of this floating type."""
        return nullcontext()

    def tensors_in(self, nest: Any, name: str) -> list[tuple[str, Any]]:
        return [(role, leaf) for role, leaf in flatten(nest, name) if self.is_tensor(leaf)]

    # inside functions

    @abstractmethod
    def marked(self, taps: Taps, place: Place, leaf: Any) -> Any:
        """The tensor, which is known by its place from here on."""

    @abstractmethod
    def with_gradient(self, leaf: Any, gradient: Any) -> Any:
        """The tensor; what goes on backwards from here is `gradient`."""

    @abstractmethod
    def instead(self, leaf: Any, value: Any) -> Any:
        """The value, with gradients that go to the tensor."""

    def scope(self, path: str) -> AbstractContextManager[Any]:
        """While it lasts, what is computed belongs to the module at this path."""
        return nullcontext()

    def set_setting(self, module: Any, name: str, value: Any) -> None:
        """Give a module another setting, where models are put together of modules that nobody else has."""
        return

    # in a program of the user's own

    def watched(self) -> AbstractContextManager[Any]:
        """While it lasts, what is computed can be called back."""
        return nullcontext()

    def settle(self) -> None:
        """Wait until everything that was computed was called back."""
        return

    def emit(self, receive: Callable[..., None], tensor: Any) -> None:
        """Have `receive(array=…)` called with a tensor when it is computed."""
        receive(array=self.to_array(tensor))

    @abstractmethod
    def tapped(self, forward: Callable[..., None], backward: Callable[..., None], tensor: Any) -> Any:
        """The tensor, which is called back with, and its gradient."""


@dataclass
class Taps:
    """What the calls of one pass give."""

    engine: Engine
    masks: list[Any] | Draw | None = None
    """Of dropout, in the order of the calls, or what draws one; None: they are only asked for."""
    dropout: bool = True
    """False: nothing is dropped."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings that modules have instead of their own, by path and native name."""
    outputs: Mapping[Place, Any] = field(default_factory=dict)
    """What stands in for what modules give."""
    gradients: Mapping[Place, Any] = field(default_factory=dict)
    live: Callable[[Taps, Place, Any], Any] | None = None
    """Marks instead of the engine, in a program of the user's own."""
    zero: Callable[[Place, Any], Any] | None = None
    """Gives what is added to an output where engines get its gradient in this way."""
    values: dict[Place, Any] = field(default_factory=dict)
    """Where an engine keeps what it marks."""
    asked: list[tuple[tuple[int, ...], float]] = field(default_factory=list)
    """Shapes and rates of the masks."""
    modules: dict[str, Any] = field(default_factory=dict)
    """By path, in the order of their first calls."""
    types: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, tuple[Any, Any, Any]] = field(default_factory=dict)
    """Of the first call of every module, in the order of their ends: what it was given and what it returned."""
    same: dict[Place, Place] = field(default_factory=dict)
    """Inputs that are an earlier one of the same call."""
    _calls: dict[str, int] = field(default_factory=dict)
    _running: list[tuple[int, str]] = field(default_factory=list)

    def call(
        self, module: Any, path: str, original: Callable[..., Any], args: Any, kwargs: Any, rate: float = 0.0
    ) -> Any:
        """The call of a module; `rate` is that of a dropout which is on."""
        if self._running and self._running[-1] == (id(module), path):
            # A class calls the method of the one that it descends from.
            return original(*args, **kwargs)
        number, args, kwargs = self.enter(module, path, args, kwargs)
        self._running.append((id(module), path))
        try:
            with self.engine.scope(path):
                output = original(*args, **kwargs) if not rate else self._dropped(args, kwargs, rate)
        finally:
            self._running.pop()
        return self.leave(path, number, args, kwargs, output)

    def enter(self, module: Any, path: str, args: Any, kwargs: Any, type_name: str = "") -> tuple[int, Any, Any]:
        """The number of a call that begins, and its arguments as they go on."""
        number = self._calls[path] = self._calls.get(path, -1) + 1
        self.modules.setdefault(path, module)
        self.types[path] = type_name or type(module).__name__
        for name, value in self.settings.get(path, {}).items():
            self.engine.set_setting(module, name, value)
        known: dict[int, tuple[Place, Any]] = {}

        def given(role: str, leaf: Any) -> Any:
            if not self.engine.is_tensor(leaf):
                return leaf
            place = path, number, role
            if id(leaf) not in known:
                known[id(leaf)] = place, self.mark(place, leaf)
            first, marked = known[id(leaf)]
            self.same[place] = first
            return marked

        return number, mapped(args, given, "input"), mapped(kwargs, given, "input")

    def leave(self, path: str, number: int, args: Any, kwargs: Any, output: Any) -> Any:
        """What a call gives, as it goes on from there."""
        if number == 0:
            self.arguments[path] = (args, kwargs, output)
        return mapped(output, lambda role, leaf: self._given((path, number, role), leaf), "output")

    def mark(self, place: Place, leaf: Any) -> Any:
        """The same tensor, known by its place from here on."""
        return self.engine.marked(self, place, leaf) if self.live is None else self.live(self, place, leaf)

    def _given(self, place: Place, leaf: Any) -> Any:
        if not self.engine.is_tensor(leaf):
            return leaf
        floating = self.engine.is_floating(leaf)
        if place in self.gradients and floating:
            leaf = self.engine.with_gradient(leaf, self.engine.tensor(self.gradients[place], leaf.dtype))
        leaf = self.mark(place, leaf)
        if place in self.outputs and floating and tuple(self.outputs[place].shape) == tuple(leaf.shape):
            # What is recorded is what was computed, and so is the gradient; what goes on is what was given.
            leaf = self.engine.instead(leaf, self.engine.tensor(self.outputs[place], leaf.dtype))
        return leaf

    def _dropped(self, args: Any, kwargs: Any, rate: float) -> Any:
        value = next(iter((*args, *kwargs.values())))
        if not self.dropout:
            return value
        shape = tuple(value.shape)
        self.asked.append((shape, rate))
        if self.masks is None:
            return value
        mask = self.masks(shape, rate) if callable(self.masks) else self.masks[len(self.asked) - 1]
        return value * self.engine.tensor(mask, value.dtype)


# ---- methods in the place of others ---------------------------------------------------------------------------------


def replacement(original: Any, instead: Callable[..., Any]) -> Callable[..., Any]:
    """A method in the place of another: instead(object, original, args, kwargs)."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return instead(self, original.__get__(self, type(self)), args, kwargs)

    return call


@contextmanager
def method_replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """While it lasts, `make(original)` stands in the place of a function of a class or module."""
    undo = replaced(owner, name, make(getattr(owner, name)))
    try:
        yield
    finally:
        undo()


@contextmanager
def field_replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """While it lasts, `make(value)` is what a field of every named tuple of a class has."""
    field = vars(owner)[name]
    setattr(owner, name, property(lambda one: make(field.__get__(one))))
    try:
        yield
    finally:
        setattr(owner, name, field)
