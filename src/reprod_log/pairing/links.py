"""Links: a weight of the candidate, the weights of the reference that it is made of, and the recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations
from math import prod
from typing import Any

import numpy as np

from reprod_log.errors import TransferError
from reprod_log.layers.layouts import TensorView
from reprod_log.layers.transform import Shape
from reprod_log.recording import Array

_MOST_PARTS = 16
_MOST_AXES = 4


@dataclass(frozen=True)
class Recipe:
    """Axes of each source permuted, a part of it taken, the sources joined or added, the result brought into shape.

    `heads` parts of the joined axis are interleaved: what lay as (sources, heads, …) lies as (heads, sources, …).
    """

    axes: tuple[int, ...] | None = None
    part: tuple[int, int, int] | None = None
    """Axis, index, number of parts."""
    span: tuple[int, int, int] | None = None
    """Axis, start, end: a part that is not one of several equal ones."""
    join: int | None = None
    """The axis along which several sources are joined."""
    added: bool = False
    heads: int = 0
    flip: tuple[int, ...] = ()
    fold: Shape | None = None
    """The form that a source is given before its axes are permuted."""
    order: tuple[int, ...] | None = None
    """For each element its place in the sources, laid one behind the other: where nothing plainer says it."""

    def apply(self, arrays: Sequence[Array], shape: Shape) -> Array:
        if self.order is not None:
            flat = [array.reshape(-1) for array in arrays]
            joined: Array = flat[0] + flat[1] if self.added else np.concatenate(flat)
            return np.take(joined, self.order).reshape(shape)
        made = [self._one(array) for array in arrays]
        if self.added:
            whole = made[0] + made[1]
        elif self.join is not None:
            whole = self._joined(made)
        else:
            whole = made[0]
        return np.flip(whole, self.flip).reshape(shape) if self.flip else whole.reshape(shape)

    def _one(self, array: Array) -> Array:
        if self.fold is not None:
            array = array.reshape(self.fold)
        if self.axes is not None:
            array = array.transpose(self.axes)
        if self.part is not None:
            axis, index, parts = self.part
            size = array.shape[axis] // parts
            array = array[(slice(None),) * axis + (slice(index * size, (index + 1) * size),)]
        if self.span is not None:
            axis, start, end = self.span
            array = array[(slice(None),) * axis + (slice(start, end),)]
        return array

    def _joined(self, made: list[Array]) -> Array:
        axis = self.join or 0
        if not self.heads:
            return np.concatenate(made, axis)
        # (heads, sources, rest) along the joined axis.
        cut = [one.reshape(*one.shape[:axis], self.heads, -1, *one.shape[axis + 1 :]) for one in made]
        return np.concatenate(cut, axis + 1).reshape(*made[0].shape[:axis], -1, *made[0].shape[axis + 1 :])


AS_IS = Recipe()


@dataclass(frozen=True)
class Computed:
    """A weight that several of the reference's make together, as a norm folded into the layer before it.

    What it is follows from running the reference's own kernels, so there is no such weight without them.
    """

    made: Any = field(default=None, compare=False, repr=False)
    """A function of the sources' arrays; None in a map that was read from a file."""

    def apply(self, arrays: Sequence[Array], shape: Shape) -> Array:
        if self.made is None:
            raise TransferError(
                "a weight that is computed from several others needs both models: run align_models again"
            )
        made: Array = self.made([np.asarray(array, np.float64) for array in arrays])
        return made.reshape(shape)


@dataclass(frozen=True)
class Link:
    """One weight of the candidate: the names it is read from, and how."""

    target: str
    shape: Shape
    sources: tuple[str, ...]
    source_shapes: tuple[Shape, ...]
    recipe: Recipe | TensorView | Computed
    proof: str = ""
    """What speaks for it: values, stated, name, structure."""

    @property
    def is_computed(self) -> bool:
        return isinstance(self.recipe, Computed)

    @property
    def is_turned(self) -> bool:
        """Whether axes of one weight are exchanged though its shape would not ask for it."""
        if isinstance(self.recipe, Recipe) and self.recipe.order is not None:
            square = (len(set(shape)) == 1 < len(shape) for shape in self.source_shapes)
            return any(one == "turned" and both for one, both in zip(self._orders_taken, square, strict=True))
        axes = self.recipe.axes if isinstance(self.recipe, Recipe) else None
        return axes is not None and self.source_shapes == (self.shape,) and axes != tuple(sorted(axes))

    @property
    def is_permuted(self) -> bool:
        """Whether the elements of a weight stand in another order along its own axes: heads, channels, gates."""
        if not isinstance(self.recipe, Recipe):
            return False
        if self.recipe.order is not None:
            return "other" in self._orders_taken
        if self.recipe.fold is None or len(self.sources) > 1:
            return False
        forms = (sorted(n for n in shape if n > 1) for shape in (self.shape, *self.source_shapes))
        wide = tuple(n for n in self.source_shapes[0] if n > 1)
        finer = tuple(n for n in self.recipe.fold if n > 1) != wide
        return finer and len({tuple(form) for form in forms}) == 1

    @cached_property
    def _orders_taken(self) -> tuple[str, ...]:
        """For each source how its elements come in the target: "same", "turned" (axes in opposite order) or "other"."""
        found = []
        for places, shape in zip(self.places, self.source_shapes, strict=True):
            taken = places[places >= 0]
            turned = np.empty(prod(shape), int)
            turned[np.arange(prod(shape)).reshape(shape).T.reshape(-1)] = np.arange(prod(shape))
            ways = (("same", taken), ("turned", turned[taken]))
            found.append(next((name for name, one in ways if bool((np.diff(one) > 0).all())), "other"))
        return tuple(found)

    def apply(self, arrays: Sequence[Array]) -> Array:
        if isinstance(self.recipe, TensorView):
            return self.recipe.apply(arrays, shape=self.shape)
        return self.recipe.apply(arrays, self.shape)

    @cached_property
    def places(self) -> tuple[Array, ...]:
        """For each source the flat places of its elements that the target's elements are, -1 where they are not.

        Of a sum each source has a place for every element.
        """
        if isinstance(self.recipe, Computed):
            return tuple(np.full(self.shape, -1) for _ in self.sources)
        if isinstance(self.recipe, Recipe) and self.recipe.added:
            one = replace(self.recipe, added=False)
            sizes = self.source_shapes
            return tuple(one.apply([np.arange(prod(shape)).reshape(shape)], self.shape) for shape in sizes)
        found, start = [], 0
        numbered = []
        for shape in self.source_shapes:
            numbered.append(np.arange(start, start + prod(shape)).reshape(shape))
            start += prod(shape)
        whole = self.apply(numbered)
        start = 0
        for shape in self.source_shapes:
            own = (whole >= start) & (whole < start + prod(shape))
            found.append(np.where(own, whole - start, -1))
            start += prod(shape)
        return tuple(found)

    @cached_property
    def turned(self) -> bool | None:
        """Whether it is its one source with the axes in the opposite order (False: as they are); None: neither."""
        if len(self.sources) != 1 or self.is_computed:
            return None
        source = np.arange(prod(self.shape)).reshape(
            self.shape if self.shape == self.source_shapes[0] else self.shape[::-1]
        )
        for turned, view in ((False, source), (True, source.T)):
            if source.shape == self.source_shapes[0] and np.array_equal(view, self.places[0]):
                return turned
        return None


def same_form(one: tuple[Link, ...], other: tuple[Link, ...]) -> bool:
    """Whether two options differ in nothing but the weights that they take, or the parts of them."""
    return len(one) == len(other) and all(
        a.target == b.target and a.source_shapes == b.source_shapes and _form(a) == _form(b) and _taken(a) != _taken(b)
        for a, b in zip(one, other, strict=True)
    )


def _form(link: Link) -> Any:
    recipe = link.recipe
    if isinstance(recipe, TensorView):
        return recipe.pieces, recipe.joined
    if not isinstance(recipe, Recipe):
        return recipe
    part = None if recipe.part is None else (recipe.part[0], recipe.part[2])
    span = None if recipe.span is None else (recipe.span[0], recipe.span[2] - recipe.span[1])
    return replace(recipe, part=None, span=None), part, span


def _taken(link: Link) -> Any:
    recipe = link.recipe
    return (link.sources, recipe.part, recipe.span) if isinstance(recipe, Recipe) else (link.sources, None, None)


@dataclass(frozen=True)
class Crossing:
    """Two layers of the reference and the two of the candidate that the map gives them."""

    one: str
    other: str
    two: str
    another: str


@dataclass(frozen=True)
class WeightMap:
    """From which weights of the reference each weight of the candidate comes, and what proves it."""

    links: tuple[Link, ...]
    agrees: bool = False
    """Whether both programs compute the same with it: all outputs and the loss are the same numbers in float64."""
    unproven: tuple[str, ...] = ()
    """Weights of the candidate that no value speaks for."""
    left_in_reference: tuple[str, ...] = ()
    left_in_candidate: tuple[str, ...] = ()
    complete: bool = False
    """Whether every weight that a result of either side depends on is in it."""
    bridged: bool = False
    """Whether both compute the same once the candidate is given the reference's tensors where it computes others."""
    inner: tuple[str, ...] = ()
    """Results that only the reference returns, and that the candidate computes on its way: a cache, hidden states."""
    crossings: tuple[Crossing, ...] = ()
    """Layers that agree only against their names."""
    trials: int = 0
    bounded: bool = False
    """Whether the search was given up at its bound."""
    reference_files: Mapping[str, str] = field(default_factory=dict)
    """Names that only the framework's own files use, each with the name of the same weight in this map."""
    candidate_files: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    """The names of the models, where there are several; each name in the map begins with one."""

    @property
    def is_known(self) -> bool:
        """Whether the map of a wrong port is beyond doubt: only weights between its mistakes' ends could be others."""
        return self.bridged and self.complete and not self.unproven

    @cached_property
    def by_target(self) -> Mapping[str, Link]:
        return {link.target: link for link in self.links}

    @cached_property
    def by_source(self) -> Mapping[str, tuple[Link, ...]]:
        found: dict[str, list[Link]] = {}
        for link in self.links:
            for name in link.sources:
                found.setdefault(name, []).append(link)
        return {name: tuple(links) for name, links in found.items()}

    def apply(self, read: Callable[[str], Array]) -> dict[str, Array]:
        """The candidate's arrays by name, made of the reference's."""
        return {link.target: link.apply([read(name) for name in link.sources]) for link in self.links}

    def gradients(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """The candidate's gradients made of the reference's; none for a weight that shares a source with another."""
        found: dict[str, Array] = {}
        for link in self.links:
            if any(
                name not in given or (len(self.by_source[name]) > 1 and not self.is_apart(name))
                for name in link.sources
            ):
                continue
            if isinstance(link.recipe, Computed):
                continue
            arrays = [given[name] for name in link.sources]
            # The gradient of a sum is that of each summand.
            added = isinstance(link.recipe, Recipe) and link.recipe.added
            found[link.target] = arrays[0].reshape(-1)[link.places[0]] if added else link.apply(arrays)
        return found

    def is_apart(self, name: str) -> bool:
        """Whether the weights made of this one take different parts of it."""
        if len(self.by_source[name]) == 1 and self.by_source[name][0].turned is not None:
            return True
        counts = np.zeros(1, int)
        for link in self.by_source[name]:
            places = link.places[link.sources.index(name)]
            size = prod(link.source_shapes[link.sources.index(name)])
            here = np.bincount(places[places >= 0], minlength=size)
            counts = here if counts.size != size else counts + here
        return bool((counts <= 1).all())

    def back(self, name: str, shape: Shape, arrays: Mapping[str, Array], *, add: bool) -> Array | None:
        """The reference's tensor in terms of the candidate's (by name); None where a part of it is missing.

        With `add`, as gradients: what is used several times is the sum. Else, as values: any of the uses.
        """
        links = self.by_source.get(name, ())
        if len(links) == 1 and links[0].target in arrays and links[0].turned is not None:
            # Most weights: a view takes neither memory nor time.
            found = arrays[links[0].target].reshape(links[0].shape)
            return found.T if links[0].turned else found
        total = np.zeros(prod(shape))
        known = np.zeros(prod(shape), bool)
        for link in links:
            if link.target not in arrays:
                if add:
                    return None
                continue
            if not add and isinstance(link.recipe, Recipe) and link.recipe.added:
                return None
            values = np.asarray(arrays[link.target], np.float64).reshape(-1)
            for source, places in zip(link.sources, link.places, strict=True):
                if source == name:
                    flat = places.reshape(-1)
                    own = flat >= 0
                    if add:
                        total += np.bincount(flat[own], values[own], total.size)
                    else:
                        total[flat[own]] = values[own]
                    known[flat[own]] = True
        return total.reshape(shape) if known.all() else None


def link_of_places(
    target: str, shape: Shape, sources: Sequence[str], source_shapes: Sequence[Shape], places: Array
) -> Link | None:
    """The link that takes these elements, counted through all sources one behind the other, in the plainest words.

    Where a place is open (-1), only plain words tell which element it may be; None: they do not.
    """
    names, shapes = tuple(sources), tuple(source_shapes)
    wanted = places.reshape(shape)
    told = wanted >= 0
    known = single_recipes(shapes[0], shape) if len(shapes) == 1 else joined_recipes(shapes, shape)
    numbered, start = [], 0
    for one in shapes:
        numbered.append(np.arange(start, start + prod(one)).reshape(one))
        start += prod(one)
    recipes = [recipe for recipe in known if not recipe.added]
    if len(shapes) == 1:
        recipes += [*_rows(shapes[0], wanted), *(_folded(shapes[0], wanted) if told.all() else ())]
    for recipe in recipes:
        if np.array_equal(recipe.apply(numbered, shape)[told], wanted[told]):
            return Link(target, shape, names, shapes, recipe, "values")
    if not told.all():
        return None
    return Link(target, shape, names, shapes, Recipe(order=tuple(wanted.reshape(-1).tolist())), "values")


def _rows(source: Shape, places: Array) -> Iterator[Recipe]:
    """Rows of the source along any axis, from where the first known place is one of them."""
    flat = places.reshape(-1)
    first = int(np.flatnonzero(flat >= 0)[0])
    for axes in _orders(source, places.shape):
        turned = source if axes is None else tuple(source[axis] for axis in axes)
        at = np.unravel_index(flat[first], source)
        for axis, length in enumerate(turned):
            taken = length * flat.size // prod(source)
            cut = (*turned[:axis], taken, *turned[axis + 1 :])
            if 0 < taken < length and _same_but_ones(cut, places.shape):
                own = axis if axes is None else axes[axis]
                start = int(at[own] - np.unravel_index(first, cut)[axis])
                if 0 <= start <= length - taken:
                    yield Recipe(axes=axes, span=(axis, start, start + taken))


def _folded(source: Shape, places: Array) -> Iterator[Recipe]:
    """The source in a finer form whose axes are permuted, where the places are such ones."""
    digits: list[tuple[int, int]] = []
    for axis in range(places.ndim):
        line = np.moveaxis(places, axis, 0).reshape(places.shape[axis], -1)[:, 0]
        digits += _digits(line - line[0])
    ranked = sorted((number for number in range(len(digits))), key=lambda number: -digits[number][1])
    fold = tuple(digits[number][0] for number in ranked)
    if prod(fold) == prod(source):
        yield Recipe(fold=fold, axes=tuple(ranked.index(number) for number in range(len(digits))))


def _digits(line: Array) -> list[tuple[int, int]]:
    """Length and step of the axes, outermost first, that a line of places goes through."""
    if line.size == 1:
        return []
    step = int(line[1])
    bent = np.flatnonzero(line != step * np.arange(line.size))
    length = int(bent[0]) if bent.size else line.size
    if line.size % length or length < 2:
        return [(line.size, 0)]
    return [*_digits(line[::length]), (length, step)]


def single_recipes(source: Shape, target: Shape, *, parts: bool = True) -> Iterator[Recipe]:
    """Every way in which a tensor of one shape may be one of the other, the plain ones first."""
    size, wanted = prod(source), prod(target)
    if size == wanted:
        yield from _permuted(source, target)
        if len(source) >= 3 and source == target:
            yield Recipe(flip=tuple(range(2, len(source))))
    elif parts and wanted and size % wanted == 0 and size // wanted <= _MOST_PARTS:
        count = size // wanted
        for axes in _orders(source, target):
            turned = source if axes is None else tuple(source[axis] for axis in axes)
            for axis, length in enumerate(turned):
                cut = (*turned[:axis], length // count, *turned[axis + 1 :])
                if length % count == 0 and _same_but_ones(cut, target):
                    for index in range(count):
                        yield Recipe(axes=axes, part=(axis, index, count))
    elif parts and wanted and wanted < size:
        yield from _spans(source, target)


def _spans(source: Shape, target: Shape) -> Iterator[Recipe]:
    """The first or the last rows of a tensor, along any axis."""
    for axes in _orders(source, target):
        turned = source if axes is None else tuple(source[axis] for axis in axes)
        for axis, length in enumerate(turned):
            taken = length * prod(target) // prod(source)
            if taken and _same_but_ones((*turned[:axis], taken, *turned[axis + 1 :]), target):
                yield Recipe(axes=axes, span=(axis, 0, taken))
                yield Recipe(axes=axes, span=(axis, length - taken, length))


def joined_recipes(sources: Sequence[Shape], target: Shape) -> Iterator[Recipe]:
    """Every way in which several tensors of one shape make up a larger one, or the sum of two a tensor of theirs."""
    first = sources[0]
    for count in (3, 4) if len(sources) == 2 else ():
        # The gates of a recurrent layer lie in one tensor, one after the other.
        if all(shape and shape[0] % count == 0 for shape in sources):
            cut = [(shape[0] // count, *shape[1:]) for shape in sources]
            for recipe in (
                joined_recipes(cut, target) if sum(map(prod, cut)) in (prod(target), 2 * prod(target)) else ()
            ):
                axis = 0 if recipe.axes is None else recipe.axes.index(0)
                if recipe.part is None and not recipe.heads:
                    yield from (replace(recipe, part=(axis, index, count)) for index in range(count))
    if any(shape != first for shape in sources):
        yield from _ragged(sources, target)
        return
    if len(sources) == 2 and first == target and sum(n > 1 for n in target) < 2:
        yield Recipe(added=True)
    if sum(prod(shape) for shape in sources) != prod(target):
        return
    for axes in _orders(first, target):
        turned = first if axes is None else tuple(first[axis] for axis in axes)
        for axis in range(max(len(turned), 1)):
            whole = (*turned[:axis], turned[axis] * len(sources), *turned[axis + 1 :]) if turned else (len(sources),)
            stacked = axis == 0 and len(target) > len(whole) and _is_regrouped((len(sources), *turned), target)
            if _same_but_ones(whole, target) or stacked:
                yield Recipe(axes=axes, join=axis)
                for heads in range(2, turned[axis] if turned else 0):
                    if turned[axis] % heads == 0:
                        yield Recipe(axes=axes, join=axis, heads=heads)


def _ragged(sources: Sequence[Shape], target: Shape) -> Iterator[Recipe]:
    if len({len(shape) for shape in sources}) != 1 or sum(map(prod, sources)) != prod(target):
        return
    for axes in _orders(max(sources, key=prod), target):
        turned = [shape if axes is None else tuple(shape[axis] for axis in axes) for shape in sources]
        for axis in range(len(turned[0])):
            rest = {(*shape[:axis], *shape[axis + 1 :]) for shape in turned}
            whole = (*turned[0][:axis], sum(shape[axis] for shape in turned), *turned[0][axis + 1 :])
            if len(rest) == 1 and _same_but_ones(whole, target):
                yield Recipe(axes=axes, join=axis)


def _permuted(source: Shape, target: Shape) -> Iterator[Recipe]:
    axes_of = len(source)
    if source == target:
        yield AS_IS
    if axes_of > _MOST_AXES or sum(n > 1 for n in source) < 2:
        if source != target:
            yield AS_IS
        return
    exact: list[Recipe] = []
    others: list[Recipe] = []
    for axes in permutations(range(axes_of)):
        turned = tuple(source[axis] for axis in axes)
        if axes_of > 3 and [axis for axis in axes if axis > 1] != list(range(2, axes_of)):
            # Height before width on both sides: the other way round is a mistake, and no way to store a kernel.
            continue
        if axes == tuple(range(axes_of)):
            if source != target:
                (exact if _same_but_ones(source, target) else others).append(AS_IS)
        elif _same_but_ones(turned, target):
            exact.append(Recipe(axes=axes))
        elif turned != target and _is_regrouped(turned, target):
            others.append(Recipe(axes=axes))
    yield from exact
    yield from others


def _is_regrouped(shape: Shape, target: Shape) -> bool:
    """Whether neighbouring axes of the one, multiplied, are the other's, or the other way round."""

    def bounds(one: Shape) -> set[int]:
        return set(np.cumprod([n for n in one if n > 1]).tolist())

    a, b = bounds(shape), bounds(target)
    return a <= b or b <= a


def _orders(source: Shape, target: Shape) -> Iterator[tuple[int, ...] | None]:
    yield None
    if 2 <= len(source) <= 3 and sum(n > 1 for n in source) > 1:
        for axes in permutations(range(len(source))):
            if axes != tuple(range(len(source))):
                yield axes


def _same_but_ones(one: Shape, other: Shape) -> bool:
    return [n for n in one if n != 1] == [n for n in other if n != 1]
