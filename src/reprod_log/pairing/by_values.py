"""Entries of two recordings paired by the values of their float64 passes and, for weights, through the weight map.

Two programs that compute the same are cut into modules as their authors liked. What both sides have is compared; what
lies inside a region that agrees from anchor to anchor is a way of writing, and is listed as such.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from reprod_log.messages import Names, message
from reprod_log.pairing.anchors import SMALL, Index, is_informative, view_of
from reprod_log.pairing.links import WeightMap
from reprod_log.pairing.pairing import CONFIDENCE, Pair, Pairing, View
from reprod_log.recording import Array, Entry, Key, Recording

_OF_MODULES = ("forward", "backward")
_OF_TENSORS = ("gradient", "clip", "update", "parameter", "buffer", "optimizer")
_Place = tuple[str, int | None, str]
"""Path, call and role of what a module takes or gives."""


@dataclass(frozen=True)
class ValuePairs:
    """What the modules of both sides take and give, as far as it is the same in float64."""

    places: Mapping[_Place, tuple[_Place, View | None]]
    modules: Mapping[str, str]
    """The candidate's module for each of the reference that takes and gives the same."""

    @classmethod
    def of(cls, reference: Iterable[Entry], candidate: Iterable[Entry]) -> ValuePairs:
        """The pairs of both sides' float64 passes; entries of other runs are passed over."""
        ours, theirs = _first_step(reference), _first_step(candidate)
        places: dict[_Place, tuple[_Place, View | None]] = {}
        for given in ("output", "input"):
            here = [entry for entry in ours if entry.key.role.startswith(given)]
            there = [entry for entry in theirs if entry.key.role.startswith(given)]
            places |= _paired(here, there, places)
        return cls(places, _modules(ours, theirs, places))


def _first_step(entries: Iterable[Entry]) -> list[Entry]:
    found = [one for one in entries if one.key.run == "float64" and one.key.phase == "forward" and one.detail == "full"]
    first = min((one.key.step or 0 for one in found), default=0)
    return [one for one in found if (one.key.step or 0) == first]


def _place(key: Key) -> _Place:
    return key.path, key.call, key.role


def _paired(
    here: Sequence[Entry], there: Sequence[Entry], known: Mapping[_Place, tuple[_Place, View | None]]
) -> dict[_Place, tuple[_Place, View | None]]:
    index = Index({number: entry.array() for number, entry in enumerate(here)})
    wanted: dict[int, list[tuple[int, int]]] = {}
    for number, entry in enumerate(there):
        for anchor in index.find(entry.array()):
            wanted.setdefault(anchor.number, []).append((len(anchor.axes), number))
    partners = {ours[0]: theirs[0][0] for ours, theirs in known.items()}
    roots, roots_there = (_whole_models({entry.key.path for entry in side}) for side in (here, there))
    taken: set[int] = set()
    found: dict[_Place, tuple[_Place, View | None]] = {}
    for number, entry in enumerate(here):
        own = _place(entry.key)
        # What a program takes and gives goes with what the other takes and gives, not with a layer's.
        options = [
            (axes, other)
            for axes, other in wanted.get(number, [])
            if other not in taken and (own[0] in roots) == (there[other].key.path in roots_there)
        ]
        if not options and prod(entry.shape) <= SMALL:
            # Too few or too plain numbers for a fingerprint: only its namesake can be it.
            options = [
                (0, other)
                for other, one in enumerate(there)
                if other not in taken and _same_place(own, _place(one.key), partners) and _equal(entry, one)
            ]
        if options:
            _, chosen = min(options, key=lambda one: (*_likeness(own, _place(there[one[1]].key), partners), *one))
            taken.add(chosen)
            partner = there[chosen]
            found[own] = (_place(partner.key), view_between(entry, partner))
            partners.setdefault(own[0], partner.key.path)
    return found


def _likeness(own: _Place, other: _Place, partners: Mapping[str, str]) -> tuple[bool, bool, bool]:
    """What to prefer among equals: the partner of the same module, the same name, the same last name."""
    return (
        partners.get(own[0], other[0]) != other[0],
        own[0] != other[0],
        own[0].rpartition(".")[2] != other[0].rpartition(".")[2],
    )


def _same_place(own: _Place, other: _Place, partners: Mapping[str, str]) -> bool:
    return partners.get(own[0], own[0]) == other[0] and own[1:] == other[1:]


def _equal(one: Entry, other: Entry) -> bool:
    return view_of(one.array(), other.array()) is not None


def view_between(reference: Entry, candidate: Entry) -> View | None:
    """The view that gives the candidate's tensor the reference's axes."""
    axes = view_of(reference.array(), candidate.array())
    if not axes:
        return None
    if axes == (-1,):
        return View(message("view.values_reshaped"), shape=reference.shape)
    wide = [axis for axis, size in enumerate(candidate.shape) if size > 1]
    narrow = [axis for axis, size in enumerate(candidate.shape) if size == 1]
    order = (*(wide[axis] for axis in axes), *narrow)
    return View(message("view.values_permuted"), axes=order, shape=reference.shape)


def _modules(
    ours: Sequence[Entry], theirs: Sequence[Entry], places: Mapping[_Place, tuple[_Place, View | None]]
) -> dict[str, str]:
    """Modules whose first call takes the same on both sides, and gives something that both have."""
    held, there = _first_calls(ours), _first_calls(theirs)
    # A state of zeros is the same everywhere, and no fingerprint tells it from another.
    plain, plain_there = ({_place(one.key) for one in side if _is_plain(one)} for side in (ours, theirs))
    found: dict[str, str] = {}
    taken: set[str] = set()
    for path, own in held.items():
        if not path:
            # The whole program alone is the run itself.
            continue
        taken_in = [places.get(place) for place in own if place[2].startswith("input") and place not in plain]
        given = [one for place in own if place[2].startswith("output") and (one := places.get(place)) is not None]
        known = [one for one in taken_in if one is not None]
        paths = {place[0] for place, _ in (*known, *given)}
        if len(paths) != 1 or len(known) < len(taken_in) or not given or any(view for _, view in (*known, *given)):
            continue
        partner = next(iter(paths))
        inputs = sum(place[2].startswith("input") and place not in plain_there for place in there[partner])
        if partner not in taken and inputs == len(taken_in):
            found[path] = partner
            taken.add(partner)
    return found


def _is_plain(entry: Entry) -> bool:
    return entry.key.role.startswith("input") and not is_informative(entry.array())


def _first_calls(entries: Sequence[Entry]) -> dict[str, list[_Place]]:
    found: dict[str, list[_Place]] = {}
    for entry in entries:
        if entry.key.call in (0, None):
            found.setdefault(entry.key.path, []).append(_place(entry.key))
    return found


def match_by_values(reference: Recording, candidate: Recording, weights: WeightMap, named: Pairing) -> Pairing:
    """The pairing of two programs through `weights`; `named` pairs what is neither module nor weight.

    As far as both programs agree, what has no partner is a way of writing, but for what the program returns, weights
    that have a gradient and buffers that change. Behind the last tensor that both have, `named` pairs the modules.
    """
    roots = _roots(reference)

    def is_result(key: Key) -> bool:
        return _is_result(key, roots) and key.role not in weights.inner

    def must_pair(key: Key) -> bool:
        return key.phase in _OF_TENSORS or is_result(key)

    found = ValuePairs.of(reference.entries, candidate.entries)
    finder = _Finder(reference, candidate, weights, found)
    behind = _Behind.of(reference, found, roots)
    pairs: list[Pair] = []
    structural: list[Entry] = []
    alone: list[Entry] = []
    others = {str(pair.reference.key): pair for pair in named.pairs}
    for entry in reference.entries:
        pair = finder.partner(entry)
        own = entry.key.phase not in (*_OF_MODULES, *_OF_TENSORS) or is_result(entry.key)
        needed = own or (pair is None and finder.is_lost(entry))
        if pair is None and (needed or behind.has(entry.key)):
            # What a program returns is compared by its role, whatever its values are.
            pair = others.get(str(entry.key))
            pair = None if pair is None or str(pair.candidate.key) in finder.taken else pair
        if pair is None:
            (alone if needed else structural).append(entry)
        else:
            pairs.append(pair)
            finder.taken.add(str(pair.candidate.key))
    left = [entry for entry in candidate.entries if str(entry.key) not in finder.taken]
    lost = [one for one in left if one.key.phase not in (*_OF_MODULES, *_OF_TENSORS) or finder.is_lost_there(one)]
    kept = {id(one) for one in named.only_in_candidate}
    lost = [one for one in lost if not one.key.run and (one.key.phase in _OF_TENSORS or id(one) in kept)]
    unmatched = {id(one) for one in named.only_in_reference}
    if any(one.key.phase == "gradient" and not one.key.run for one in (*alone, *lost)):
        # Where a weight gets no gradient, it is lost at the tensors behind that weight.
        alone += [one for one in structural if one.key.phase == "backward" and id(one) in unmatched]
        gone = {id(one) for one in alone}
        structural = [one for one in structural if id(one) not in gone]
    untrained = finder.roots - finder.unasked

    def is_missing(one: Entry) -> bool:
        # Without a loss only the program alone has gradients.
        if one.key.run == "isolated" and one.key.phase == "gradient" and one.key.region in untrained:
            return True
        return not one.key.run and (must_pair(one.key) or id(one) in unmatched)

    alone = [one for one in alone if is_missing(one)]
    dropped = {id(one) for one in lost}
    structural += [one for one in left if id(one) not in dropped]
    return Pairing(tuple(pairs), tuple(alone), tuple(lost), tuple(structural), ())


@dataclass(frozen=True)
class _Behind:
    """What runs after the last tensor that both programs have: there, modules are paired by structure."""

    modules: frozenset[str]

    @classmethod
    def of(cls, reference: Recording, found: ValuePairs, roots: frozenset[str]) -> _Behind:
        """The modules whose first output comes after the last anchored output of their model."""
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for number, entry in enumerate(_first_step(reference.entries)):
            if entry.key.role.startswith("output"):
                first.setdefault(entry.key.path, number)
                if _place(entry.key) in found.places:
                    last[_model_of(entry.key.path, roots)] = number
        return cls(frozenset(path for path, at in first.items() if at > last.get(_model_of(path, roots), -1)))

    def has(self, key: Key) -> bool:
        return (key.region or key.path if key.phase in _OF_TENSORS else key.path) in self.modules


def _model_of(path: str, roots: frozenset[str]) -> str:
    return "" if "" in roots else path.partition(".")[0]


def _is_result(key: Key, roots: frozenset[str]) -> bool:
    """Whether an entry is what a whole model returns."""
    return key.phase == "forward" and key.path in roots and key.role.startswith("output")


def _roots(recording: Recording) -> frozenset[str]:
    return _whole_models({module.path for module in recording.modules})


def _whole_models(paths: Collection[str]) -> frozenset[str]:
    """The paths of whole models: of one the empty one, of several their names."""
    return frozenset(("",)) if "" in paths else frozenset(path for path in paths if "." not in path)


def _same_form(one: Entry, other: Entry) -> bool:
    """Whether two tensors have the same axes, but for those of one element."""
    wide, wide_there = ([size for size in shape if size != 1] for shape in (one.shape, other.shape))
    return wide == wide_there


class _Finder:
    """Partners of entries by the places of `ValuePairs` and by the weight map."""

    def __init__(self, reference: Recording, candidate: Recording, weights: WeightMap, found: ValuePairs) -> None:
        self.candidate, self.weights, self.found = candidate, weights, found
        self.roots = _roots(reference) & _roots(candidate)
        trained = any(entry.key.phase == "loss" or entry.key.phase == "gradient" for entry in reference.of_run(""))
        self.unasked = self.roots if trained else frozenset[str]()
        """Whole programs whose training asks for no gradient of their inputs."""
        self.moving = (_moving(reference), _moving(candidate))
        self.there = {str(entry.key): entry for entry in candidate.entries}
        self.taken: set[str] = set()
        self.apart = frozenset(self._differ_alone(reference))
        """Modules that differ when they are run alone although all that flows through them agrees: something of what
        they do is done outside of them on the other side."""

    def _differ_alone(self, reference: Recording) -> Iterator[str]:
        for entry in reference.entries:
            key = entry.key
            if key.run == "isolated.float64" and key.phase == "forward" and key.path in self.found.modules:
                other = self.there.get(str(replace(key, path=self.found.modules[key.path])))
                if other is not None and entry.array().size and view_of(entry.array(), other.array()) is None:
                    yield key.path

    def partner(self, entry: Entry) -> Pair | None:
        if entry.key.phase in _OF_MODULES:
            return self._module_entry(entry)
        return self._tensor_entry(entry) if entry.key.phase in _OF_TENSORS else None

    def _module_entry(self, entry: Entry) -> Pair | None:
        key = entry.key
        if key.run.startswith("isolated"):
            path = key.path if key.path in self.roots else self.found.modules.get(key.path)
            if path is None or key.path in self.apart or (key.phase == "backward" and key.path in self.unasked):
                return None
            roles = (key.role, f"{key.role}.0", key.role.removesuffix(".0"))
            pairs = (self._pair(entry, replace(key, path=path, role=role), None) for role in roles)
            return next((pair for pair in pairs if pair is not None), None)
        base, mark, rest = key.role.partition("~")
        place = self.found.places.get((key.path, key.call, base))
        if place is None:
            return None
        (path, call, role), view = place
        return self._pair(entry, replace(key, path=path, call=call, role=f"{role}{mark}{rest}"), view)

    def _pair(self, entry: Entry, key: Key, view: View | None) -> Pair | None:
        other = self.there.get(str(key))
        if other is None or str(key) in self.taken:
            return None
        if view is None and other.shape != entry.shape:
            if prod(other.shape) != prod(entry.shape):
                return None
            view = View(message("view.values_reshaped"), shape=entry.shape)
        if (
            view is not None
            and view.axes is None
            and _is_result(entry.key, self.roots)
            and not _same_form(entry, other)
        ):
            # Whoever uses what a program returns depends on its shape.
            return None
        return Pair(entry, other, "value", CONFIDENCE["value"], view)

    def _runs_alone(self, region: str | None) -> bool:
        """Whether a module takes and gives the same on both sides, so that it can be compared alone."""
        return region in self.roots or (region in self.found.modules and region not in self.apart)

    def _tensor_entry(self, entry: Entry) -> Pair | None:
        key = entry.key
        if key.run.startswith("isolated") and not self._runs_alone(key.region):
            return None
        add = key.phase in ("gradient", "clip")
        links = self.weights.by_source.get(key.path, ())
        if any(link.is_computed for link in links):
            return None
        if not add and len(links) > 1 and not self.weights.is_apart(key.path):
            # Tied here and not there: its first copy is compared, the others are the candidate's own.
            links = links[:1]
        keys = [str(replace(key, path=link.target)) for link in links]
        if not keys or any(one not in self.there for one in keys):
            return None
        parts = [self.there[one] for one in keys]
        whole = [link.target for link in links]
        link = links[0]
        shape = link.source_shapes[link.sources.index(key.path)]
        if entry.shape != shape or any(part.detail != "full" for part in parts):
            # Counters and powers kept per parameter have no layout.
            same = len(links) == 1 and parts[0].shape == entry.shape and str(parts[0].key) not in self.taken
            return Pair(entry, parts[0], "value", CONFIDENCE["value"]) if same else None

        def made() -> Array | None:
            arrays = {name: part.array() for name, part in zip(whole, parts, strict=True)}
            return self.weights.back(key.path, entry.shape, arrays, add=add)

        # With zeros, since whether a tensor is covered does not depend on its values.
        empty = {one.target: np.zeros(one.shape) for one in links}
        if self.weights.back(key.path, shape, empty, add=add) is None:
            return None
        self.taken.update(keys)
        if len(links) == 1 and str(link.recipe) == "as is" and parts[0].shape == entry.shape:
            return Pair(entry, parts[0], "value", CONFIDENCE["value"])

        def read() -> Array:
            found = made()
            assert found is not None
            return np.asarray(found, parts[0].array().dtype)

        viewed = replace(parts[0], shape=entry.shape, read=read, hash="")
        return Pair(
            entry, viewed, "value", CONFIDENCE["value"], View(message("view.through_map", targets=Names(whole)))
        )

    def is_lost(self, entry: Entry) -> bool:
        """Whether it matters that it has no partner: a gradient or an update that is not zero, a buffer that moves."""
        key = entry.key
        if key.run.startswith("isolated") and not self._runs_alone(key.region):
            return False
        links = self.weights.by_source.get(key.path)
        if links is not None and any(link.is_computed for link in links):
            # What several weights make together has a gradient of its own.
            return False
        if key.phase == "gradient":
            return not entry.is_zero()
        if links is None:
            return key.path in self.moving[0]
        missing = any(str(replace(key, path=link.target)) not in self.there for link in links)
        return key.phase == "update" and missing and not entry.is_zero()

    def is_lost_there(self, entry: Entry) -> bool:
        """The same for the candidate, and a copy of a weight that is one with another in the reference."""
        link = self.weights.by_target.get(entry.key.path)
        if link is not None and link.is_computed:
            return False
        if entry.key.phase == "gradient":
            return not entry.is_zero()
        if entry.key.phase in ("parameter", "update") and entry.key.path in self.weights.by_target:
            sources = self.weights.by_target[entry.key.path].sources
            return any(not self.weights.is_apart(name) for name in sources)
        return entry.key.path not in self.weights.by_target and entry.key.path in self.moving[1]


def _moving(recording: Recording) -> frozenset[str]:
    """Buffers that a training changes; tables are the same at every step."""
    contents: dict[str, set[str]] = {}
    for entry in recording.of_run(""):
        if entry.key.phase == "buffer":
            contents.setdefault(entry.key.path, set()).add(entry.hash)
    return frozenset(path for path, hashes in contents.items() if len(hashes) > 1)
