"""The units of a recorded model: what transfer knows about layers, read from a recording instead of a live model."""

from __future__ import annotations

from collections.abc import Mapping

from reprod_log.record import ModuleInfo, Recording
from reprod_log.transfer.layouts import family_of, find_rule
from reprod_log.transfer.unit import Unit, bare_unit, join, layer_parts

_TENSOR_PHASES = ("gradient", "parameter", "update", "buffer")


def recorded_units(recording: Recording) -> tuple[Unit, ...]:
    """Every layer that a rule knows, and every tensor outside of one, in the order of registration."""
    tensors = _tensors(recording.modules)
    recorded = frozenset(entry.key.path for entry in recording.of_run("") if entry.key.phase in _TENSOR_PHASES)
    units: list[Unit] = []
    taken: set[str] = set()
    inside: tuple[str, ...] = ()
    for module in recording.modules:
        if inside and _below(module.path, inside):
            continue
        unit = _layer(module, tensors, taken, recorded)
        if unit is not None:
            units.append(unit)
            # What lies inside a known layer (an attention layer's projections) belongs to it.
            inside = (*inside, module.path)
            taken.update(name for name in tensors if _below(name, (module.path,)) or module.path == "")
            continue
        for name, shape in module.parameters.items():
            full = join(module.path, name)
            if full not in taken:
                taken.add(full)
                units.append(bare_unit(full, recording.provenance.framework, shape, owner=module.path))
    return tuple(units)


def _tensors(modules: tuple[ModuleInfo, ...]) -> dict[str, tuple[int, ...]]:
    return {join(module.path, name): shape for module in modules for name, shape in module.parameters.items()}


def _layer(
    module: ModuleInfo, tensors: Mapping[str, tuple[int, ...]], taken: set[str], recorded: frozenset[str]
) -> Unit | None:
    found = find_rule(module.origin)
    if found is None:
        return None
    rule, layout = found
    prefix = f"{module.path}." if module.path else ""
    own = {
        name[len(prefix) :]: shape for name, shape in tensors.items() if name.startswith(prefix) and name not in taken
    }
    # paddle's recurrent layers list every weight under two names; entries were recorded under one of them.
    parts = layer_parts(layout, module.path, {n: s for n, s in own.items() if prefix + n in recorded} or own)
    if not parts:
        return None
    family, class_name = family_of(module.origin)
    return Unit(module.path, rule.kind, family, class_name, parts, owner=module.path)


def _below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path.startswith(f"{root}.") for root in roots)
