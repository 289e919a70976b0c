"""Live models: one model by names and arrays, so that pairing and transfer touch no object of a framework."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reprod_log.capture.probing import call_on_arrays, each_call, stand_ins, undisturbed
from reprod_log.capture.session import suppress_recording
from reprod_log.frameworks import Framework, owner_of_model
from reprod_log.frameworks.contract import (
    LayerCall,
    LiveModel,
    LiveOptimizer,
    ModuleFacts,
    OwnTensor,
    Shape,
    StateFacts,
)
from reprod_log.frameworks.module_tree import Node, Root, Tree, join, named_modules
from reprod_log.frameworks.tensors import to_numpy
from reprod_log.layers.optimizers import Slot
from reprod_log.recording import Array


def live_model(model: Any) -> LiveModel:
    """The model as its framework opens it; UsageError when it is not a model of a loaded framework."""
    framework = owner_of_model(model)
    return EagerModel(framework, model) if framework.models is None else framework.models.open(model)


class EagerModel:
    """A model of an eager framework: its tensors are read and written where they stand."""

    def __init__(self, framework: Framework, model: Any) -> None:
        self.framework = framework
        self._parts, self._hooks = framework.eager.modules, framework.eager.hooks
        tree = Tree(framework)
        tree.add(Root("", model))
        self.objects = {node.path: node.content for node in tree.nodes}
        """The modules themselves, by path."""
        self.model = self.objects[""]
        self.tensors: dict[str, Any] = {}
        """The tensors themselves, under every name."""
        self._first: dict[int, str] = {}
        self.modules = tuple(self._module_facts(node) for node in tree.nodes)

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
        named = self._parts.state_names(self.model)
        return {name: self._first.get(id(tensor), name) for name, tensor in named.items()}

    def read(self, name: str) -> Array:
        return to_numpy(self.tensors[name])

    def write(self, arrays: Mapping[str, Array]) -> None:
        written: list[tuple[Any, Array]] = []
        try:
            for name, array in arrays.items():
                tensor = self.tensors[name]
                written.append((tensor, to_numpy(tensor)))
                self._hooks.write(tensor, array)
        except BaseException:
            # All or nothing, also when the user interrupts.
            for tensor, before in written:
                self._hooks.write(tensor, before)
            raise
        for module in self.objects.values():
            self._parts.refresh(module)

    def gradient(self, name: str) -> Array | None:
        found = self._hooks.gradient(self.tensors[name])
        return None if found is None else to_numpy(found)

    def set_gradients(self, arrays: Mapping[str, Array | None]) -> None:
        for name, array in arrays.items():
            self._hooks.set_gradient(self.tensors[name], array)

    def optimizer(self, optimizer: Any) -> LiveOptimizer:
        return _EagerOptimizer(self, optimizer)

    # ---- runs -------------------------------------------------------------------------------------------------------

    def calls(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, paths: Iterable[str], arrays: Mapping[str, Array]
    ) -> dict[str, LayerCall]:
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
        module, framework = self.objects[path], self.framework
        values = self._by_tensor(arrays)
        with suppress_recording(), undisturbed(framework, module), stand_ins(framework, module, values, dtype):
            return call_on_arrays(framework, module, args, {})

    def _by_tensor(self, arrays: Mapping[str, Array]) -> dict[int, Array]:
        return {id(self.tensors[name]): array for name, array in arrays.items()}


class _EagerOptimizer:
    """An optimizer's state by the names of a model's parameters."""

    def __init__(self, model: EagerModel, optimizer: Any) -> None:
        self._access, self._optimizer, self._tensors = model.framework.eager.optimizers, optimizer, model.tensors
        own = {id(parameter) for parameter in self._access.parameters_of(optimizer)}
        self.updates = frozenset(name for name, tensor in model.tensors.items() if id(tensor) in own)

    def constants(self, name: str) -> dict[str, float]:
        return self._access.constants(self._optimizer, self._tensors[name])

    def is_kept(self, name: str, slot: Slot) -> bool:
        return self._access.is_kept(self._optimizer, self._tensors[name], slot)

    def read(self, name: str) -> dict[str, Array]:
        return self._access.read_slots(self._optimizer, self._tensors[name])

    def write(self, name: str, slots: Mapping[str, Array]) -> None:
        self._access.write_slots(self._optimizer, self._tensors[name], slots)
