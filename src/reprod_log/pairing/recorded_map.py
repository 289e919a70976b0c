"""The weight map of two recordings: weights that both sides loaded, found by their values in the float64 passes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import prod

import numpy as np

from reprod_log.frameworks.module_tree import join
from reprod_log.pairing.anchors import LOOSE, Index, fingerprint, is_informative, same_numbers
from reprod_log.pairing.links import AS_IS, Link, Recipe, WeightMap, joined_recipes, single_recipes
from reprod_log.pairing.units import NAMED, Unit, UnitPair, paired_links, stored_shapes
from reprod_log.recording import Array, Entry, Recording

_FLOAT64 = "float64"
_MOST_TRIED = 64
"""Weights of one size that are tried for a part of another size."""


@dataclass(frozen=True)
class _Weight:
    """A weight as the program began with it, and its first gradient."""

    value: Array
    gradient: Array | None

    @property
    def facts(self) -> list[Array]:
        """What can be told from another weight's; ones and zeros look alike everywhere."""
        return [one for one in (self.value, self.gradient) if one is not None and is_informative(one)]


def recorded_map(
    reference: Recording, candidate: Recording, structure: Iterable[UnitPair], modules: Mapping[str, str]
) -> WeightMap:
    """From which weights of the reference each of the candidate's comes.

    `structure` proposes; where values contradict it, values decide, but for layers of one name on both sides: a weight
    that is loaded under the wrong name is a mistake. A weight that nothing speaks for is left out. `modules` take and
    give the same on both sides.
    """
    ours, theirs = _weights(reference), _weights(candidate)
    shapes, sizes = stored_shapes(candidate.modules), stored_shapes(reference.modules)
    links: dict[str, Link] = {}
    stated: set[str] = set()
    for link in paired_links(structure, shapes, sizes):
        links[link.target] = replace(link, proof="structure")
        if link.proof in NAMED or link.target not in theirs or any(name not in ours for name in link.sources):
            stated.add(link.target)
    settled = {
        name: link for name, link in links.items() if name in stated or _holds(link, ours, theirs[name], modules)
    }
    used = {name for link in settled.values() for name in link.sources}
    free = {name: one for name, one in ours.items() if name not in used}
    search = _Search(free)
    found = {
        target: made
        for target, one in theirs.items()
        if target not in settled and (made := search.link(target, one)) is not None
    }
    taken = {name for link in found.values() for name in link.sources}
    told = {name for name, one in theirs.items() if one.facts}
    kept = {
        name: one for name, one in links.items() if name in settled or (name in told and taken.isdisjoint(one.sources))
    }
    return WeightMap(tuple(_with_plain(ours, theirs, kept | found).values()))


def same_weights(
    reference: Recording, candidate: Recording, ours: Sequence[Unit], theirs: Sequence[Unit]
) -> list[UnitPair]:
    """Units that hold the same values, where only one of either side holds them."""
    here, there = _weights(reference), _weights(candidate)
    holders = [(unit, here[name].value) for unit in ours for name in unit.tensors if name in here]
    index = Index(dict(enumerate(value for _, value in holders)))
    found: dict[str, list[UnitPair]] = {}
    for unit in theirs:
        anchors = [anchor for name in unit.tensors if name in there for anchor in index.find(there[name].value)]
        same = {one.path: one for one in (holders[anchor.number][0] for anchor in anchors) if one.fits(unit)}
        for one in same.values() if len(same) == 1 else ():
            found.setdefault(one.path, []).append(UnitPair(one, unit, "values"))
    return [pairs[0] for pairs in found.values() if len(pairs) == 1]


def _with_plain(
    ours: Mapping[str, _Weight], theirs: Mapping[str, _Weight], links: Mapping[str, Link]
) -> dict[str, Link]:
    """The links, and vectors of the same zeros or ones in modules whose other weights are linked."""
    parts = _linked_modules(links.values())
    used = {name for link in links.values() for name in link.sources}
    groups: dict[tuple[int, float], tuple[dict[str, int], dict[str, int]]] = {}
    for place, (side, known) in enumerate(((ours, used), (theirs, links))):
        for name, one in side.items():
            values = np.unique(one.value)
            part = parts[place].get(_module(name))
            if name not in known and one.value.ndim == values.size == 1 and not one.facts and part is not None:
                groups.setdefault((part, float(values[0])), ({}, {}))[place][name] = one.value.size
    found = dict(links)
    for sources, targets in groups.values():
        if sum(sources.values()) == sum(targets.values()):
            found |= {link.target: link for link in _laid_out(sources, targets)}
    return found


def _linked_modules(links: Iterable[Link]) -> tuple[dict[str, int], dict[str, int]]:
    """Modules of both sides, each with a number that it has in common with all whose weights are linked to its own."""
    numbers: tuple[dict[str, int], dict[str, int]] = {}, {}
    for fresh, link in enumerate(links):
        modules = [(0, _module(name)) for name in link.sources] + [(1, _module(link.target))]
        joined = {numbers[side][name] for side, name in modules if name in numbers[side]}
        for side in numbers:
            side.update({name: fresh for name, number in side.items() if number in joined})
        for place, name in modules:
            numbers[place][name] = fresh
    return numbers


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _laid_out(sources: Mapping[str, int], targets: Mapping[str, int]) -> Iterator[Link]:
    """Vectors (by name, with their lengths) laid one behind the other, cut as those of the other side are."""
    places = list(zip(sources, pairwise(accumulate(sources.values(), initial=0)), strict=True))
    for target, (start, end) in zip(targets, pairwise(accumulate(targets.values(), initial=0)), strict=True):
        parts = [(name, first, last) for name, (first, last) in places if first < end and last > start]
        names, lengths = tuple(name for name, _, _ in parts), tuple((last - first,) for _, first, last in parts)
        first, last = parts[0][1], parts[-1][2]
        if (first, last) == (start, end):
            recipe = AS_IS if len(parts) == 1 else Recipe(join=0)
        elif len(parts) == 1:
            recipe = Recipe(span=(0, start - first, end - first))
        else:
            continue
        yield Link(target, (end - start,), names, lengths, recipe, "values")


def _weights(recording: Recording) -> dict[str, _Weight]:
    """Every weight and buffer of the first step that was kept in full, by name."""
    run = _FLOAT64 if _FLOAT64 in recording.runs else ""
    first: dict[tuple[str, str], Entry] = {}
    for entry in recording.of_run(run):
        if entry.detail == "full" and entry.key.role in ("", "raw"):
            first.setdefault((entry.key.phase, entry.key.path), entry)
    found: dict[str, _Weight] = {}
    for (phase, path), entry in first.items():
        if phase in ("parameter", "buffer"):
            if not entry.dtype.startswith(("float", "bfloat")):
                continue
            value = np.asarray(entry.array(), np.float64)
            update, gradient = first.get(("update", path)), first.get(("gradient", path))
            if update is not None and update.shape == value.shape:
                value = value - update.array()
            found[path] = _Weight(value, None if gradient is None else np.asarray(gradient.array(), np.float64))
    return found


def _holds(link: Link, ours: Mapping[str, _Weight], target: _Weight, modules: Mapping[str, str]) -> bool:
    """Whether the weight has the values that the link gives it; where they say nothing, whether its modules agree."""
    facts = target.facts
    if not facts:
        own = _module(link.target)
        return all(modules.get(_module(name), own) == own for name in link.sources)
    made = _made(link, [ours[name] for name in link.sources])
    return any(same_numbers(fact, other) for fact, other in _both(target, made))


def _made(link: Link, sources: list[_Weight]) -> _Weight:
    gradients = [one.gradient for one in sources if one.gradient is not None]
    value = link.apply([one.value for one in sources])
    return _Weight(value, link.apply(gradients) if len(gradients) == len(sources) else None)


def _both(one: _Weight, other: _Weight) -> Iterator[tuple[Array, Array]]:
    """The facts of a weight beside those of another that has them as well."""
    for own, theirs in ((one.value, other.value), (one.gradient, other.gradient)):
        # Gradients of what ran alone may be written in the other side's layout.
        if own is not None and theirs is not None and own.shape == theirs.shape and is_informative(own):
            yield own, theirs


class _Search:
    """Weights of the reference that no layer of the same kind holds in the candidate, found by value."""

    def __init__(self, weights: Mapping[str, _Weight]) -> None:
        self._weights = weights
        self._by_size: dict[int, list[str]] = {}
        self._names = list(weights)
        self._prints: list[tuple[float, int]] = []
        for number, (name, one) in enumerate(weights.items()):
            self._by_size.setdefault(one.value.size, []).append(name)
            self._prints += [(fingerprint(fact).squares, number) for fact in one.facts]
        self._prints.sort()

    def link(self, target: str, wanted: _Weight) -> Link | None:
        """The weight as one of the reference's in another form, as a part of one, or as several joined: the first with
        the same gradient, else the first that has its values alone."""
        found: Link | None = None
        for link, is_whole in self._options(target, wanted) if wanted.facts else ():
            if is_whole:
                return link
            found = found or link
        return found

    def _options(self, target: str, wanted: _Weight) -> Iterator[tuple[Link, bool]]:
        size, shape = wanted.value.size, wanted.value.shape
        larger = [length for length in self._by_size if length > size and length % size == 0]
        for group in (self._like(wanted), *(self._by_size[length][:_MOST_TRIED] for length in larger)):
            for name in group:
                source = self._weights[name].value.shape
                for recipe in single_recipes(source, shape):
                    yield from self._if_true(Link(target, shape, (name,), (source,), recipe, "values"), wanted)
        parts = sorted(self._parts(wanted))
        for count in range(len(parts), 1, -1):
            names = tuple(name for _, name in parts[:count])
            sources = tuple(self._weights[name].value.shape for name in names)
            if sum(map(prod, sources)) == size:
                for recipe in joined_recipes(sources, shape):
                    yield from self._if_true(Link(target, shape, names, sources, recipe, "values"), wanted)

    def _like(self, wanted: _Weight) -> list[str]:
        """Weights whose values or gradients may be the wanted ones in another order."""
        found: set[int] = set()
        for fact in wanted.facts:
            squares = fingerprint(fact).squares
            near = [bisect_left(self._prints, ((1 + far) * squares, 0)) for far in (-4 * LOOSE, 4 * LOOSE)]
            found |= {number for _, number in self._prints[slice(*near)]}
        names = [self._names[number] for number in sorted(found)]
        return [name for name in names if self._weights[name].value.size == wanted.value.size]

    def _parts(self, whole: _Weight) -> Iterator[tuple[int, str]]:
        """Weights that are parts of a larger one of the candidate, each with its place."""
        for length, names in self._by_size.items():
            if length < whole.value.size:
                for name in names[:_MOST_TRIED]:
                    part = self._weights[name]
                    place = _place_in(whole, part)
                    if place is not None:
                        yield place, name

    def _if_true(self, link: Link, wanted: _Weight) -> Iterator[tuple[Link, bool]]:
        """The link, and whether all that is known of the weight speaks for it, where its values or all else do."""
        made = _made(link, [self._weights[name] for name in link.sources])
        equal = [same_numbers(*fact) for fact in _both(wanted, made)]
        if equal and (all(equal) or (equal[0] and is_informative(wanted.value))):
            yield link, all(equal)


def _place_in(whole: _Weight, part: _Weight) -> int | None:
    """Where in a larger weight a part begins, or its first element where heads are interleaved; None: nowhere."""
    if not part.facts:
        return None
    own = part.value if is_informative(part.value) else part.gradient
    other = whole.value if own is part.value else whole.gradient
    if own is None or other is None:
        return None
    corner = float(own.reshape(-1)[0])
    near = np.flatnonzero(np.abs(other.reshape(-1) - corner) <= 1e-9 * max(abs(corner), 1e-3))
    return int(near[0]) if near.size else None


def covered_modules(recording: Recording, compared: Collection[str]) -> frozenset[str]:
    """Paths of the modules whose tensors are all among `compared`, each under the name it was recorded by."""
    first = recording.provenance.extra.get("tied_parameters", {})
    found = set()
    for module in recording.modules:
        names = [join(module.path, name) for name in module.parameters]
        if names and all(first.get(name, name) in compared for name in names):
            found.add(module.path)
    return frozenset(found)
