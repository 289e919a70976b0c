"""The units of a recorded model: what transfer knows about layers, read from a recording instead of a live model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reprod_log.layers.lookup import family_of, find_layer
from reprod_log.pairing.unit import Unit, bare_unit, join, layer_parts
from reprod_log.recording import ModuleInfo, Recording

_TENSOR_PHASES = ("gradient", "parameter", "update", "buffer")


def recorded_units(recording: Recording) -> tuple[Unit, ...]:
    """Every layer whose kind is known, and every tensor outside of one, in the order of registration."""
    tensors = _tensors(recording.modules)
    recorded = frozenset(entry.key.path for entry in recording.of_run("") if entry.key.phase in _TENSOR_PHASES)
    below = _by_ancestor(tensors)
    units: list[Unit] = []
    taken: set[str] = set()
    inside: set[str] = set()
    for module in recording.modules:
        if not inside.isdisjoint(_ancestors(module.path)):
            continue
        own = {name: tensors[name] for name in below.get(module.path, ()) if name not in taken}
        unit = _layer(module, own, recorded)
        if unit is not None:
            units.append(unit)
            # What lies inside a known layer (an attention layer's projections) belongs to it.
            inside.add(module.path)
            taken.update(below[module.path])
            continue
        for name, shape in module.parameters.items():
            full = join(module.path, name)
            if full not in taken:
                taken.add(full)
                units.append(bare_unit(full, recording.provenance.framework, shape, owner=module.path))
    return tuple(units)


def _tensors(modules: tuple[ModuleInfo, ...]) -> dict[str, tuple[int, ...]]:
    return {join(module.path, name): shape for module in modules for name, shape in module.parameters.items()}


def _layer(module: ModuleInfo, tensors: Mapping[str, tuple[int, ...]], recorded: frozenset[str]) -> Unit | None:
    found = find_layer(module.origin)
    if found is None:
        return None
    row, column = found
    prefix = f"{module.path}." if module.path else ""
    own = {name[len(prefix) :]: shape for name, shape in tensors.items()}
    # paddle's recurrent layers list every weight under two names; entries were recorded under one of them.
    parts = layer_parts(column, module.path, {n: s for n, s in own.items() if prefix + n in recorded} or own)
    if not parts:
        return None
    family, class_name = family_of(module.origin)
    return Unit(module.path, row.kind, family, class_name, parts, owner=module.path)


def _by_ancestor(tensors: Iterable[str]) -> dict[str, list[str]]:
    """The names of all tensors inside every module, by its path."""
    found: dict[str, list[str]] = {}
    for name in tensors:
        for path in _ancestors(name):
            found.setdefault(path, []).append(name)
    return found


def _ancestors(path: str) -> list[str]:
    """The paths of everything that a path lies in, the root's included; the root lies in nothing."""
    words = path.split(".") if path else []
    return [".".join(words[:end]) for end in range(len(words))]
