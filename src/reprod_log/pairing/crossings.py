"""Crossings: layers that agree only against their names, so that a checkpoint loaded by name would be wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

from reprod_log.layers.lookup import stored_names
from reprod_log.pairing.graph import Graph
from reprod_log.pairing.links import Crossing, Link

_ENOUGH = 0.7
"""By how much the exchanged names must be closer than those of the map."""
_LETTER = 0.4
_HALF = 0.5
_ENDINGS = "qkv"
"""Letters that also mean something at the end of a word (`wq`); any other stands for a word that begins with it."""
_NUMBER = re.compile(r"\d+")
_KINDS = frozenset(("", "n", "ln", "bn", "norm", "layernorm", "batchnorm", "fc", "linear", "lin", "dense", "conv"))


def find_crossings(links: Mapping[str, Link], kinds: Mapping[str, str]) -> tuple[Crossing, ...]:
    """Pairs of layers of equal shapes and kinds (by path) whose names would go together the other way round.

    Numbers in names say nothing, unless both sides have the very same two names.
    """
    layers = _layers(links)
    found = []
    for (target, source), (again, twin) in combinations(layers.items(), 2):
        if source == twin or kinds.get(target) != kinds.get(again):
            continue
        if _shapes(target, links) != _shapes(again, links):
            continue
        if (source, twin) == (again, target) or _exchanged(source, target, twin, again):
            found.append(Crossing(source, target, twin, again))
    return tuple(found)


def find_stand_ins(
    links: Mapping[str, Link], kinds: Mapping[str, str], used: Iterable[tuple[str, str]]
) -> Iterator[Crossing]:
    """Layers of the candidate that do the work of another one which has the same name as the reference's.

    `used` are modules of both sides that gave the same. Layers that begin with the same weights give the same in each
    other's place, as long as nothing trains them.
    """
    layers = _layers(links)
    used = set(used)
    for source, target in sorted(used):
        twin = layers.get(target)
        if twin in (None, source) or layers.get(source) != source or (source, source) in used:
            continue
        if kinds.get(source) == kinds.get(target) and _shapes(source, links) == _shapes(target, links):
            yield Crossing(source, target, str(twin), source)


def _layers(links: Mapping[str, Link]) -> dict[str, str]:
    """The layer of the reference for each of the candidate whose weights all come from one, a bare weight by itself."""
    found: dict[str, set[str]] = {}
    for link in links.values():
        for name in link.sources:
            found.setdefault(_owner(link.target), set()).add(_owner(name))
    return {target: next(iter(sources)) for target, sources in found.items() if len(sources) == 1}


def _owner(name: str) -> str:
    path, _, last = name.rpartition(".")
    return path if path and last in stored_names() else name


def kinds_of(graph: Graph) -> dict[str, str]:
    """The kernel that uses a weight of each layer first."""
    found: dict[str, str] = {}
    for kernel in graph.program.kernels:
        for number in kernel.inputs:
            if number in graph.weights:
                found.setdefault(_owner(graph.weights[number]), kernel.name)
    return found


def renamed_layers(links: Mapping[str, Link]) -> tuple[tuple[str, str], ...]:
    """Layers under other names that another layer of the same shapes could have been taken for."""
    layers = _layers(links)
    shapes = {target: tuple(_shapes(target, links)) for target in layers}
    counts = Counter(shapes.values())
    return tuple(
        (source, target)
        for target, source in layers.items()
        if counts[shapes[target]] > 1 and _last(source) != _last(target)
    )


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _shapes(layer: str, links: Mapping[str, Link]) -> list[tuple[int, ...]]:
    return sorted(link.shape for link in links.values() if _owner(link.target) == layer)


def _exchanged(source: str, target: str, twin: str, again: str) -> bool:
    ours, theirs = _apart(source, twin), _apart(target, again)
    if not all((*ours, *theirs)):
        return False
    straight = sum(_pair_likeness((ours[0], theirs[0]), (ours[1], theirs[1])))
    crossed = _pair_likeness((ours[0], theirs[1]), (ours[1], theirs[0]))
    # A word that is only similar to one of two says nothing as long as the others are strangers to each other.
    certain = min(crossed) > 0 or max(crossed) == 1
    return certain and sum(crossed) - straight >= _ENOUGH


def _apart(one: str, other: str) -> tuple[list[str], list[str]]:
    """The words of two names without those that both have; numbers and words for a kind of layer say nothing."""
    first, second = _tokens(one), _tokens(other)
    return [word for word in first if word not in second], [word for word in second if word not in first]


def _tokens(name: str) -> list[str]:
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    return [word for word in re.split(r"[^a-z]+", _NUMBER.sub(" ", spaced).lower()) if word not in _KINDS]


def _pair_likeness(one: tuple[list[str], list[str]], other: tuple[list[str], list[str]]) -> list[float]:
    found = [_best(*one), _best(*other)]
    # A single letter is a weak word, unless the other half of the exchange is a strong one.
    return [
        min(value, _LETTER) if letter and found[1 - place][0] < _HALF else value
        for place, (value, letter) in enumerate(found)
    ]


def _best(words: list[str], others: list[str]) -> tuple[float, bool]:
    scored = [(_likeness(a, b), len(a) == 1 or len(b) == 1) for a in words for b in others]
    return max(scored, default=(0.0, False))


def _likeness(a: str, b: str) -> float:
    if a == b:
        return 1.0
    short, long = sorted((a, b), key=len)
    if long.startswith(short):
        return 0.8
    if _in_order(short, long) and short[0] == long[0]:
        return 0.7
    if long.endswith(short) and (len(short) > 1 or short in _ENDINGS):
        return 0.6
    if any(short[start : start + 3] in long for start in range(len(short) - 2)):
        return 0.5
    return 0.25 if a[0] == b[0] else 0.0


def _in_order(short: str, long: str) -> bool:
    letters = iter(long)
    return len(short) > 1 and all(letter in letters for letter in short)
