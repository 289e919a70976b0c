"""A live model as pairing sees it: its units, its tensors, and one run of the whole."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from glob import escape
from typing import Any, Literal

import numpy as np

from reprod_log.capture.live import LiveModel, live_model
from reprod_log.errors import TransferError, UsageError, first_line
from reprod_log.frameworks.contract import KeptForm, LayerCall, ModuleFacts, StateFacts
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.tensors import is_floating, plain_batch
from reprod_log.layers.lookup import column_of, family_of, find_layer, layer_kind
from reprod_log.layers.rows import Column, LayerFacts, LayerKind
from reprod_log.pairing.units import BARE, Part, Unit, bare_unit, layer_parts
from reprod_log.recording import Array, ModuleInfo

Order = Literal["registration", "execution"]
Inputs = Mapping[str, Any] | tuple[Any, ...] | list[Any] | Array
"""What a whole model is called with: arrays by parameter name, a sequence of arrays, or a single one."""


@dataclass(frozen=True)
class Survey:
    """A live model with its units in the order of registration."""

    live: LiveModel
    units: tuple[Unit, ...]
    state: Mapping[str, StateFacts]
    """Every tensor by the name that units know it by, and by its others."""

    @property
    def framework(self) -> str:
        """The name of the model's framework."""
        return self.live.framework.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tensors of the units."""
        return tuple(dict.fromkeys(name for unit in self.units for name in unit.tensors))

    @property
    def trained(self) -> frozenset[str]:
        """The names of parameters, the frozen ones too."""
        return frozenset(name for name, one in self.state.items() if one.trained)

    def first_name(self, name: str) -> str:
        """The first name of the same tensor: equal for tied weights."""
        return self.state[name].first

    def shape(self, name: str) -> tuple[int, ...]:
        """The named tensor's shape."""
        shape = self.state[name].shape
        if shape is None:
            raise TransferError(f"'{name}' has no shape yet: run the model once on an input, then transfer.")
        return shape

    def dtype(self, name: str) -> str:
        """The named tensor's dtype."""
        return self.state[name].dtype

    @cached_property
    def holders(self) -> Mapping[str, Unit]:
        """The unit that holds each tensor, by the tensor's first name."""
        found: dict[str, Unit] = {}
        for unit in self.units:
            for name in unit.tensors:
                found.setdefault(self.first_name(name), unit)
        return found

    def read(self, name: str) -> Array:
        """A copy of the named tensor's values."""
        return self.live.read(name)

    def info(self, unit: Unit) -> ModuleInfo:
        """The unit's live layer as a recording would describe it."""
        module = next(one for one in self.live.modules if one.path == unit.path)
        type_name = module.classes[0].rpartition(".")[2]
        origin = f"{unit.family}.{unit.class_name}"
        return ModuleInfo(unit.path, type_name, unit.kind, origin=origin, settings=module.settings)

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
    """The units of a live model."""
    live = live_model(model)
    state = {join(one.path, name): facts for one in live.modules for name, facts in one.inside.items()}
    found = Survey(live, (), state)
    return replace(found, units=tuple(_units(found)))


def _units(found: Survey) -> Iterator[Unit]:
    """All units in the order of registration; a name belongs to one of them."""
    modules = found.live.modules
    taken: dict[str | None, frozenset[str]] = {None: frozenset()}
    for module in modules:
        path, held = module.path, taken[module.parent]
        layer = column_of_classes(module.classes)
        unit = None if layer is None else _live_layer(found, module, held, layer)
        if unit is not None:
            held = held | _names_of(found, unit, module)
            yield _with_aliases(unit, modules)
        taken[path] = held
        for name in module.own:
            full = join(path, name)
            if full not in held:
                bare = bare_unit(full, found.framework, found.shape(full), owner=path)
                yield _with_aliases(bare, modules)


def _with_aliases(unit: Unit, modules: Iterable[ModuleFacts]) -> Unit:
    """The unit with its other paths, where the model has its layer, or one around it, more than once."""
    others = [
        again + unit.path[len(one.path) :]
        for one in modules
        for again in one.aliases
        if unit.path == one.path or unit.path.startswith(f"{one.path}.")
    ]
    return replace(unit, aliases=tuple(others)) if others else unit


def column_of_classes(classes: Iterable[str]) -> tuple[LayerKind, Column, str, str] | None:
    """The kind, column, family and class name of the first of these classes (dotted names) that the table has."""
    for type_name in classes:
        found = find_layer(type_name)
        if found is not None:
            return (*found, *family_of(type_name))
    return None


def _live_layer(
    found: Survey, module: ModuleFacts, taken: frozenset[str], layer: tuple[LayerKind, Column, str, str]
) -> Unit | None:
    row, column, family, class_name = layer
    path = module.path
    inside = [name for name in module.inside if join(path, name) not in taken]
    parts = layer_parts(column, path, {name: found.shape(join(path, name)) for name in inside})
    if not parts:
        return None
    return Unit(path, row.kind, family, class_name, parts, _axes(parts, path, column, module.kept), owner=path)


def _names_of(found: Survey, unit: Unit, module: ModuleFacts) -> frozenset[str]:
    """The names of the unit's tensors inside its layer: a recurrent layer may list each weight twice."""
    held = {found.first_name(name) for name in unit.tensors}
    return frozenset(join(module.path, name) for name, one in module.inside.items() if one.first in held)


def _axes(
    parts: tuple[Part, ...], path: str, column: Column, kept: Mapping[str, KeptForm]
) -> tuple[tuple[str, int | None], ...]:
    axes = []
    for weight, form in kept.items():
        found = column.find(weight)
        if found is not None and any(part.canonical.startswith(f"{found.canonical[0]}.") for part in parts):
            axes.append((f"{found.canonical[0]} {form.form}", found.transform.canonical_axis(form.axis)))
    return tuple(sorted(axes))


def shapes_of(survey: Survey) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor by name."""
    return {name: survey.shape(name) for name in survey.names}


def run_model(survey: Survey, inputs: Inputs, arrays: Mapping[str, Array], *, side: str) -> dict[str, LayerCall]:
    """The first call of every unit's layer by path, in the order in which the calls ended.

    The whole model runs in evaluation mode, with some tensors (by name) holding other values for the time.
    """
    arguments, keywords = _call_form(inputs)
    paths = dict.fromkeys(unit.owner for unit in survey.units)
    try:
        return survey.live.calls(arguments, keywords, paths=paths, arrays=arrays)
    except Exception as error:  # a model's forward pass may raise anything at all
        raise TransferError(
            f"The {side} model ({survey.framework}) could not be run on the inputs: {first_line(error)}"
        ) from error


def _call_form(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    inputs = plain_batch(inputs)
    if isinstance(inputs, np.ndarray):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    raise UsageError(
        f"inputs must be an array, a tuple of arrays, or a dict of arrays by their names; got {type(inputs).__name__}"
    )


def loose_buffers(model: Any) -> list[str]:
    """Names of the tensors that are not trained and belong to no known layer, as patterns that fit nothing else."""
    found = survey(model)
    names = [unit.path for unit in found.units if unit.kind == BARE]
    return [escape(name) for name in names if name not in found.trained]


def generic_values(survey: Survey) -> dict[str, Array]:
    """The model's values, each a little off in its own way, by name.

    Fresh weights hide mistakes: all norms are ones and zeros, all biases zero, and exchanging two of them changes
    nothing. Perturbed by name, every tensor is different from every other.
    """
    holders: defaultdict[str, list[tuple[str, Unit]]] = defaultdict(list)
    for unit in survey.units:
        for name in unit.tensors:
            holders[survey.first_name(name)].append((name, unit))
    result: dict[str, Array] = {}
    for held in holders.values():
        # Tied weights are one tensor and get one perturbation.
        name, _ = held[0]
        array = survey.read(name)
        units = [unit for _, unit in held]
        trained = name in survey.trained or any(unit.kind != BARE for unit in units)
        if trained and is_floating(array):
            array = _shaken(array, name, units)
        result.update((other, array) for other, _ in held)
    return result


def _shaken(array: Array, name: str, units: list[Unit]) -> Array:
    seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    random = np.random.default_rng(seed)
    wide = array.astype(np.float64)
    # Factors stay positive, so that a variance stays one.
    shaken = wide * (1.0 + 0.2 * random.random(wide.shape))
    if not any(_only_scaled(unit, name) for unit in units):
        size = float(np.sqrt(np.mean(np.square(wide)))) if wide.size else 0.0
        size = size if 0.0 < size < np.inf else 1.0
        shaken = shaken + 0.1 * size * random.standard_normal(wide.shape)
    return shaken.astype(array.dtype)


def _only_scaled(unit: Unit, name: str) -> bool:
    """Whether nothing may be added to the values: zeros that have a meaning, and variances."""
    row = layer_kind(unit.kind)
    if row is not None and row.scale_only:
        return True
    return any(part.canonical == "running_var" and part.tensor == name for part in unit.parts)
