"""What a live model consists of: its units, and the live objects behind their names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reprod_log.errors import TransferError
from reprod_log.frameworks import Framework, owner_of_model
from reprod_log.frameworks.contract import KeptForm, OwnTensor
from reprod_log.frameworks.tensors import to_numpy
from reprod_log.layers.lookup import column_of, family_of, find_layer
from reprod_log.layers.rows import Column, LayerFacts, LayerKind
from reprod_log.layers.transform import Array
from reprod_log.pairing.unit import Part, Unit, bare_unit, join, layer_parts
from reprod_log.recording import ModuleInfo

_PLAIN = (int, float, str, bool)


@dataclass(frozen=True)
class Survey:
    """A model's units in the order of registration, with the live tensors and modules that their names stand for."""

    framework: Framework
    model: Any
    units: tuple[Unit, ...]
    tensors: Mapping[str, Any]
    modules: Mapping[str, Any]
    trained: frozenset[str]
    """The names of parameters, the frozen ones too."""

    def shape(self, name: str) -> tuple[int, ...]:
        """The named tensor's shape."""
        return self.framework.tensors.facts(self.tensors[name]).shape

    def dtype(self, name: str) -> str:
        """The named tensor's dtype."""
        return self.framework.tensors.facts(self.tensors[name]).dtype

    def read(self, name: str) -> Array:
        """A copy of the named tensor's values."""
        return to_numpy(self.tensors[name])

    def info(self, unit: Unit) -> ModuleInfo:
        """The unit's live layer as a recording would describe it."""
        module = self.modules[unit.path]
        settings = {name.lstrip("_"): value for name, value in vars(module).items() if _is_plain(value)}
        origin = f"{unit.family}.{unit.class_name}"
        return ModuleInfo(unit.path, type(module).__name__, unit.kind, origin=origin, settings=settings)

    def facts(self, unit: Unit) -> LayerFacts:
        """What a probe may know of the unit's live layer."""
        info = self.info(unit)
        column = column_of(info)
        assert column is not None
        shapes = {part.canonical: part.shape for part in unit.parts}
        # A weight kept in another form has the shape of the form's main tensor.
        for part in unit.parts:
            base, _, role = part.canonical.rpartition(".")
            if role in ("v", "original"):
                shapes.setdefault(base, part.shape)
        return LayerFacts(column, unit.class_name, info.settings, shapes)


def survey(model: Any) -> Survey:
    """The units of a live torch or paddle model."""
    framework = owner_of_model(model)
    while (inner := framework.eager.modules.wrapped(model)) is not None:
        model = inner
    walk = _Walk(framework)
    units = tuple(walk.with_aliases(unit) for unit in list(walk.visit(model, "", frozenset())))
    return Survey(framework, model, units, walk.tensors, walk.modules, frozenset(walk.trained))


def column_of_class(cls: type) -> tuple[LayerKind, Column, str, str] | None:
    """The kind, column, family and class name that apply to a class or to the nearest class it descends from."""
    for one in cls.__mro__:
        type_name = f"{one.__module__}.{one.__name__}"
        found = find_layer(type_name)
        if found is not None:
            return (*found, *family_of(type_name))
    return None


class _Walk:
    """One pass over a model's tree."""

    def __init__(self, framework: Framework) -> None:
        self.framework = framework
        self.parts = framework.eager.modules
        self.trained: set[str] = set()
        self.tensors: dict[str, Any] = {}
        self.modules: dict[str, Any] = {}
        self.first_path: dict[int, str] = {}
        self.aliases: list[tuple[str, str]] = []

    def with_aliases(self, unit: Unit) -> Unit:
        """The unit with its other paths, known once the whole tree has been seen."""
        others = [
            again + unit.path[len(first) :]
            for first, again in self.aliases
            if unit.path == first or unit.path.startswith(f"{first}.")
        ]
        return replace(unit, aliases=tuple(others)) if others else unit

    def visit(self, module: Any, path: str, taken: frozenset[str]) -> Iterator[Unit]:
        """The units of the module and of everything below it; names in `taken` belong to a unit already."""
        if (inner := self.parts.wrapped(module)) is not None:
            module = inner
        if id(module) in self.first_path:
            self.aliases.append((self.first_path[id(module)], path))
            return
        self.first_path[id(module)] = path
        self.modules[path] = module
        found = column_of_class(type(module))
        if found is not None:
            unit = self._layer(module, path, taken, found)
            if unit is not None:
                taken = taken | self._names_of(unit, module, path)
                yield unit
        for one in self.parts.own(module):
            full = join(path, one.name)
            if one.persistent and one.trained:
                self.trained.add(full)
            if one.persistent and full not in taken:
                self.tensors[full] = one.tensor
                yield bare_unit(full, self.framework.name, self._shape(full, one), owner=path)
        for name, child in self.parts.children(module):
            yield from self.visit(child, join(path, name), taken)

    def _layer(
        self, module: Any, path: str, taken: frozenset[str], found: tuple[LayerKind, Column, str, str]
    ) -> Unit | None:
        row, column, family, class_name = found
        inside = {name: one for name, one in self._below(module, "") if join(path, name) not in taken}
        shapes = {name: self._shape(join(path, name), one) for name, one in inside.items()}
        parts = layer_parts(column, path, shapes)
        if not parts:
            return None
        for part in parts:
            self.tensors[part.tensor] = inside[part.tensor[len(path) + 1 :] if path else part.tensor].tensor
        axes = _axes(parts, path, column, self.parts.kept_weights(module))
        return Unit(path, row.kind, family, class_name, parts, axes, owner=path)

    def _names_of(self, unit: Unit, module: Any, path: str) -> frozenset[str]:
        held = {id(self.tensors[name]) for name in unit.tensors}
        # Also second names of the same tensors inside this layer: a recurrent layer of paddle lists each weight twice.
        below = self._below(module, "")
        return frozenset(join(path, name) for name, one in below if id(one.tensor) in held)

    def _shape(self, name: str, one: OwnTensor) -> tuple[int, ...]:
        if not one.has_values:
            raise TransferError(f"'{name}' has no shape yet: run the model once on an input, then transfer.")
        return self.framework.tensors.facts(one.tensor).shape

    def _below(self, module: Any, path: str) -> Iterator[tuple[str, OwnTensor]]:
        for one in self.parts.own(module):
            if one.persistent:
                yield join(path, one.name), one
        for name, child in self.parts.children(module):
            yield from self._below(child, join(path, name))


def _axes(
    parts: tuple[Part, ...], path: str, column: Column, kept: Mapping[str, KeptForm]
) -> tuple[tuple[str, int | None], ...]:
    axes = []
    for weight, form in kept.items():
        found = column.find(weight)
        if found is not None and any(part.canonical.startswith(f"{found.canonical[0]}.") for part in parts):
            axes.append((f"{found.canonical[0]} {form.form}", found.transform.canonical_axis(form.axis)))
    return tuple(sorted(axes))


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(isinstance(one, _PLAIN) for one in value)
    return isinstance(value, _PLAIN)
