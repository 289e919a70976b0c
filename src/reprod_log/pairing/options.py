"""Options of an event of the search: which weights of the reference may be the candidate's here, the likeliest first.

Shapes, names, the order of use and the tables of layers only say where to look first; values decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from heapq import heappop, heappush
from itertools import combinations, islice, permutations, takewhile
from math import prod
from typing import TYPE_CHECKING, Any

from reprod_log.layers.transform import Shape
from reprod_log.pairing.links import Link, Recipe, joined_recipes, single_recipes
from reprod_log.pairing.names import closeness

if TYPE_CHECKING:
    from reprod_log.pairing.search import Search

_OPTIONS = 64
_MOST_POOL = 16
_UNLIKELY = 6.0
"""For a few rows of a tensor, a vector that is cut out of a matrix, joined weights of different names: taken last."""


_OTHERWISE = 24.0
"""For a statistic or table that would be made of a parameter, and the other way round."""


class Options:
    """Finds them for a search."""

    def __init__(self, search: Search) -> None:
        self.search, self.ours, self.theirs = search, search.ours, search.theirs
        self.decided: dict[tuple[Shape, ...], list[tuple[Link, ...]]] = {}
        """What was found for other weights, by their shapes: the blocks of a model are alike."""

    def remember(self, option: tuple[Link, ...]) -> None:
        """What was decided is tried first where weights of the same shapes are looked for again."""
        if any(isinstance(link.recipe, Recipe) for link in option) and not any(link.is_computed for link in option):
            in_order = sorted(option, key=lambda link: self.theirs.names.index(link.target))
            self.decided.setdefault(tuple(link.shape for link in in_order), []).append(tuple(in_order))

    def by_structure(self, place: int) -> list[tuple[Link, ...]]:
        mask = self.search.unassigned(place)
        return (self.at(place, mask, 2) or self.at(place, mask, 2, self._next_free())) if mask else []

    def _next_free(self) -> list[tuple[str, int]]:
        """The weights of the reference that nothing is made of yet, in the order of use."""
        found: dict[str, int] = {}
        for place in range(len(self.ours.program.kernels)):
            if self.ours.uses_data(place):
                for name in self.ours.bits(self.ours.weights_into(place)):
                    if not self.search.is_used(name):
                        found.setdefault(name, 0)
        return list(found.items())[:_MOST_POOL]

    def at(
        self, place: int, mask: int, breadth: int, pool: list[tuple[str, int]] | None = None
    ) -> list[tuple[Link, ...]]:
        targets = list(self.theirs.bits(mask))
        pool = self._pool(self.search.roots(place), breadth) if pool is None else pool
        names = [name for name, _ in pool]
        scored: list[tuple[float, tuple[Link, ...]]] = []
        for link_set in self._by_layer(targets, names):
            score = min(names.index(link.sources[0]) for link in link_set) - 20.0
            scored.append((score - 4 * sum(self.search.likeness(link) for link in link_set) / len(link_set), link_set))
        scored.extend(self._as_before(targets, names))
        ranked = [
            self._links_to(target, pool) for target in sorted(targets, key=lambda one: -len(self.search.shape(one)))
        ]
        for combination in islice(_best_first(ranked), 1600):
            links = tuple(link for _, link in combination)
            if _overlap(links) or _of_other_parts(links):
                continue
            score = sum(one for one, _ in combination)
            # A bias goes with its weight, joined in the same order.
            modules = {tuple(name.rpartition(".")[0] for name in link.sources) for link in links}
            heads = {link.recipe.heads for link in links if isinstance(link.recipe, Recipe)}
            unlikely = _UNLIKELY if any(map(_is_cut_out, links)) else 0.0
            scored.append((score + unlikely + 6.0 * (len(modules) + len(heads) - 2), links))
        scored.sort(key=lambda one: one[0])
        return [links for _, links in scored[:_OPTIONS]]

    def _by_layer(self, targets: list[str], names: list[str]) -> Iterator[tuple[Link, ...]]:
        wanted = set(targets)
        for proposal in self.search.proposals.get(targets[0], ()):
            links = tuple(link for link in proposal.links if link.target in wanted)
            if {link.target for link in links} == wanted and all(
                one in names for link in links for one in link.sources
            ):
                yield links

    def _as_before(self, targets: list[str], names: list[str]) -> Iterator[tuple[float, tuple[Link, ...]]]:
        """What was found for weights of these shapes, made of weights of the same names in another module."""
        for option in self.decided.get(tuple(map(self.search.shape, targets)), ()):
            front = len(_module_of([name for link in option for name in link.sources]))
            inside = option[0].sources[0][front:]
            likeness = closeness(option[0].target, targets[0])
            for module in (name.removesuffix(inside) for name in names if f".{name}".endswith(f".{inside}")):
                links = tuple(
                    replace(link, target=target, sources=tuple(module + name[front:] for name in link.sources))
                    for target, link in zip(targets, option, strict=True)
                )
                if all(self._is_there(link, names) and self.search.is_free(link) for link in links):
                    yield -40.0 - 4 * likeness, links

    def _is_there(self, link: Link, names: list[str]) -> bool:
        return all(
            name in names and self.search.read(name).shape == shape
            for name, shape in zip(link.sources, link.source_shapes, strict=True)
        )

    def _links_to(self, target: str, pool: list[tuple[str, int]]) -> list[tuple[float, Link]]:
        shape = self.search.shape(target)
        found: list[tuple[float, Link]] = []
        for order, (name, distance) in enumerate(pool):
            source = self.search.read(name).shape
            for rank, recipe in enumerate(islice(single_recipes(source, shape), 24)):
                link = Link(target, shape, (name,), (source,), recipe, "values")
                free = self.search.is_free(link)
                if free or self.search.is_tied(name):
                    score = (
                        order + 10.0 * distance + 1.5 * rank - 4 * self.search.likeness(link) + (0.0 if free else 8.0)
                    )
                    score += 0.0 if (name in self.search.kept[0]) == (target in self.search.kept[1]) else _OTHERWISE
                    found.append((score, link))
        if prod(shape) > 1:
            found.extend(self._joined(target, shape, pool))
        found.sort(key=lambda one: one[0])
        return found[:_OPTIONS]

    def _joined(self, target: str, shape: Shape, pool: list[tuple[str, int]]) -> Iterator[tuple[float, Link]]:
        sized = [
            (order + 10.0 * distance, name, self.search.read(name).shape)
            for order, (name, distance) in enumerate(pool[:_MOST_POOL])
            if not self.search.is_used(name) or self.search.has_parts(name)
        ]
        small = [one for one in sized if prod(one[2]) <= prod(shape) and not self.search.is_used(one[1])]
        for count in (2, 3, 4):
            sizes = [n * prod(shape) for n in ((1, 2, 3, 4, 6, 8) if count == 2 else (1,))]
            fitting = (
                chosen
                for chosen in combinations(sized if count == 2 else small, count)
                if sum(prod(one[2]) for one in chosen) in sizes
            )
            for chosen in islice(fitting, 120):
                # Weights of several blocks that are joined have one name in all of them.
                named = 0.0 if len({one[1].rpartition(".")[2] for one in chosen}) == 1 else _UNLIKELY
                for rank, ordered in enumerate(permutations(chosen)):
                    shapes = tuple(one[2] for one in ordered)
                    for place, recipe in enumerate(islice(joined_recipes(shapes, shape), 12)):
                        link = Link(target, shape, tuple(one[1] for one in ordered), shapes, recipe, "values")
                        if not self.search.is_free(link):
                            continue
                        score = 3.0 + named + max(one[0] for one in chosen) + 0.5 * rank + 0.5 * place
                        yield score + (4.0 if recipe.heads or recipe.added else 0.0), link

    def _pool(self, roots: list[int], breadth: int) -> list[tuple[str, int]]:
        """Free weights of the reference near these tensors, in the order of use, with their distance."""
        found: dict[str, int] = {}
        queue: list[tuple[int, int]] = []
        seen: set[int] = set()
        for number in roots:
            for place in self.ours.users.get(number, ()):
                heappush(queue, (0, place))
        while queue and len(found) < 4 * _MOST_POOL:
            distance, place = heappop(queue)
            if place in seen:
                continue
            seen.add(place)
            kernel = self.ours.program.kernels[place]
            cost = 0
            for number in kernel.inputs:
                mask = 0 if self.ours.data[number] else self.ours.behind[number]
                for name in self.ours.bits(mask):
                    free = not self.search.is_used(name) or self.search.has_parts(name)
                    vector = _wide(self.search.read(name).shape) < 2
                    if (free or self.search.is_tied(name)) and (vector or distance <= breadth):
                        found.setdefault(name, distance)
                    if free and not vector:
                        cost = 1
                # What meets the tensor here may be multiplied out on the other side.
                for name in self.ours.bits(self.ours.behind[number] if self.ours.data[number] else 0):
                    if not self.search.is_used(name) and distance <= breadth:
                        found.setdefault(name, distance + 1)
            # A bias may be added by a kernel of its own: vectors are looked for one weight further.
            if distance + cost <= breadth + 1:
                for number in kernel.outputs:
                    for user in self.ours.users.get(number, ()):
                        heappush(queue, (distance + cost, user))
        return list(found.items())


def _module_of(names: list[str]) -> str:
    """The path of the innermost module that holds all of these weights, with its dot."""
    paths = [name.split(".")[:-1] for name in names]
    shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return "".join(f"{parts[0]}." for parts in shared)


def _is_cut_out(link: Link) -> bool:
    """Whether it is a few rows of a tensor, or a vector out of a matrix."""
    recipe, shapes = link.recipe, link.source_shapes
    if not isinstance(recipe, Recipe) or len(shapes) > 1:
        return False
    return recipe.span is not None or _wide(shapes[0]) > _wide(link.shape)


def _wide(shape: Shape) -> int:
    return sum(n > 1 for n in shape)


def _best_first(ranked: list[list[tuple[float, Link]]]) -> Iterator[tuple[tuple[float, Link], ...]]:
    """One of each list, in the order of their summed scores; every list is sorted."""
    if not all(ranked):
        return
    first = (0,) * len(ranked)
    queue, seen = [(0.0, first)], {first}
    while queue:
        _, places = heappop(queue)
        yield tuple(options[place] for options, place in zip(ranked, places, strict=True))
        for axis, place in enumerate(places):
            following = (*places[:axis], place + 1, *places[axis + 1 :])
            if place + 1 < len(ranked[axis]) and following not in seen:
                seen.add(following)
                heappush(queue, (sum(ranked[n][at][0] for n, at in enumerate(following)), following))


def _of_other_parts(links: tuple[Link, ...]) -> bool:
    """Whether a bias takes another part of a layer than its weight."""
    recipes = [link.recipe for link in links if isinstance(link.recipe, Recipe)]
    parts = {recipe.part[1:] for recipe in recipes if recipe.part is not None}
    return len(links) == len({link.sources for link in links}) == 2 and len(parts) > 1


def _overlap(links: tuple[Link, ...]) -> bool:
    """Whether two of them take the same source, or the same part of it."""
    seen: set[tuple[str, Any]] = set()
    for link in links:
        part = (link.recipe.part or link.recipe.span) if isinstance(link.recipe, Recipe) else str(link.target)
        for name in link.sources:
            if (name, part) in seen or (part is not None and (name, None) in seen):
                return True
            seen.add((name, part))
    return False
