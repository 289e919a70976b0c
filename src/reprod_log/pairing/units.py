"""Units: the smallest pieces of a model that are transferred as a whole, of live models and of recorded ones.

A unit is a layer of a known kind, or a single tensor that belongs to no such layer (a class token, say). It is
described without any framework object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from reprod_log.frameworks.module_tree import join
from reprod_log.layers.layouts import Piece, TensorView, kept_in_other_form
from reprod_log.layers.lookup import family_of, find_layer, layer_kind
from reprod_log.layers.rows import Column, TensorMap
from reprod_log.layers.transform import KEEP, Shape, Transform
from reprod_log.pairing.links import Link
from reprod_log.recording import ModuleInfo, Recording

# The kind of a unit that is one tensor outside any known layer.
BARE = "Parameter"
# The class name of a unit that is a piece of a layer and cannot be run by itself.
PIECE = "piece"
Signature = tuple[str, tuple[tuple[str, Shape], ...], tuple[tuple[str, int | None], ...]]
PairedBy = Literal[
    "name", "rename", "only fit", "close name", "numbering", "role", "registration order", "execution order", "values"
]  # fmt: skip
"""What decided that two units are partners."""
NAMED: frozenset[str] = frozenset({"name", "rename"})
"""What values do not put in question."""
_ROLES = ("q", "k", "v")
_TENSOR_PHASES = ("gradient", "parameter", "update", "buffer")


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

    def fits(self, other: Unit) -> bool:
        """Whether the two are exchangeable as a whole."""
        return self.signature == other.signature

    def fits_partly(self, other: Unit) -> bool:
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
        shapes = ", ".join(f"{p.canonical} {_shape_text(p.shape)}" for p in self.parts if not p.optional)
        norms = "".join(f", {name} over axis {'all' if axis is None else axis}" for name, axis in self.axes)
        return (
            f"{self.title} {shapes}{norms}" if self.kind != BARE else f"{self.kind} {_shape_text(self.parts[0].shape)}"
        )

    @property
    def title(self) -> str:
        """What a reader calls it: its class, or the kind of layer that it is a piece of."""
        row = layer_kind(self.kind) if self.class_name == PIECE else None
        return self.class_name if row is None else row.title


def _shape_text(shape: Shape) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"


@dataclass(frozen=True)
class UnitPair:
    """A unit of the source and the unit of the target that it goes to; `how` says what paired them."""

    source: Unit
    target: Unit
    how: PairedBy

    @property
    def is_whole(self) -> bool:
        """Whether whole layers are paired, and not parts of them or single tensors."""
        return self.source.kind != BARE and PIECE not in (self.source.class_name, self.target.class_name)


def without_pairs(
    ours: Iterable[Unit], theirs: Iterable[Unit], pairs: Iterable[UnitPair]
) -> tuple[tuple[Unit, ...], tuple[Unit, ...]]:
    """The units of both sides that have no partner yet."""
    pairs = list(pairs)
    here, there = {pair.source.path for pair in pairs}, {pair.target.path for pair in pairs}
    return tuple(one for one in ours if one.path not in here), tuple(one for one in theirs if one.path not in there)


def layer_parts(column: Column, path: str, shapes: Mapping[str, Shape]) -> tuple[Part, ...]:
    """The canonical parts of the layer at this path; `shapes` has every tensor inside it, by its name in the layer.

    Tensors that the column does not know are left out, and so are second names of a part already found.
    """
    extra = kept_in_other_form(column, shapes.keys())
    parts: dict[str, Part] = {}
    for map_ in _maps_in_order(column, extra, shapes.keys()):
        if not map_.transform.fits(shapes[map_.native]) or any(name in parts for name in map_.canonical):
            continue
        shape = map_.transform.part_shape(shapes[map_.native])
        for index, canonical in enumerate(map_.canonical):
            parts[canonical] = Part(canonical, join(path, map_.native), index, map_.transform, shape, map_.optional)
    return tuple(parts.values())


def _maps_in_order(column: Column, extra: tuple[TensorMap, ...], names: Collection[str]) -> list[TensorMap]:
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


def vectors_apart(units: Iterable[Unit]) -> list[Unit]:
    """The tensors outside of layers, and those of layers of vectors alone: a norm may be written by hand."""
    return [
        unit if unit.kind == BARE else single(unit, part)
        for unit in units
        if all(len(part.shape) == 1 for part in unit.parts)
        for part in unit.parts
        if not part.optional
    ]


def take_apart(sources: Iterable[Unit], targets: Iterable[Unit]) -> tuple[tuple[Unit, ...], tuple[Unit, ...]]:
    """Both lists with every unit taken apart that has no partner as a whole but has one in pieces."""
    sources, targets = tuple(sources), tuple(targets)
    return _split_list(sources, targets), _split_list(targets, sources)


def _split_list(units: tuple[Unit, ...], others: tuple[Unit, ...]) -> tuple[Unit, ...]:
    mine: Counter[Signature] = Counter(unit.signature for unit in units)
    whole: Counter[Signature] = Counter(unit.signature for unit in others)
    available = whole + Counter(
        piece.signature for other in others if not mine[other.signature] for piece in _pieces(other)
    )
    result: list[Unit] = []
    for unit in units:
        pieces = [] if whole[unit.signature] else _pieces(unit)
        wanted = bool(pieces) and all(available[piece.signature] for piece in pieces)
        result += pieces if wanted else [unit]
    return tuple(result)


def _pieces(unit: Unit) -> list[Unit]:
    if unit.kind == "multihead_attention" and unit.part("bias_k") is None:
        return [_piece(unit, role) for role in (*_ROLES, "out")]
    weight = unit.part("weight")
    if unit.kind == "linear" and weight is not None and weight.shape[0] % 3 == 0:
        return [_third(unit, index) for index in range(3)]
    return []


def _piece(unit: Unit, role: str) -> Unit:
    parts = [replace(p, canonical=p.canonical.split(".")[1]) for p in unit.parts if p.canonical.startswith(f"{role}.")]
    return Unit(f"{unit.path}.{role}", "linear", unit.family, PIECE, tuple(parts), owner=unit.path)


def _third(unit: Unit, index: int) -> Unit:
    # The stored weight may be (in, out); its thirds lie along the first canonical axis all the same.
    parts = tuple(
        Part(
            part.canonical,
            part.tensor,
            index,
            Transform(axes=part.transform.axes, parts=3),
            (part.shape[0] // 3, *part.shape[1:]),
        )
        for part in unit.parts
    )
    return Unit(f"{unit.path}.{_ROLES[index]}", "linear", unit.family, PIECE, parts, owner=unit.path)


def recorded_units(recording: Recording) -> tuple[Unit, ...]:
    """Every layer whose kind is known, and every tensor outside of one, in the order of registration."""
    tensors = stored_shapes(recording.modules)
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


def stored_shapes(modules: tuple[ModuleInfo, ...]) -> dict[str, Shape]:
    """The shape of every tensor that these modules list, by name."""
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


def paired_links(pairs: Iterable[UnitPair], shapes: Mapping[str, Shape], sizes: Mapping[str, Shape]) -> list[Link]:
    """A link for every tensor of the target that the pairs fill wholly; `shapes` are the target's, `sizes` the
    source's."""
    filled: dict[str, dict[int, tuple[Part, Part, UnitPair]]] = {}
    for pair in pairs:
        for part in pair.target.parts:
            source = pair.source.part(part.canonical)
            if source is not None and source.shape == part.shape:
                filled.setdefault(part.tensor, {})[part.index] = (part, source, pair)
    links = []
    for tensor, by_index in filled.items():
        part, _, pair = next(iter(by_index.values()))
        if len(by_index) == part.transform.parts:
            view = _view(tensor, part, [by_index[index][1] for index in sorted(by_index)], pair)
            own = tuple(sizes[name] for name in view.candidate)
            links.append(Link(tensor, shapes[tensor], view.candidate, own, view, pair.how))
    return links


def _view(tensor: str, part: Part, sources: list[Part], pair: UnitPair) -> TensorView:
    stored = list(dict.fromkeys(source.tensor for source in sources))
    pieces = tuple(Piece(stored.index(source.tensor), source.index, source.transform) for source in sources)
    return TensorView(pair.target.title, tensor, tuple(stored), pieces, part.transform)


def tensor_views(
    units: Sequence[UnitPair], shapes: Mapping[str, Shape], sizes: Mapping[str, Shape]
) -> dict[str, TensorView]:
    """For each tensor of the reference the view of candidate tensors that equals it; `shapes` are the reference's."""
    # Pairs fill the target from the source; here the reference is to be filled from the candidate.
    swapped = [UnitPair(pair.target, pair.source, pair.how) for pair in units]
    links = paired_links(swapped, shapes, sizes)
    return {link.target: link.recipe for link in links if isinstance(link.recipe, TensorView)}
