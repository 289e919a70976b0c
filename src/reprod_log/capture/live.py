"""Live models: one model by names and arrays, so that pairing and transfer touch no object of a framework."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reprod_log.capture.probing import call_on_arrays, each_call, stand_ins, undisturbed
from reprod_log.capture.session import suppress_recording
from reprod_log.errors import UsageError
from reprod_log.frameworks import Framework, owner_of_model, watchable
from reprod_log.frameworks.contract import Call, LayerCall, ModuleFacts, OwnTensor, Programs, Shape, StateFacts
from reprod_log.frameworks.module_tree import Node, Root, Tree, join, named_modules
from reprod_log.frameworks.side import Scope, Side
from reprod_log.frameworks.tensors import to_numpy
from reprod_log.layers.optimizers import Slot
from reprod_log.recording import Array


def live_model(model: Any) -> LiveModel:
    """The model by names and arrays; UsageError when it is not a model of a loaded framework."""
    framework = owner_of_model(model)
    if framework.programs is None:
        return EagerModel(framework, model)
    return ValueModel(framework, framework.programs, model)


def live_optimizer(optimizer: Any) -> LiveOptimizer | None:
    """The optimizer without a model; None when it is not one of a framework in this process."""
    for framework in watchable():
        if framework.eager.is_optimizer(optimizer):
            return LiveOptimizer(framework, optimizer, {})
    return None


class EagerModel:
    """A model of an eager framework: its tensors are read and written where they stand."""

    def __init__(self, framework: Framework, model: Any) -> None:
        self.framework = framework
        self._given = model
        self._parts = framework.eager
        tree = Tree(framework)
        tree.add(Root("", model))
        self.objects = {node.path: node.content for node in tree.nodes}
        """The modules themselves, by path."""
        self.model = self.objects[""]
        """The model itself, without what only wraps it."""
        self.tensors: dict[str, Any] = {}
        """The tensors themselves, under every name."""
        self._first: dict[int, str] = {}
        self.modules = tuple(self._module_facts(node) for node in tree.nodes)
        """Every module once, under its first path, a module before those inside it."""

    def _module_facts(self, node: Node) -> ModuleFacts:
        module, path = node.content, node.path
        inside = {
            join(place, one.name): self._state_facts(join(path, join(place, one.name)), one)
            for place, part in named_modules(self.framework, module)
            for one in self._parts.own(part)
            if one.persistent
        }
        return ModuleFacts(
            path=path,
            parent=None if node.parent is None else node.parent.path,
            classes=tuple(f"{one.__module__}.{one.__name__}" for one in type(module).__mro__),
            settings=self._parts.settings(module),
            own=tuple(one.name for one in self._parts.own(module) if one.persistent),
            inside=inside,
            kept=self._parts.kept_weights(module),
            aliases=tuple(node.names),
        )

    def _state_facts(self, name: str, one: OwnTensor) -> StateFacts:
        self.tensors[name] = one.tensor
        first = self._first.setdefault(id(one.tensor), name)
        shape: Shape | None = None
        dtype = ""
        if one.has_values:
            shape, dtype, _ = self.framework.tensors.facts(one.tensor)
        return StateFacts(shape, dtype, one.trained, first)

    # ---- values -----------------------------------------------------------------------------------------------------

    def file_names(self) -> dict[str, str]:
        """Every name that the framework's own files would have, with the first name of the same tensor."""
        named = self._parts.state_names(self.model)
        return {name: self._first.get(id(tensor), name) for name, tensor in named.items()}

    def read(self, name: str) -> Array:
        """A copy of the values."""
        return to_numpy(self.tensors[name])

    def write(self, arrays: Mapping[str, Array]) -> Any:
        """Overwrite values in place, all or none; gives the model as it was given."""
        written: list[tuple[Any, Array]] = []
        try:
            for name, array in arrays.items():
                tensor = self.tensors[name]
                written.append((tensor, to_numpy(tensor)))
                self._parts.write(tensor, array)
        except BaseException:
            # All or nothing, also when the user interrupts.
            for tensor, before in written:
                self._parts.write(tensor, before)
            raise
        for module in self.objects.values():
            self._parts.refresh(module)
        return self._given

    def gradient(self, name: str) -> Array | None:
        found = self._parts.gradient(self.tensors[name])
        return None if found is None else to_numpy(found)

    def set_gradients(self, arrays: Mapping[str, Array | None]) -> None:
        for name, array in arrays.items():
            self._parts.set_gradient(self.tensors[name], array)

    def optimizer(self, optimizer: Any) -> LiveOptimizer:
        """The state of an optimizer of this model."""
        return LiveOptimizer(self.framework, optimizer, self.tensors)

    # ---- runs -------------------------------------------------------------------------------------------------------

    def calls(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, paths: Iterable[str], arrays: Mapping[str, Array]
    ) -> dict[str, LayerCall]:
        """The first calls of the modules at these paths in one run in evaluation mode, in the order of their ends.

        Tensors named in `arrays` have these values while it lasts.
        """
        modules = {path: self.objects[path] for path in paths} | {"": self.model}
        found: dict[str, LayerCall] = {}
        with (
            suppress_recording(),
            undisturbed(self.framework, self.model),
            stand_ins(self.framework, self.model, self._by_tensor(arrays), None),
            each_call(self.framework, modules, lambda call: found.setdefault(call.path, call)),
        ):
            call_on_arrays(self.framework, self.model, args, kwargs)
        return found

    def call(self, path: str, args: tuple[Any, ...], *, arrays: Mapping[str, Array], dtype: str) -> tuple[Array, ...]:
        """The outputs of one module alone, in evaluation mode, in `dtype`, with the values of `arrays`."""
        module, framework = self.objects[path], self.framework
        values = self._by_tensor(arrays)
        with suppress_recording(), undisturbed(framework, module), stand_ins(framework, module, values, dtype):
            return call_on_arrays(framework, module, args, {})

    def _by_tensor(self, arrays: Mapping[str, Array]) -> dict[int, Array]:
        return {id(self.tensors[name]): array for name, array in arrays.items()}


class LiveOptimizer:
    """An optimizer's rates, and its state by the names of a model's parameters."""

    def __init__(self, framework: Framework, optimizer: Any, tensors: Mapping[str, Any]) -> None:
        self._access, self._optimizer, self._tensors = framework.eager, optimizer, tensors
        self.parameters: list[Any] = self._access.parameters_of(optimizer)
        own = set(map(id, self.parameters))
        self.updates: frozenset[str] = frozenset(name for name, tensor in tensors.items() if id(tensor) in own)

    def rates(self) -> list[float]:
        """The learning rates in use now."""
        return self._access.rates(self._optimizer)

    def constants(self, name: str) -> dict[str, float]:
        """The numbers that the state of a parameter depends on: lr, beta1, beta2."""
        return self._access.constants(self._optimizer, self._tensors[name])

    def is_kept(self, name: str, slot: Slot) -> bool:
        """Whether it keeps this slot of its column for a parameter with its present settings."""
        return self._access.is_kept(self._optimizer, self._tensors[name], slot)

    def read(self, name: str) -> dict[str, Array]:
        """The state of one parameter under the framework's own names; empty before the first step."""
        return self._access.read_slots(self._optimizer, self._tensors[name])

    def write(self, name: str, slots: Mapping[str, Array]) -> None:
        """Replace the state of one parameter; an empty one is as before the first step."""
        self._access.write_slots(self._optimizer, self._tensors[name], slots)


class ValueModel:
    """A model that is a value: what is written makes another one; its layers' calls are read from a recording."""

    def __init__(self, framework: Framework, programs: Programs, model: Any) -> None:
        self.framework, self.model = framework, model
        self._programs = programs
        self.modules = programs.layers(model)

    def file_names(self) -> dict[str, str]:
        return {join(one.path, name): facts.first for one in self.modules for name, facts in one.inside.items()}

    def read(self, name: str) -> Array:
        return self._programs.state(self.model)[self.file_names()[name]]

    def write(self, arrays: Mapping[str, Array]) -> Any:
        """Another model with these values."""
        self.model = self._programs.with_state(self.model, arrays)
        return self.model

    def gradient(self, name: str) -> Array | None:
        raise self._has_none("gradients")

    def set_gradients(self, arrays: Mapping[str, Array | None]) -> None:
        raise self._has_none("gradients")

    def optimizer(self, optimizer: Any) -> LiveOptimizer:
        raise self._has_none("an optimizer's state")

    def _has_none(self, what: str) -> UsageError:
        return UsageError(
            f"a model of {self.framework.name} does not keep {what}, so none can be transferred; give the optimizer to "
            "align_models, which compares gradients and updates"
        )

    def calls(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, paths: Iterable[str], arrays: Mapping[str, Array]
    ) -> dict[str, LayerCall]:
        scope = Scope(phases=("forward",), state=arrays, evaluation=True)
        recording = self._programs.run(Side(self.model), [(dict(kwargs) or args, None)], scope)
        inputs: dict[str, list[Array]] = {}
        outputs: dict[str, list[Array]] = {}
        for entry in recording.entries:
            if entry.key.phase == "forward" and not entry.key.call:
                found = outputs if entry.key.role.startswith("output") else inputs
                found.setdefault(entry.key.path, []).append(entry.array())
        wanted = {"", *paths}
        return {
            path: LayerCall(path, tuple(inputs.get(path, ())), tuple(given))
            for path, given in outputs.items()
            if path in wanted
        }

    def call(self, path: str, args: tuple[Any, ...], *, arrays: Mapping[str, Array], dtype: str) -> tuple[Array, ...]:
        scope = Scope(dtype=dtype, state=arrays, evaluation=True)
        found = self._programs.call(Side(self.model), path, Call(path, args, {}, {}), scope, lambda role, shape: None)
        return tuple(found.outputs.values())


LiveModel = EagerModel | ValueModel
"""One model by names and arrays: all that pairing and transfer ask. Runs leave it as it was."""
