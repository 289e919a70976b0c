"""What the names and shapes in a weight file say about the layers they came from, and where they say too little."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from reprod_log.errors import UsageError
from reprod_log.frameworks.module_tree import join
from reprod_log.layers.lookup import find_layer, layer_kind, layer_kinds, names_of_statistic
from reprod_log.layers.rows import Column, LayerKind
from reprod_log.layers.transform import KEEP, Shape
from reprod_log.pairing.names import words
from reprod_log.pairing.units import Unit, bare_unit, layer_parts

# A recurrent layer's matrices have so many times as many rows as its state has entries.
_GATES = {4: "lstm", 3: "gru", 1: "rnn"}


@dataclass(frozen=True)
class Hints:
    """What the user says about a file: layer types by path pattern, linear layers, tensors to keep as they are."""

    layers: Mapping[str, str]
    linear: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """The units that names and shapes tell of, and the tensors that could be one thing or another, with why."""

    units: tuple[Unit, ...]
    undecided: Mapping[str, str]


def read_evidence(shapes: Mapping[str, Shape], framework: str, hints: Hints) -> Evidence:
    """The units of a file of this framework."""
    units: list[Unit] = []
    undecided: dict[str, str] = {}
    taken: set[str] = set()
    for path in _layer_paths(shapes):
        inside = {
            name[len(path) + 1 :] if path else name: shape for name, shape in shapes.items() if _below(name, path)
        }
        inside = {name: shape for name, shape in inside.items() if join(path, name) not in taken}
        found = _kind(path, inside, framework, hints)
        if isinstance(found, str):
            undecided[join(path, "weight")] = found
        elif found is not None:
            row, column = found
            unit = Unit(path, row.kind, framework, row.title, layer_parts(column, path, inside), owner=path)
            units.append(unit)
            taken.update(unit.tensors)
            taken.update(_second_names(unit, path, column, inside))
    rest = [name for name in shapes if name not in taken and name not in undecided]
    units += [bare_unit(name, framework, shapes[name], owner="") for name in rest]
    return Evidence(tuple(units), undecided)


def _layer_paths(shapes: Iterable[str]) -> list[str]:
    """Every prefix of a name, outer ones first: an attention or recurrent layer claims what lies below it."""
    prefixes = {".".join(name.split(".")[:end]) for name in shapes for end in range(name.count(".") + 1)}
    return sorted(prefixes, key=lambda path: (path.count(".") if path else -1, path))


def _below(name: str, path: str) -> bool:
    return not path or name.startswith(f"{path}.")


def _kind(
    path: str, inside: Mapping[str, Shape], framework: str, hints: Hints
) -> tuple[LayerKind, Column] | str | None:
    type_name = next((kind for pattern, kind in hints.layers.items() if fnmatchcase(path, pattern)), None)
    if type_name is not None:
        return _of_type(type_name, framework)
    own = {name: shape for name, shape in inside.items() if "." not in name}
    if "in_proj_weight" in own or ("q_proj_weight" in own and "out_proj.weight" in inside):
        return _row("multihead_attention", framework)
    if (kind := _recurrent(inside)) is not None:
        return _row(kind, framework)
    if own.keys() & set(names_of_statistic("running_mean")):
        return _row("batchnorm", framework)
    if (found := _by_own_name(own, framework)) is not None:
        return found
    if "weight" in own:
        return _by_weight(path, own, framework, hints)
    return None


def _of_type(type_name: str, framework: str) -> tuple[LayerKind, Column]:
    """The row and column for a type as the user writes it: "torch.nn.Linear", "Conv2D", "BatchNorm"."""
    found = find_layer(type_name) if "." in type_name else None
    if found is None:
        name = type_name.rpartition(".")[2]
        rows = [row for row in layer_kinds().values() if any(column.tensors for column in row.columns.values())]
        named = [row for row in rows if any(name in (row.title, *column.classes) for column in row.columns.values())]
        found = _find(named[0].kind, framework) if named else None
    if found is None:
        known = ", ".join(row.title for row in rows)
        raise UsageError(f"layers names the type {type_name!r}, for which there is no rule. Rules: {known}.")
    return found


def _by_weight(
    path: str, own: Mapping[str, Shape], framework: str, hints: Hints
) -> tuple[LayerKind, Column] | str | None:
    shape, bias = own["weight"], own.get("bias")
    name = join(path, "weight")
    if _matches(hints.keep, path, name):
        return None
    if _matches(hints.linear, path, name):
        return _row("linear", framework)
    if len(shape) in (3, 4, 5):
        # Kernels are stored alike, plain or transposed, in any number of dimensions.
        return _row(f"conv{len(shape) - 2}d", framework)
    if len(shape) == 1:
        prelu = bias is None and "prelu" in words(path)
        return _row("prelu" if prelu else "layernorm", framework)
    if len(shape) != 2:
        return None
    if bias is None:
        if words(path) & {"embed", "embeddings", "wte", "wpe"}:
            return _row("embedding", framework)
        return f"'{name}' {shape} has no bias: a linear layer (transposed) or an embedding (as it is)?"
    if shape[0] == shape[1]:
        return f"'{name}' {shape} is square: its layout is unknown"
    # A dialect may keep another layout than its framework (paddle.compat.nn that of torch).
    linear = layer_kind("linear")
    assert linear is not None
    for family, column in linear.columns.items():
        stored = column.find("weight")
        outputs_first = stored is not None and stored.transform == KEEP
        if family.partition(".")[0] == framework and outputs_first == (bias == shape[:1]):
            return linear, column
    return None


def _by_own_name(own: Mapping[str, Shape], framework: str) -> tuple[LayerKind, Column] | None:
    """The one kind of layer that gives a vector a name of the framework's own ("scale" for a weight)."""
    for row in layer_kinds().values():
        column = row.columns.get(framework, Column(()))
        for map_ in column.tensors:
            if map_.native not in map_.canonical and map_.trained and len(own.get(map_.native, ())) == 1:
                return row, column
    return None


def _recurrent(inside: Mapping[str, Shape]) -> str | None:
    for first, second, end in (
        ("weight_ih_l0", "weight_hh_l0", ""),
        ("0.cell.weight_ih", "0.cell.weight_hh", ""),
        ("0.cell_fw.weight_ih", "0.cell_fw.weight_hh", ""),
        ("weight_ih", "weight_hh", "_cell"),
    ):
        if first in inside and second in inside and len(inside[second]) == 2:
            rows, state = inside[second]
            # A projection makes the state smaller than a gate.
            projected = any(name.rpartition(".")[2].startswith(("weight_hr", "weight_ho")) for name in inside)
            gates = 4 if projected else rows // state
            return _GATES[gates] + end if gates in _GATES else None
    return None


def _second_names(unit: Unit, path: str, column: Column, inside: Mapping[str, Shape]) -> list[str]:
    """Names that stand for a part already found under another name."""
    held = {part.canonical for part in unit.parts}
    return [
        join(path, name)
        for name in inside
        if (found := column.find(name)) is not None and held.issuperset(found.canonical)
    ]


def _matches(patterns: Sequence[str], *names: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def _row(kind: str, family: str) -> tuple[LayerKind, Column]:
    found = _find(kind, family)
    if found is None:
        raise UsageError(f"There is no rule for {kind} of {family}.")
    return found


def _find(kind: str, family: str) -> tuple[LayerKind, Column] | None:
    row = layer_kind(kind)
    column = None if row is None else row.columns.get(family)
    return None if row is None or column is None or not column.tensors else (row, column)
