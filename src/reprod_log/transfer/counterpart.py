"""A layer as the other framework would store it, when no model of that framework is at hand."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from reprod_log.errors import TransferError
from reprod_log.frameworks.module_tree import join
from reprod_log.layers.lookup import layer_kind
from reprod_log.layers.rows import Column, TensorMap
from reprod_log.layers.transform import Shape
from reprod_log.pairing.units import BARE, Part, Unit


@dataclass(frozen=True)
class Counterpart:
    """A unit as the other framework would store it: the shape of each tensor, and second names that it would list."""

    unit: Unit
    shapes: dict[str, Shape]
    second_names: dict[str, str]


def make_counterpart(unit: Unit, family: str) -> Counterpart:
    """The counterpart of a unit in a family; what that family cannot store is refused."""
    if unit.kind == BARE:
        part = unit.parts[0]
        return Counterpart(replace(unit, family=family), {part.tensor: part.shape}, {})
    column = _column(unit, family)
    if any("." in part.canonical and part.canonical.rpartition(".")[2] in _KEPT for part in unit.parts):
        raise TransferError(
            f"'{unit.path}' keeps its weight in the form of weight norm or spectral norm, whose shapes depend on the "
            "other side's layer. Pass both models."
        )
    parts: dict[str, Part] = {}
    shapes: dict[str, Shape] = {}
    for map_ in _maps(column.tensors, unit):
        held = [unit.part(name) for name in map_.canonical]
        found = [part for part in held if part is not None and part.canonical not in parts]
        if len(found) < len(held) or len({part.shape for part in found}) > 1:
            continue
        name = join(unit.path, map_.native)
        shapes[name] = _stored_shape(map_, found[0].shape)
        for index, part in enumerate(found):
            parts[part.canonical] = Part(part.canonical, name, index, map_.transform, part.shape, map_.optional)
    lost = [part.tensor for part in unit.parts if part.canonical not in parts and not part.optional]
    if lost:
        raise TransferError(
            f"'{lost[0]}' ({unit.title}) has no place in {family}'s {column.classes[0]}. Pass both models."
        )
    made = Unit(unit.path, unit.kind, family, column.classes[0], tuple(parts.values()), owner=unit.path)
    return Counterpart(made, shapes, _second_names(column, unit, parts))


_KEPT = ("g", "v", "original", "left", "right")


def _column(unit: Unit, family: str) -> Column:
    row = layer_kind(unit.kind)
    column = None if row is None else row.columns.get(family)
    if column is None or not column.tensors:
        raise TransferError(f"'{unit.path}' is a {unit.title}, which {family} does not have. Pass both models.")
    return column


def _maps(maps: Iterable[TensorMap], unit: Unit) -> Iterator[TensorMap]:
    """The maps that hold any of the unit's parts, with their numbers filled in."""
    canonical = [part.canonical for part in unit.parts]
    both_ways = any(name.endswith("_reverse") for name in canonical)
    for map_ in maps:
        cell = map_.native.partition(".")[2].partition(".")[0]
        if (cell == "cell" and both_ways) or (cell in ("cell_fw", "cell_bw") and not both_ways):
            continue
        yield from dict.fromkeys(found for name in canonical if (found := map_.providing(name)) is not None)


def _second_names(column: Column, unit: Unit, parts: Mapping[str, Part]) -> dict[str, str]:
    if any(part.canonical.startswith("weight_hr") for part in unit.parts):
        # With a projection paddle's second names stand for other tensors; see the row.
        return {}
    maps = _maps(column.second_names, unit)
    return {join(unit.path, map_.native): parts[map_.canonical[0]].tensor for map_ in maps}


def _stored_shape(map_: TensorMap, part: Shape) -> Shape:
    """The shape of a stored tensor whose canonical parts have this shape."""
    transform = map_.transform
    whole = (part[0] * transform.parts, *part[1:]) if transform.parts > 1 else part
    if transform.lead:
        return (*[1] * transform.lead, *whole)
    if transform.axes is None:
        return whole
    shape = [0] * len(whole)
    for position, axis in enumerate(transform.axes):
        shape[axis] = whole[position]
    return tuple(shape)
