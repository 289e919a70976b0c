"""Questions to the two tables: which kind a class is of, which column a layer or an optimizer is written in.

A framework that comes from outside brings its columns with it (`register`), because it cannot edit our tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from reprod_log.recording import ModuleInfo

if TYPE_CHECKING:
    from reprod_log.layers.optimizers import OptimizerColumn
    from reprod_log.layers.rows import Column, LayerKind

PACKAGES = {"torch": "torch.nn", "paddle": "paddle.nn", "paddle.compat": "paddle.compat.nn"}
"""The package that offers a family's layers to a program."""
TENSOR_MAKERS = {"torch": "torch.from_numpy", "paddle": "paddle.to_tensor"}
"""What a program calls to make a tensor of an array, by the top-level module."""
ADDED_TO_A_NORM = {"torch": 1e-6}
"""What a framework adds to the norm of all gradients before it divides by it to clip them; 0 elsewhere."""
_DIALECTS = ("paddle.compat", "flax.mirrored")
"""Parts of a framework whose layers have columns of their own."""

_added: dict[str, Mapping[str, Column]] = {}
added_optimizers: dict[str, Mapping[str, OptimizerColumn]] = {}
"""Columns of optimizers by framework and kind, as they came from outside."""
_caches: list[Any] = []
_Answer = TypeVar("_Answer", bound=Callable[..., Any])


def register(
    framework: str, columns: Mapping[str, Column], optimizers: Mapping[str, OptimizerColumn] | None = None
) -> None:
    """Take in the columns of a framework from outside, by kind; a kind that the tables lack is new."""
    _added[framework] = dict(columns)
    added_optimizers[framework] = dict(optimizers or {})
    for answer in _caches:
        answer.cache_clear()


def of_the_tables(function: _Answer) -> _Answer:
    """A function whose answers depend on the tables alone: kept until another framework brings columns."""
    kept = cache(function)
    _caches.append(kept)
    return kept  # type: ignore[return-value]  # called like the function itself


@of_the_tables
def layer_kinds() -> Mapping[str, LayerKind]:
    """Every kind by its word."""
    # Loaded when first asked: a logger of arrays and a comparison of files without modules do not need the table.
    from reprod_log.layers import further, kinds, rows

    found = {row.kind: row for row in kinds.KINDS}
    for framework, columns in (*further.COLUMNS.items(), *_added.items()):
        for kind, column in columns.items():
            row = found.get(kind, rows.LayerKind(kind, {}))
            found[kind] = replace(row, columns={**row.columns, framework: column})
    return found


def layer_kind(kind: str) -> LayerKind | None:
    """The row of a kind by its word; None for a custom module."""
    return layer_kinds().get(kind)


def kind_title(kind: str) -> str:
    """A kind as people write it ("Linear" for "linear"); any other word as it is."""
    row = layer_kind(kind)
    return kind if row is None else row.title


@of_the_tables
def _by_class() -> Mapping[tuple[str, str], tuple[LayerKind, Column]]:
    return {
        (family, name): (row, column)
        for row in layer_kinds().values()
        for family, column in row.columns.items()
        for name in column.classes
    }


def family_of(type_name: str) -> tuple[str, str]:
    """The family ("torch", "paddle", "paddle.compat", or the top-level package) and the class name of a layer type."""
    module, _, class_name = type_name.rpartition(".")
    dialect = next((one for one in _DIALECTS if module == one or module.startswith(f"{one}.")), None)
    return dialect or module.partition(".")[0], class_name


def find_layer(type_name: str) -> tuple[LayerKind, Column] | None:
    """The row and column of a layer type whose stored tensors are known, such as "torch.nn.modules.linear.Linear"."""
    found = _by_class().get(family_of(type_name))
    return found if found is not None and found[1].tensors else None


def kind_of(type_names: Iterable[str], framework: str) -> str:
    """The kind of a class, known by its own name or that of its nearest ancestor of this framework; "" if none has one.

    The names are dotted ("torch.nn.modules.linear.Linear"), a class's own before those of its ancestors.
    """
    for type_name in type_names:
        if type_name.startswith(f"{framework}."):
            family, class_name = family_of(type_name)
            found = _by_class().get((family, class_name)) or _by_class().get((framework, class_name))
            if found is not None:
                return found[0].kind
    return ""


def running_statistics(module: ModuleInfo) -> dict[str, str]:
    """What a layer keeps of the batches it has seen: canonical to native name ("running_mean" to "_mean")."""
    row, column = layer_kind(module.kind), column_of(module)
    if row is None or column is None:
        return {}
    maps = [map_ for map_ in column.tensors if map_.native in module.parameters]
    return {map_.canonical[0]: map_.native for map_ in maps if map_.canonical[0] in row.moving}


@of_the_tables
def names_of_statistic(canonical: str) -> tuple[str, ...]:
    """What the frameworks call a running statistic, the n-th name of each in one framework."""
    columns = [column for row in layer_kinds().values() if canonical in row.moving for column in row.columns.values()]
    return tuple(map_.native for column in columns for map_ in column.tensors if canonical in map_.canonical)


@of_the_tables
def stored_names() -> frozenset[str]:
    """What layers call the tensors that they keep, in any framework: a path that ends so is a layer's and this name."""
    columns = (column for row in layer_kinds().values() for column in row.columns.values())
    return frozenset(map_.native.rpartition(".")[2] for column in columns for map_ in column.tensors)


def column_of(module: ModuleInfo) -> Column | None:
    """The column that a recorded layer is written in."""
    row = layer_kind(module.kind)
    if row is None:
        return None
    family = family_of(module.origin)[0]
    return row.columns.get(family) or row.columns.get(family.partition(".")[0])
