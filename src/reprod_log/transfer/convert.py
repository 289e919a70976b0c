"""convert_weights: a weight file of one framework into a weight file of another."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from reprod_log.errors import TransferError, UsageError, counted, listed
from reprod_log.frameworks import owner_of_model
from reprod_log.frameworks.checkpoints import OWNERS, owner
from reprod_log.frameworks.installed import USUAL_REFERENCE
from reprod_log.frameworks.module_tree import join
from reprod_log.layers.layouts import is_of_other_form
from reprod_log.layers.lookup import layer_kind
from reprod_log.layers.rows import Column, TensorMap
from reprod_log.layers.transform import Shape
from reprod_log.messages import message
from reprod_log.pairing.links import WeightMap
from reprod_log.pairing.survey import Inputs, Order, Survey, shapes_of, survey
from reprod_log.pairing.units import BARE, Part, Unit, UnitPair, paired_links
from reprod_log.recording import Array
from reprod_log.transfer.file_evidence import Hints, read_evidence
from reprod_log.transfer.files import read_weights, write_weights
from reprod_log.transfer.report import TransferReport, TransferRow, changes
from reprod_log.transfer.weights import How, prepare, refuse_incomplete


def convert_weights(
    source_path: str | PathLike[str],
    target_path: str | PathLike[str],
    *,
    source_model: Any = None,
    target_model: Any = None,
    layers: Mapping[str, str] | None = None,
    linear: Iterable[str] = (),
    keep: Iterable[str] = (),
    entry: str | None = None,
    source_framework: str | None = None,
    target_framework: str | None = None,
    rename: Mapping[str, str] | None = None,
    allow_left: Iterable[str] = (),
    inputs: Inputs | None = None,
    target_inputs: Inputs | None = None,
    order: Order | None = None,
) -> TransferReport:
    """Writes the weights of one file into another in the other framework's names and layout; says what went where.

    Formats go by the file's name: `.pth`, `.pt`, `.bin` (torch), `.pdparams` (paddle), `.safetensors` (torch's names
    unless `source_framework` or `target_framework` says otherwise).

    With both models every layer's type is known and every pair of layers is run, as in `transfer_weights`, whose
    options are the same; the models themselves are not changed. With one model the other side is taken to have the
    same paths. With none, names and shapes must tell: what they do not tell, a square matrix above all, is refused
    unless `layers` (path patterns to types), `linear` or `keep` (patterns) says what it is. Whatever was not run is
    reported as unverified.
    """
    source, target = Path(source_path), Path(target_path)
    frameworks = _frameworks(source, target, source_framework, target_framework)
    weights = read_weights(source, entry=entry)
    if source_model is not None and target_model is not None:
        how = How(rename, allow_left, inputs, target_inputs, order)
        job = _by_models(weights, source_model, target_model, how)
    elif rename or inputs is not None or order is not None:
        raise UsageError("rename, inputs and order need both source_model and target_model.")
    elif source_model is not None or target_model is not None:
        job = _by_one_model(weights, source_model, target_model, frameworks)
    else:
        hints = Hints(layers or {}, _patterns(linear), _patterns(keep))
        job = _by_names(weights, frameworks, hints)
    arrays = job.plan.apply(weights.__getitem__) | dict(job.extra)
    arrays |= {name: arrays[first] for name, first in job.second_names.items() if first in arrays}
    write_weights(target, arrays, framework=frameworks[1])
    return job.report


@dataclass(frozen=True)
class _Job:
    """A plan in the names of the two files, what else the target's file holds, and the report."""

    plan: WeightMap
    report: TransferReport
    second_names: Mapping[str, str]
    extra: Mapping[str, Array]


def _frameworks(
    source: Path, target: Path, source_framework: str | None, target_framework: str | None
) -> tuple[str, str]:
    known = list(dict.fromkeys(one for one in OWNERS.values() if one))
    for given in (source_framework, target_framework):
        if given is not None and given not in known:
            raise UsageError(f"A framework is {' or '.join(map(repr, known))}, not {given!r}.")
    return source_framework or owner(source) or USUAL_REFERENCE, target_framework or owner(target) or USUAL_REFERENCE


def _patterns(value: Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _by_models(weights: dict[str, Array], source_model: Any, target_model: Any, how: How) -> _Job:
    prepared = prepare(source_model, target_model, how, verify=True)
    refuse_incomplete(prepared.report, "raise")
    _add_second_names(weights, prepared.source)
    _refuse_other_tensors(weights, prepared.source, [name for link in prepared.plan.links for name in link.sources])
    moved = {link.target for link in prepared.plan.links}
    second, extra = _state_names(prepared.target, moved)
    return _Job(prepared.plan, prepared.report, second, extra)


def _by_one_model(weights: dict[str, Array], source_model: Any, target_model: Any, frameworks: tuple[str, str]) -> _Job:
    model, side = (source_model, 0) if source_model is not None else (target_model, 1)
    owner = owner_of_model(model).name
    if owner != frameworks[side]:
        raise UsageError(f"The model is of {owner}, but its file is one of {frameworks[side]}.")
    found = survey(model)
    _refuse_unknown_shapes(found)
    made = [_make_counterpart(unit, frameworks[1 - side]) for unit in found.units]
    shapes = {name: shape for one in made for name, shape in one.shapes.items()}
    if side == 0:
        pairs = [UnitPair(unit, one.unit, "name") for unit, one in zip(found.units, made, strict=True)]
        _add_second_names(weights, found)
        _refuse_other_tensors(weights, found, ())
        second = {k: v for one in made for k, v in one.second_names.items()}
        return _job(pairs, shapes, weights, frameworks, second)
    pairs = [UnitPair(one.unit, unit, "name") for unit, one in zip(found.units, made, strict=True)]
    _refuse_missing(weights, shapes)
    job = _job(pairs, shapes_of(found), weights, frameworks, {})
    second, extra = _state_names(found, {link.target for link in job.plan.links})
    return replace(job, second_names=second, extra=extra)


def _refuse_unknown_shapes(found: Survey) -> None:
    """A weight over several dims that one framework keeps flat has a shape in the other that only its model tells."""
    for unit in found.units:
        row = layer_kind(unit.kind)
        dims = None if row is None else found.info(unit).settings.get(row.spans)
        if isinstance(dims, (tuple, list)) and len(dims) > len(found.shape(unit.tensors[0])):
            raise TransferError(f"'{unit.path}' is a {unit.title} over {list(dims)}: pass both models.")


def _by_names(weights: dict[str, Array], frameworks: tuple[str, str], hints: Hints) -> _Job:
    shapes = {name: array.shape for name, array in weights.items()}
    evidence = read_evidence(shapes, frameworks[0], hints)
    if evidence.undecided:
        why = "; ".join(list(evidence.undecided.values())[:5])
        raise TransferError(
            f"{counted(len(evidence.undecided), 'tensor')} could be one thing or another: {why}. Give a "
            "model, or say what they are with linear=(...), keep=(...) or layers={...}. Nothing was written."
        )
    made = [_make_counterpart(unit, frameworks[1]) for unit in evidence.units]
    pairs = [UnitPair(unit, one.unit, "name") for unit, one in zip(evidence.units, made, strict=True)]
    shapes = {name: shape for one in made for name, shape in one.shapes.items()}
    return _job(pairs, shapes, weights, frameworks, {k: v for one in made for k, v in one.second_names.items()})


def _job(
    pairs: Iterable[UnitPair],
    shapes: Mapping[str, Shape],
    weights: Mapping[str, Array],
    frameworks: tuple[str, str],
    second: Mapping[str, str],
) -> _Job:
    """What the pairs say of the file; `shapes` are the target's."""
    layers = {name: (pair.source, pair.target) for pair in pairs for name in pair.target.tensors}
    plan = WeightMap(tuple(paired_links(pairs, shapes, {name: array.shape for name, array in weights.items()})))
    why = message("transfer.check.names_only")
    rows = tuple(TransferRow.of(link, layers[link.target], "unverified", why, changes(link)) for link in plan.links)
    return _Job(plan, TransferReport(*frameworks, rows, plan=plan), second, {})


def _add_second_names(weights: dict[str, Array], found: Survey) -> None:
    """Tensors that the file has only under another of their names become known under the survey's."""
    by_first = {first: weights[name] for name, first in found.live.file_names().items() if name in weights}
    for name in found.names:
        if name not in weights and found.first_name(name) in by_first:
            weights[name] = by_first[found.first_name(name)]


def _refuse_other_tensors(weights: Mapping[str, Array], found: Survey, needed: Iterable[str]) -> None:
    """The source's file must be of the source's model: all its tensors, no others, of its shapes."""
    required = needed or dict.fromkeys(p.tensor for unit in found.units for p in unit.parts if not p.optional)
    _refuse_missing(weights, {name: found.shape(name) for name in required})
    known = {*found.live.file_names(), *found.names}
    strange = [name for name in weights if name not in known]
    if strange:
        raise TransferError(
            f"The file holds tensors that the source model lacks: {listed(strange)}. Nothing was written."
        )


def _refuse_missing(weights: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> None:
    missing = [name for name in shapes if name not in weights]
    if missing:
        raise TransferError(
            f"The file lacks {counted(len(missing), 'tensor')}: {listed(missing)}. It has "
            f"{listed(weights)}. Nothing was written."
        )
    wrong = [name for name, shape in shapes.items() if weights[name].shape != shape]
    if wrong:
        name = wrong[0]
        raise TransferError(
            f"'{name}' is {weights[name].shape} in the file and {shapes[name]} in the model ({len(wrong)} such "
            "tensors). Nothing was written."
        )


def _state_names(target: Survey, moved: set[str]) -> tuple[dict[str, str], dict[str, Array]]:
    """Further names under which the target's model lists its tensors, and tensors of its own that nothing fills."""
    by_first = {target.first_name(name): name for name in moved}
    optional = {part.tensor for unit in target.units for part in unit.parts if part.optional}
    second, extra = {}, {}
    for name, first in target.live.file_names().items():
        if first in by_first:
            if name not in moved:
                second[name] = by_first[first]
        elif name in optional:
            extra[name] = target.read(name)
    return second, extra


# ---- the other side's layers, when no model of it is at hand ---------------------------------------------------------
@dataclass(frozen=True)
class _Counterpart:
    """A unit as the other framework would store it: the shape of each tensor, and second names that it would list."""

    unit: Unit
    shapes: dict[str, Shape]
    second_names: dict[str, str]


def _make_counterpart(unit: Unit, family: str) -> _Counterpart:
    """The counterpart of a unit in a family; what that family cannot store is refused."""
    if unit.kind == BARE:
        part = unit.parts[0]
        return _Counterpart(replace(unit, family=family), {part.tensor: part.shape}, {})
    column = _column(unit, family)
    if any(is_of_other_form(part.canonical) for part in unit.parts):
        raise TransferError(
            f"'{unit.path}' keeps its weight in the form of weight norm or spectral norm, whose shapes depend on the "
            "other side's layer. Pass both models."
        )
    parts: dict[str, Part] = {}
    shapes: dict[str, Shape] = {}
    for map_ in _maps_of(column.tensors, unit):
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
    return _Counterpart(made, shapes, _second_names_of(column, unit, parts))


def _column(unit: Unit, family: str) -> Column:
    row = layer_kind(unit.kind)
    column = None if row is None else row.columns.get(family)
    if column is None or not column.tensors:
        raise TransferError(f"'{unit.path}' is a {unit.title}, which {family} does not have. Pass both models.")
    return column


def _maps_of(maps: Iterable[TensorMap], unit: Unit) -> Iterator[TensorMap]:
    """The maps that hold any of the unit's parts, with their numbers filled in."""
    canonical = [part.canonical for part in unit.parts]
    both_ways = any(name.endswith("_reverse") for name in canonical)
    for map_ in maps:
        cell = map_.native.partition(".")[2].partition(".")[0]
        if (cell == "cell" and both_ways) or (cell in ("cell_fw", "cell_bw") and not both_ways):
            continue
        yield from dict.fromkeys(found for name in canonical if (found := map_.providing(name)) is not None)


def _second_names_of(column: Column, unit: Unit, parts: Mapping[str, Part]) -> dict[str, str]:
    if any(part.canonical.startswith("weight_hr") for part in unit.parts):
        # With a projection paddle's second names stand for other tensors; see the row.
        return {}
    maps = _maps_of(column.second_names, unit)
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
