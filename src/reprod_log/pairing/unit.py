"""A unit: the smallest piece of a model that is carried over as a whole, described without any framework object.

A unit is a layer of a known kind, or a single tensor that belongs to no such layer (a class token, say).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from reprod_log.layers.layouts import kept_in_other_form
from reprod_log.layers.lookup import layer_kind
from reprod_log.layers.rows import Column, TensorMap
from reprod_log.layers.transform import KEEP, Shape, Transform

# The kind of a unit that is one tensor outside any known layer.
BARE = "Parameter"
# The class name of a unit that is a piece of a layer and cannot be run by itself.
PIECE = "piece"

Signature = tuple[str, tuple[tuple[str, Shape], ...], tuple[tuple[str, int | None], ...]]


@dataclass(frozen=True)
class Part:
    """One canonical tensor of a unit, and where it is stored: which part of which tensor, by which recipe."""

    canonical: str
    tensor: str
    index: int
    transform: Transform
    shape: Shape
    optional: bool = False


@dataclass(frozen=True)
class Unit:
    """One layer or bare tensor: its path, its kind, its canonical parts.

    `axes` holds the canonical axis of every weight norm or spectral norm: layers that normalize over different axes
    have tensors of the same names and sometimes shapes, and are still not the same.
    """

    path: str
    kind: str
    family: str
    class_name: str
    parts: tuple[Part, ...]
    axes: tuple[tuple[str, int | None], ...] = ()
    # The layer whose call computes this unit; differs from the path for a bare tensor or a piece of an attention layer.
    owner: str = field(default="", compare=False)
    # Other paths of the same layer, where a model registers it more than once.
    aliases: tuple[str, ...] = field(default=(), compare=False)

    @property
    def signature(self) -> Signature:
        """What two units must share to be exchangeable: kind, canonical names and shapes, axes of norms."""
        shapes = tuple(sorted((part.canonical, part.shape) for part in self.parts if not part.optional))
        return self.kind, shapes, self.axes

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of the stored tensors, in order."""
        return tuple(dict.fromkeys(part.tensor for part in self.parts))

    def fits(self, other: "Unit") -> bool:
        """Whether the two are exchangeable as a whole."""
        return self.signature == other.signature

    def fits_partly(self, other: "Unit") -> bool:
        """Whether the two are of one kind and agree in what both have, though one has more (a bias, say)."""
        if self.kind != other.kind or self.axes != other.axes:
            return False
        here = {part.canonical: part.shape for part in self.parts if not part.optional}
        there = {part.canonical: part.shape for part in other.parts if not part.optional}
        common = here.keys() & there.keys()
        return bool(common) and all(here[name] == there[name] for name in common)

    def part(self, canonical: str) -> Part | None:
        """The named canonical part."""
        return next((part for part in self.parts if part.canonical == canonical), None)

    def describe(self) -> str:
        """The class and the canonical shapes in a few words, such as "Linear weight (10, 84), bias (10)"."""
        shapes = ", ".join(f"{p.canonical} {_plain(p.shape)}" for p in self.parts if not p.optional)
        norms = "".join(f", {name} over axis {'all' if axis is None else axis}" for name, axis in self.axes)
        return f"{self.title} {shapes}{norms}" if self.kind != BARE else f"{self.kind} {_plain(self.parts[0].shape)}"

    @property
    def title(self) -> str:
        """What a reader calls it: its class, or the kind of layer that it is a piece of."""
        row = layer_kind(self.kind) if self.class_name == PIECE else None
        return self.class_name if row is None else row.title


def _plain(shape: Shape) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"


def layer_parts(column: Column, path: str, shapes: Mapping[str, Shape]) -> tuple[Part, ...]:
    """The canonical parts of the layer at this path; `shapes` has every tensor inside it, by its name in the layer.

    Tensors that the column does not know are left out, and so are second names of a part already found.
    """
    extra = kept_in_other_form(column, shapes.keys())
    parts: dict[str, Part] = {}
    for map_ in _in_order(column, extra, shapes.keys()):
        if not map_.transform.fits(shapes[map_.native]) or any(name in parts for name in map_.canonical):
            continue
        shape = map_.transform.part_shape(shapes[map_.native])
        for index, canonical in enumerate(map_.canonical):
            parts[canonical] = Part(canonical, join(path, map_.native), index, map_.transform, shape, map_.optional)
    return tuple(parts.values())


def _in_order(column: Column, extra: tuple[TensorMap, ...], names: Collection[str]) -> list[TensorMap]:
    found = [match for map_ in column.all_maps for name in names if (match := map_.match(name)) is not None]
    return [*found, *extra]


def bare_unit(path: str, family: str, shape: Shape, *, owner: str) -> Unit:
    """A unit of one tensor that belongs to no known layer.

    Dimensions of size one do not count: (C, 1, 1), (1, C, 1, 1) and (C,) hold the same numbers in the same order.
    """
    squeezed = tuple(size for size in shape if size != 1)
    return Unit(path, BARE, family, BARE, (Part("value", path, 0, KEEP, squeezed),), owner=owner)


def single(unit: Unit, part: Part) -> Unit:
    """One part of a unit as a unit of its own, to be matched by name and shape alone."""
    return replace(unit, path=part.tensor, kind=BARE, parts=(replace(part, canonical="value"),), axes=(), aliases=())


def join(path: str, name: str) -> str:
    """A name below a path; the root's path is empty."""
    return f"{path}.{name}" if path else name
