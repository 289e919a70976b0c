"""What the modules of two programs take and give, as far as it is the same tensor: found by its values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from reprod_log.messages import message
from reprod_log.pairing.anchors import LOOSE, Index, is_informative, nearest_axes, view_of
from reprod_log.pairing.pairing import Pairing, View
from reprod_log.recording import Array, Entry, Key, Recording

Place = tuple[str, int | None, str]
"""Path, call and role of what a module takes or gives."""
Call = tuple[str, int | None]
_FLOAT64 = "float64"
AS_RUN = 1e-4
"""Equal without a float64 pass: what float32 rounds through a whole model (1e-6 per layer); above it, names decide."""


@dataclass(frozen=True)
class Hints:
    """What names and structure say of the places of two programs: which to prefer, and which may not be crossed."""

    places: Mapping[Place, Place] = field(default_factory=dict)
    settled: Mapping[str, str] = field(default_factory=dict)
    """Modules of one name on both sides, of programs that differ: nothing but these are partners."""

    @classmethod
    def of(cls, named: Pairing, *, agrees: bool) -> Hints:
        first = [pair for pair in named.pairs if pair.reference.key.phase == "forward" and not pair.reference.key.run]
        first.reverse()
        return cls(
            {place_of(pair.reference.key): place_of(pair.candidate.key) for pair in first},
            {}
            if agrees
            else {pair.reference.key.path: pair.candidate.key.path for pair in first if pair.how in ("name", "rename")},
        )

    def allow(self, own: str, other: str) -> bool:
        return self.settled.get(own, other) == other and self._back.get(other, own) == own

    @cached_property
    def _back(self) -> Mapping[str, str]:
        return {other: own for own, other in self.settled.items()}


@dataclass(frozen=True)
class ValuePairs:
    """What the modules of both sides take and give, as far as it is the same: in float64, or as they run."""

    places: Mapping[Place, tuple[Place, View | None]]
    modules: Mapping[str, str]
    """The candidate's module for each of the reference that takes and gives the same."""
    viewed: Mapping[str, str]
    """The same, and modules that take or give it in another layout."""

    @classmethod
    def of(cls, reference: Iterable[Entry], candidate: Iterable[Entry], hints: Hints | None = None) -> ValuePairs:
        """The pairs of both sides' first steps."""
        ours, theirs, limit = first_steps(reference, candidate)
        places: dict[Place, tuple[Place, View | None]] = {}
        for given in ("output", "input"):
            here = [entry for entry in ours if entry.key.role.startswith(given)]
            there = [entry for entry in theirs if entry.key.role.startswith(given)]
            places |= _paired(here, there, places, hints or Hints(), limit)
        return cls(places, _modules(ours, theirs, places), _modules(ours, theirs, places, viewed=True))

    def without(self, modules: Collection[str]) -> ValuePairs:
        """The same, with some of the reference's modules not to be compared alone."""
        kept, viewed = (
            {one: other for one, other in some.items() if one not in modules} for some in (self.modules, self.viewed)
        )
        return replace(self, modules=kept, viewed=viewed)


def first_steps(reference: Iterable[Entry], candidate: Iterable[Entry]) -> tuple[list[Entry], list[Entry], float]:
    """What both sides' modules took and gave first, in float64 if both ran so, and how far the same may differ."""
    sides = [list(filter(_is_shown, side)) for side in (reference, candidate)]
    for run, limit in ((_FLOAT64, LOOSE), ("", AS_RUN)):
        found = [_first_step([one for one in side if one.key.run == run]) for side in sides]
        if all(found):
            return found[0], found[1], limit
    return [], [], LOOSE


def same_as_they_run(reference: Recording, candidate: Recording, hints: Hints) -> Iterator[tuple[Place, Place]]:
    """Places of one name on both sides where the programs, as they run, take or give the same."""
    ours, theirs = (
        {place_of(one.key): one for one in _first_step([one for one in side.of_run("") if _is_shown(one)])}
        for side in (reference, candidate)
    )
    for own, other in hints.places.items():
        if own in ours and other in theirs and _equal(ours[own], theirs[other], AS_RUN):
            yield own, other


def _is_shown(entry: Entry) -> bool:
    return entry.key.phase == "forward" and entry.detail == "full"


def _first_step(entries: Sequence[Entry]) -> list[Entry]:
    first = min((one.key.step or 0 for one in entries), default=0)
    return [one for one in entries if (one.key.step or 0) == first]


def place_of(key: Key) -> Place:
    return key.path, key.call, key.role


class _Arrays(Mapping[int, Array]):
    """The arrays of entries, read when they are asked for."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def __getitem__(self, number: int) -> Array:
        return self._entries[number].array()

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._entries)))

    def __len__(self) -> int:
        return len(self._entries)


def _paired(
    here: Sequence[Entry],
    there: Sequence[Entry],
    known: Mapping[Place, tuple[Place, View | None]],
    hints: Hints,
    limit: float,
) -> dict[Place, tuple[Place, View | None]]:
    index = Index(_Arrays(here), limit)
    wanted: dict[int, list[tuple[int, int]]] = {}
    for number, entry in enumerate(there):
        for anchor in index.find(entry.array()):
            wanted.setdefault(anchor.number, []).append((len(anchor.axes), number))
    numbers = {place_of(entry.key): number for number, entry in enumerate(there)}
    partners = {ours[0]: theirs[0][0] for ours, theirs in known.items()}
    roots, roots_there = (whole_models({entry.key.path for entry in side}) for side in (here, there))
    taken: set[int] = set()
    found: dict[Place, tuple[Place, View | None]] = {}
    for number, entry in enumerate(here):
        own = place_of(entry.key)
        namesake = hints.places.get(own, (partners.get(own[0], own[0]), *own[1:]))
        # What a program takes and gives goes with what the other takes and gives, not with a layer's.
        options = [
            (axes, other)
            for axes, other in wanted.get(number, [])
            if other not in taken
            and (own[0] in roots) == (there[other].key.path in roots_there)
            and hints.allow(own[0], there[other].key.path)
        ]
        other = numbers.get(namesake)
        if not options and other is not None and other not in taken and _equal(entry, there[other], limit):
            # Too few or too plain numbers for a fingerprint: only its namesake can be it.
            options = [(0, other)]
        if options:
            _, chosen = min(
                options, key=lambda one: (*_likeness(own, place_of(there[one[1]].key), namesake, partners), *one)
            )
            taken.add(chosen)
            partner = there[chosen]
            found[own] = (place_of(partner.key), view_between(entry, partner, limit))
            partners.setdefault(own[0], partner.key.path)
    return found


def _likeness(own: Place, other: Place, namesake: Place, partners: Mapping[str, str]) -> tuple[bool, ...]:
    """What to prefer among equals: what structure says, the partner of the same module, the same name or last name."""
    return (
        other != namesake,
        partners.get(own[0], other[0]) != other[0],
        own[0] != other[0],
        own[0].rpartition(".")[2] != other[0].rpartition(".")[2],
    )


def _equal(one: Entry, other: Entry, limit: float) -> bool:
    return bool(prod(one.shape)) and view_of(one.array(), other.array(), limit) is not None


def view_between(reference: Entry, candidate: Entry, limit: float = LOOSE) -> View | None:
    """The view that gives the candidate's tensor the reference's axes."""
    axes = view_of(reference.array(), candidate.array(), limit)
    return _view(axes, reference, candidate) if axes else None


def nearest_view(reference: Entry, candidate: Entry) -> View | None:
    """The view under which two tensors that differ are by far the closest: they may be written with other axes."""
    axes = nearest_axes(reference.array(), candidate.array())
    return _view(axes, reference, candidate) if axes else None


def _view(axes: tuple[int, ...], reference: Entry, candidate: Entry) -> View:
    if axes == (-1,):
        return View(message("view.values_reshaped"), shape=reference.shape)
    wide = [axis for axis, size in enumerate(candidate.shape) if size > 1]
    narrow = [axis for axis, size in enumerate(candidate.shape) if size == 1]
    order = (*(wide[axis] for axis in axes), *narrow)
    return View(message("view.values_permuted"), axes=order, shape=reference.shape)


def _modules(
    ours: Sequence[Entry],
    theirs: Sequence[Entry],
    places: Mapping[Place, tuple[Place, View | None]],
    *,
    viewed: bool = False,
) -> dict[str, str]:
    """Modules whose first call takes the same on both sides, and gives something that both have."""
    held, there = _first_calls(ours), _first_calls(theirs)
    # A state of zeros is the same everywhere, and no fingerprint tells it from another.
    plain, plain_there = ({place_of(one.key) for one in side if _is_plain(one)} for side in (ours, theirs))
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
        if len(paths) != 1 or len(known) < len(taken_in) or not given:
            continue
        if not viewed and any(view for _, view in (*known, *given)):
            continue
        partner = next(iter(paths))
        inputs = sum(place[2].startswith("input") and place not in plain_there for place in there[partner])
        if partner not in taken and inputs == len(taken_in):
            found[path] = partner
            taken.add(partner)
    return found


def is_telling(entry: Entry) -> bool:
    """Whether few programs give these numbers: classes, flags, constants and rows of a bias are the same for many."""
    array = entry.array()
    if not entry.dtype.startswith(("float", "bfloat", "complex")) or not is_informative(array):
        return False
    return array.ndim < 2 or len(array) < 2 or bool((array != array[:1]).any())


def _is_plain(entry: Entry) -> bool:
    return entry.key.role.startswith("input") and not is_informative(entry.array())


def _first_calls(entries: Sequence[Entry]) -> dict[str, list[Place]]:
    found: dict[str, list[Place]] = {}
    for entry in entries:
        if entry.key.call in (0, None):
            found.setdefault(entry.key.path, []).append(place_of(entry.key))
    return found


def is_result(key: Key, roots: frozenset[str]) -> bool:
    """Whether an entry is what a whole model returns."""
    return key.phase == "forward" and key.path in roots and key.role.startswith("output")


def roots_of(recording: Recording) -> frozenset[str]:
    return whole_models({module.path for module in recording.modules})


def whole_models(paths: Collection[str]) -> frozenset[str]:
    """The paths of whole models: of one the empty one, of several their names."""
    return frozenset(("",)) if "" in paths else frozenset(path for path in paths if "." not in path)


def kinds_of_modules(recording: Recording) -> dict[str, str]:
    return {module.path: module.kind for module in recording.modules}
