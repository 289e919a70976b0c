"""What identification and equations offer to the search: options for an event, as links to the reference's weights.

A layer that is called with joined inputs on one side is a sum of several on the other, with products of inputs among
them, and a table is read at whole numbers: no single element of a weight comes out then. But such a tensor is linear in
the weights themselves. Each of its elements is one equation, the reference's tensor has the right-hand sides, and a
value that the equations do not tell (a row that nobody reads) stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from reprod_log.layers.transform import Shape
from reprod_log.pairing.anchors import SMALL, Cut, cut, cut_shape, cuts, is_informative, seen, views
from reprod_log.pairing.graph import Graph
from reprod_log.pairing.identify import CALL, LINEAR, OPTIONS, Fit, Identification, LinearPart, merged
from reprod_log.pairing.links import Computed, Link, Recipe, link_of_places
from reprod_log.recording import Array

if TYPE_CHECKING:
    from reprod_log.pairing.search import Search

_AHEAD = 24
"""Kernels behind an event in which weights may be that only fit together with its own."""
_VECTORS = 12
_PARTNERS = 48
"""Tensors of the reference that may be those behind an event."""
_ENOUGH = 12
"""Probes that show whether a weight has influence on the values of another."""


class Answers:
    """Asks both programs of a search."""

    def __init__(self, search: Search) -> None:
        self.search = search

    def options(self, place: int, needed: int, parts: bool) -> list[tuple[Link, ...]]:
        roots = self._roots_there(place)
        unknown = self._unassigned_after(place)
        asked = Identification(self.search.ours, self.search.theirs, self.search.anchors, self._known, unknown)
        found = self._explained(asked, asked.fits(roots, needed, parts=parts)) if roots else []
        self.search.effort += asked.effort
        # Behind a mistake another one is likelier than weights that are mixed.
        return found or (self._solved(place, needed, unknown) if parts and not self.search.bridges else [])

    def _solved(self, place: int, needed: int, unknown: int) -> list[tuple[Link, ...]]:
        """What the tensors behind the event tell as equations of its weights."""
        ours, search = self.search.ours, self.search
        equations = Equations(ours, search.theirs, self._known, unknown)
        found = []
        for one in equations.solutions(needed, self._behind_roots(place)):
            table = Elements({name: search.read(name) for name in ours.bits(ours.behind[one.partner])})
            links = [table.link(target, search.shape(target), values) for target, values in one.values.items()]
            made = tuple(link for link in links if link is not None)
            if len(made) == len(links):
                found.append(made)
            if len(found) == OPTIONS:
                break
        search.effort += equations.effort
        return found

    def _behind_roots(self, place: int) -> list[int]:
        """The reference's tensors that are made of what this event is given, and are no anchors yet."""
        ours = self.search.ours
        made = set(self.search.roots(place))
        for kernel in ours.program.kernels:
            if not made.isdisjoint(kernel.inputs):
                made.update(kernel.outputs)
        return sorted(number for number in made - self.search.reached if ours.behind[number])[:_PARTNERS]

    def _unassigned_after(self, place: int) -> int:
        mask = 0
        for at in range(place, min(place + _AHEAD, len(self.search.theirs.program.kernels))):
            mask |= self.search.unassigned(at)
        return mask

    def _known(self, number: int) -> Array | None:
        try:
            return np.array(self.search.theirs.program.array(self.search.value(number)))
        except Exception:  # not computed yet, or not with the weights that are known
            return None

    def _roots_there(self, place: int) -> list[int]:
        """The nearest anchored tensors behind an event and behind what follows it."""
        theirs = self.search.theirs
        near = self.search.nearest([number for at in self._group(place) for number in theirs.data_inputs(at)])
        return [number for number in near if theirs.program.arrays[number].dtype.kind == "f"]

    def _group(self, place: int) -> list[int]:
        """The event, and those behind it whose inputs can be computed by now or come from the event."""
        search = self.search
        made = set(search.theirs.program.kernels[place].outputs)
        found = [place]
        for at in range(place + 1, min(place + _AHEAD, len(search.theirs.program.kernels))):
            inputs, outputs = search.theirs.data_inputs(at), search.theirs.program.kernels[at].outputs
            known = all(one in search.tensors or not search.theirs.behind[one] for one in inputs)
            if any(number in made for number in inputs):
                made.update(outputs)
            elif known and inputs and not search.unassigned(at) and not search.tensors.keys() & set(outputs):
                search.replay(at)
            if search.unassigned(at) and all(
                one in made or one in search.tensors or one in search.anchors for one in inputs
            ):
                found.append(at)
        return found

    def _explained(self, asked: Identification, fits: list[Fit]) -> list[tuple[Link, ...]]:
        """The options: each weight as the elements of the reference's weights that have its values."""
        table = Elements({name: self.search.read(name) for name in asked.sources})
        found: list[tuple[float, tuple[Link, ...]]] = []
        for several in islice(asked.combined(fits) if fits else (), OPTIONS):
            values = merged(several)
            targets = asked.weights_of(several[0].number)
            links = [table.link(target, self.search.shape(target), values[asked.span(target)]) for target in targets]
            computed = sum(link is None for link in links)
            links = [
                self._computed(asked, several, target, table) if link is None else link
                for target, link in zip(targets, links, strict=True)
            ]
            made = tuple(link for link in links if link is not None)
            if len(made) == len(targets):
                likeness = sum(map(self.search.likeness, made)) / len(made)
                found.append((len(found) - 4 * likeness + 100 * computed, made))
        found.sort(key=lambda one: one[0])
        return [links for _, links in found]

    def _computed(self, asked: Identification, fits: tuple[Fit, ...], target: str, table: Elements) -> Link | None:
        """The weight as what several unused weights make together.

        One weight times a number, or plus one, could as well be a mistake of the port.
        """
        if self.search.effort + asked.effort > self.search.most_effort or table.holds(merged(fits)[asked.span(target)]):
            return None
        if any(self.search.theirs.behind[fit.number] & ~asked.unknown & ~asked.behind_roots for fit in fits):
            return None
        span = asked.span(target)
        behind = {name for fit in fits for name in self.search.ours.bits(self.search.ours.behind[fit.partner])}
        unused = [name for name in table.names if name in behind and not self.search.is_used(name)]
        plain = {name: self.search.read(name) for name in unused}
        values = merged(fits)[span]
        needed = []
        for name in unused:
            factors = np.random.default_rng(0).uniform(1.1, 1.5, plain[name].shape)
            changed = asked.again(fits, {name: plain[name] * factors}, probes=_ENOUGH)[span]
            if not np.allclose(
                changed, np.where(np.isnan(changed), np.nan, values), rtol=1e-9, atol=1e-12, equal_nan=True
            ):
                needed.append(name)
        if len(needed) < 2:
            return None

        def made(arrays: Sequence[Array]) -> Array:
            return asked.again(fits, dict(zip(needed, arrays, strict=True)))[span]

        shapes = tuple(plain[name].shape for name in needed)
        return Link(target, self.search.shape(target), tuple(needed), shapes, Computed(made), "values")


class Elements:
    """The elements of the reference's weights, to be found by their values."""

    def __init__(self, arrays: Mapping[str, Array], *, summed: bool = False) -> None:
        self.summed = summed
        self.names = list(arrays)
        self.shapes = [array.shape for array in arrays.values()]
        self.starts = np.cumsum([0, *(array.size for array in arrays.values())])
        flat = [np.asarray(array, np.float64).reshape(-1) for array in arrays.values()]
        self.values = np.concatenate(flat) if flat else np.zeros(0)
        self.sorting = np.argsort(self.values)

    def link(self, target: str, shape: tuple[int, ...], values: Array) -> Link | None:
        """The link that gives a weight these values (NaN: any); None when one of them is stored nowhere."""
        told = np.isfinite(values)
        found = self._places(values[told])
        if found is None:
            return self._sum(target, shape, values)
        if not found.size or np.unique(found).size < found.size:
            # No weight holds an element of another twice.
            return None
        places = np.full(values.size, -1)
        places[told] = found
        owners = np.where(told, np.searchsorted(self.starts, places, side="right") - 1, -1)
        order = list(dict.fromkeys(owners[told].tolist()))
        moved = np.full(places.size, -1)
        start = 0
        for owner in order:
            own = owners == owner
            moved[own] = places[own] - self.starts[owner] + start
            start += int(np.prod(self.shapes[owner], dtype=int))
        return link_of_places(
            target, shape, [self.names[one] for one in order], [self.shapes[one] for one in order], moved
        )

    def holds(self, values: Array) -> bool:
        """Whether all of the values are stored somewhere."""
        return self._places(values) is not None

    def _sum(self, target: str, shape: tuple[int, ...], values: Array) -> Link | None:
        """The sum of two vectors of the reference: biases that are added one after the other."""
        if self.summed or sum(n > 1 for n in shape) > 1 or np.isnan(values).any():
            return None
        vectors = [number for number, one in enumerate(self.shapes) if len(one) == 1][:_VECTORS]
        for one, other in combinations(vectors, 2):
            if self.shapes[one] == self.shapes[other]:
                pair = Elements({"": self._array(one) + self._array(other)}, summed=True)
                link = pair.link(target, shape, values)
                if link is not None and isinstance(link.recipe, Recipe):
                    names, shapes = (self.names[one], self.names[other]), (self.shapes[one], self.shapes[other])
                    return replace(link, sources=names, source_shapes=shapes, recipe=replace(link.recipe, added=True))
        return None

    def _array(self, number: int) -> Array:
        return self.values[self.starts[number] : self.starts[number + 1]].reshape(self.shapes[number])

    def _places(self, values: Array) -> Array | None:
        if not self.values.size:
            return None
        ranked = self.values[self.sorting]
        inner = np.clip(np.searchsorted(ranked, values), 1, max(ranked.size - 1, 1))
        low, high = self.sorting[inner - 1], self.sorting[np.minimum(inner, ranked.size - 1)]
        near = np.where(np.abs(self.values[low] - values) <= np.abs(self.values[high] - values), low, high)
        good = np.abs(self.values[near] - values) <= LINEAR * np.maximum(np.abs(values), 1e-3)
        return near if bool(good.all()) else None


_WORK, _TENSORS, _SIDES = 6_000_000, 8, 400
"""What the equations of one event may cost, in elements; how many tensors give some; right-hand sides of each."""


@dataclass(frozen=True)
class Solution:
    """Values of weights under which a tensor of the candidate is one of the reference's; NaN: any."""

    partner: int
    values: Mapping[str, Array]


_Side = tuple[int, Cut | None, Cut | None, tuple[int, ...]]
"""A tensor of the reference, which part of the candidate's may be which part of it, and how."""


class Equations:
    """The candidate's tensors behind an event as linear in its unknown weights."""

    def __init__(self, ours: Graph, theirs: Graph, known: Callable[[int], Array | None], unknown: int) -> None:
        self.ours, self.theirs, self.unknown = ours, theirs, unknown
        self.shapes = {
            theirs.number[name]: theirs.program.arrays[theirs.number[name]].shape for name in theirs.bits(unknown)
        }
        self.part = LinearPart(theirs, lambda number: None if theirs.behind[number] & unknown else known(number))
        self.effort = 0

    def solutions(self, needed: int, partners: Sequence[int]) -> Iterator[Solution]:
        """Every one of the first tensors that depend on the weights `needed`, those of the fewest weights first."""
        random = np.random.default_rng(0)
        nothing = {number: np.zeros(shape) for number, shape in self.shapes.items()}
        one, other = ({n: random.normal(size=shape) for n, shape in self.shapes.items()} for _ in range(2))
        self.part.follow([nothing, one, other, {n: one[n] + other[n] for n in one}])
        behind, arrays = self.theirs.behind, self.theirs.program.arrays
        asked = [
            number
            for number in self.part.numbers
            if self.theirs.data[number] and arrays[number].size >= SMALL and behind[number] & needed == needed
        ]
        asked.sort(key=lambda number: (behind[number] & self.unknown).bit_count())
        for number in asked[:_TENSORS]:
            yield from self._solved(number, nothing, partners)

    def _solved(self, number: int, nothing: dict[int, Array], partners: Sequence[int]) -> Iterator[Solution]:
        names = list(self.theirs.bits(self.theirs.behind[number] & self.unknown))
        weights = [self.theirs.number[name] for name in names]
        sizes = [prod(self.shapes[weight]) for weight in weights]
        cost = sum(sizes) * (CALL * len(self.part.places) + self.theirs.program.arrays[number].size)
        if self.effort + cost > _WORK:
            return
        self.effort += cost
        start = self.part.probe(nothing)[number]
        columns = [
            self.part.probe(nothing | {weight: unit})[number] - start
            for weight, size in zip(weights, sizes, strict=True)
            for unit in np.eye(size).reshape(-1, *self.shapes[weight])
        ]
        systems: dict[Cut | None, _System] = {}
        for partner, own, theirs, axes in self._sides(start.shape, partners):
            if own not in systems:
                rows = np.stack([cut(one, own).reshape(-1) for one in columns], -1)
                systems[own] = _System(rows, cut(start, own).reshape(-1))
            right = cut(self.ours.program.arrays[partner], theirs)
            places = seen(np.arange(right.size).reshape(cut_shape(start.shape, own)), axes, right.shape)
            turned = np.empty(right.size)
            turned[places.reshape(-1)] = right.reshape(-1)
            values = systems[own].solved(turned)
            if values is not None:
                yield Solution(partner, dict(zip(names, np.split(values, np.cumsum(sizes)[:-1]), strict=True)))

    def _sides(self, shape: Shape, partners: Sequence[int]) -> Iterator[_Side]:
        arrays = self.ours.program.arrays
        every = (
            (partner, own, theirs, axes)
            for partner in partners
            if arrays[partner].dtype.kind == "f" and is_informative(arrays[partner])
            for own, theirs in ((None, None), *cuts(shape, arrays[partner].shape))
            for axes in views(cut_shape(shape, own), cut_shape(arrays[partner].shape, theirs))
        )
        return islice(every, _SIDES)


class _System:
    """The equations of one tensor, or of a part of it, for any right-hand side."""

    def __init__(self, rows: Array, start: Array) -> None:
        self.start = start
        left, sizes, directions = np.linalg.svd(rows, full_matrices=False)
        rank = int((sizes > 1e-9 * sizes.max(initial=0.0)).sum())
        self.left, self.sizes, self.directions = left[:, :rank], sizes[:rank], directions[:rank]
        self.told = np.square(self.directions).sum(0) > 1 - 1e-9

    def solved(self, right: Array) -> Array | None:
        """The values that fulfil all equations, NaN where they leave one open; None where no values do, or any."""
        right = right - self.start
        if not 0 < self.sizes.size < right.size:
            return None
        inside = self.left.T @ right
        if not float(np.abs(self.left @ inside - right).max()) <= LINEAR * float(np.abs(right).max(initial=0.0)):
            return None
        return np.where(self.told, self.directions.T @ (inside / self.sizes), np.nan)
