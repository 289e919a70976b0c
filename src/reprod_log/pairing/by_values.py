"""Entries of two recordings paired by the values of their float64 passes and, for weights, through the weight map.

Two programs that compute the same are cut into modules as their authors liked. What both sides have is compared; what
lies inside a region that agrees from anchor to anchor is a way of writing, and is listed as such.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from reprod_log.pairing.anchors import LOOSE, same_numbers, view_of
from reprod_log.pairing.crossings import find_crossings, find_stand_ins
from reprod_log.pairing.entries import keeps_weights
from reprod_log.pairing.links import Crossing, Link, WeightMap
from reprod_log.pairing.pairing import Pair, Pairing
from reprod_log.pairing.partners import Partners
from reprod_log.pairing.places import (
    AS_RUN,
    Hints,
    Place,
    ValuePairs,
    first_steps,
    is_result,
    is_telling,
    kinds_of_modules,
    place_of,
    roots_of,
)
from reprod_log.pairing.recorded_map import covered_modules, recorded_map
from reprod_log.pairing.regions import Regions
from reprod_log.pairing.rename import fronts
from reprod_log.pairing.units import UnitPair
from reprod_log.recording import OF_MODULES, OF_TENSORS, Array, Entry, Key, Recording

_FLOAT64, _ALONE = "float64", "isolated.float64"
_Update = tuple[str, int | None]
"""A weight and the step in which it is updated."""


def match_by_values(
    reference: Recording, candidate: Recording, named: Pairing, units: Iterable[UnitPair], weights: WeightMap | None
) -> Pairing:
    """The pairing of two programs by what they compute; `named` is what names and structure say, `units` its layers.

    `weights` is a map under which live programs agree; of recordings it is found by value. As far as both
    programs agree, what has no partner is a way of writing, but for what the program returns, weights that have a
    gradient and buffers that change. Behind the first tensor that differs, `named` pairs.
    """
    agrees = results_agree(reference, candidate, named) if weights is None else weights.agrees
    # The nodes of a graph may keep the names of layers whose results they no longer are.
    graph = not (keeps_weights(reference) and keeps_weights(candidate))
    hints = Hints.of(named, agrees=agrees or graph)
    found = ValuePairs.of(reference.entries, candidate.entries, hints)
    given = weights is not None
    if given:
        found = found.without(_differ_alone(reference, candidate, found))
    weights = weights or recorded_map(reference, candidate, units, found.viewed)
    sides = Regions.of(reference, candidate, found, hints, agrees=agrees)
    finder = Partners(reference, candidate, weights, found, given=given)
    results = _Results(roots_of(reference), weights.inner)
    steps = _Steps({str(pair.reference.key): pair for pair in named.pairs}, finder, results, sides, given)
    chosen, waiting = steps.by_value(reference.entries)
    left, formulated = steps.by_name(waiting, chosen)
    rest = [entry for entry in candidate.entries if str(entry.key) not in finder.taken]
    held = _held(reference, weights.by_source), _held(candidate, weights.by_target)
    missing = _Missing(named, finder, results, sides, held, formulated, given=given, graph=graph)
    pairs = [chosen[str(entry.key)] for entry in reference.entries if str(entry.key) in chosen]
    alone, lost = missing.here(left), missing.there(rest)
    several = _of_several_outputs(reference, candidate, found)
    gradients = _gradients(pairs, weights)
    read = _read_elsewhere(several[0], gradients[0], left), _read_elsewhere(several[1], gradients[1], rest)
    updates = _updates(reference), _updates(candidate)
    used = (
        updates[0] | _renamed(updates[1], weights.by_target),
        updates[1] | _renamed_back(updates[0], weights.by_source),
    )
    idle = _idle_gradients(pairs, used, gradients[0])
    kept = [
        pair
        for pair in pairs
        if not (_is_given_back(pair.reference.key, read[0]) or _is_given_back(pair.candidate.key, read[1]))
        and pair.reference.key not in idle
    ]
    idle_here, idle_there = _idle_alone(alone, gradients[0], used[0]), _idle_alone(lost, gradients[1], used[1])
    alone = [one for one in alone if not _is_given_back(one.key, read[0]) and id(one) not in idle_here]
    lost = [one for one in lost if not _is_given_back(one.key, read[1]) and id(one) not in idle_there]
    compared = {id(one) for pair in kept for one in (pair.reference, pair.candidate)}
    apart = [one for pair in pairs for one in (pair.reference, pair.candidate) if id(one) not in compared]
    listed = {id(one) for one in (*alone, *lost)}
    return Pairing(
        tuple(kept),
        tuple(alone),
        tuple(lost),
        tuple(one for one in (*left, *rest, *apart) if id(one) not in listed),
        tuple(note for note in named.notes if alone or lost or not agrees or note.id == "note.pairing.no_pass"),
        _crossings(weights, found, kinds_of_modules(candidate)) if agrees and not given else (),
    )


def _crossings(weights: WeightMap, found: ValuePairs, kinds: Mapping[str, str]) -> tuple[Crossing, ...]:
    links = weights.by_target
    crossings = find_crossings(links, kinds)
    used = ((own[0], other[0]) for own, (other, _) in found.places.items() if own[2].startswith("output"))
    return crossings or tuple(find_stand_ins(links, kinds, used))


def _differ_alone(reference: Recording, candidate: Recording, found: ValuePairs) -> set[str]:
    """Modules that differ when they are run alone although all that flows through them agrees: something of what they
    do is done outside of them on the other side."""
    there = {str(entry.key): entry for entry in candidate.of_run(_ALONE)}
    pairs = [
        (entry, there.get(str(replace(entry.key, path=found.viewed[entry.key.path]))))
        for entry in reference.of_run(_ALONE)
        if entry.key.phase == "forward" and entry.key.path in found.viewed
    ]
    return {
        entry.key.path
        for entry, other in pairs
        if other is not None and entry.array().size and view_of(entry.array(), other.array()) is None
    }


@dataclass(frozen=True)
class _Steps:
    """First what has the same values is paired, then the rest by name."""

    named: Mapping[str, Pair]
    finder: Partners
    results: _Results
    sides: tuple[Regions, Regions]
    given: bool

    def by_value(self, entries: Iterable[Entry]) -> tuple[dict[str, Pair], list[Entry]]:
        """The pairs by the reference's keys, and the entries without one."""
        chosen: dict[str, Pair] = {}
        waiting: list[Entry] = []
        for entry in entries:
            known = self.named.get(str(entry.key))
            pair = None if known is not None and self._is_stated(known) else self.finder.partner(entry)
            if pair is None:
                waiting.append(entry)
                continue
            if known is not None and known.candidate.key == pair.candidate.key:
                pair = _with_reasons(pair, known)
            chosen[str(entry.key)] = pair
            self.finder.taken.add(str(pair.candidate.key))
        return chosen, waiting

    def _is_stated(self, known: Pair) -> bool:
        if known.how == "rename":
            return True
        entry = known.reference
        return not self.given and (not self.finder.knows_better(entry) or self.results.has(entry.key))

    def by_name(self, waiting: Iterable[Entry], chosen: dict[str, Pair]) -> tuple[list[Entry], set[int]]:
        """Adds pairs to those chosen; what is left, and entries of the candidate whose partner is formulation.

        What has the same values is not taken away by a name; what lost its partner so gets the one that was left.
        """
        gone = frozenset(self.finder.taken)
        freed = {str(pair.candidate.key): self.named[key] for key, pair in chosen.items() if key in self.named}
        left: list[Entry] = []
        formulated: set[int] = set()
        wanted = {str(pair.candidate.key) for pair in self.named.values()}
        for entry in waiting:
            known = self.named.get(str(entry.key))
            fed = None if known is not None else self.finder.by_input(entry)
            inside = not self.results.has(entry.key) and (
                self.sides[0].has(entry.key) or (known is not None and self.sides[1].has(known.candidate.key))
            )
            if fed is not None and str(fed.candidate.key) not in wanted:
                known = fed
            if inside and known is not None:
                formulated.add(id(known.candidate))
            by_map = self.given and entry.key.phase in OF_TENSORS and not self.finder.is_lost(entry)
            apart = known is not None and known.how == "structure" and self.finder.lie_apart(known)
            other = None if known is None or inside or by_map or apart else _not_gone(known, gone, freed)
            if known is None or other is None:
                left.append(entry)
            else:
                pair = known if other is known else replace(known, candidate=other.candidate, view=None)
                chosen[str(entry.key)] = self.finder.laid_out(pair)
                self.finder.taken.add(str(other.candidate.key))
        return left, formulated


def _of_several_outputs(reference: Recording, candidate: Recording, found: ValuePairs) -> tuple[set[str], set[str]]:
    """The modules of both sides that give several tensors, and those that give one of these tensors."""
    ours, theirs = (
        {path for path, count in Counter(place[0] for place in _outputs(side)).items() if path and count > 1}
        for side in (reference, candidate)
    )
    paths = {(own[0], other[0]) for own, (other, _) in found.places.items() if own[0] and other[0]}
    return ours | {one for one, other in paths if other in theirs}, theirs | {two for one, two in paths if one in ours}


def _outputs(recording: Recording) -> set[Place]:
    keys = (one.key for one in recording.of_run("") if one.key.phase == "forward")
    return {place_of(key) for key in keys if key.role.startswith("output")}


def _read_elsewhere(several: Collection[str], compared: Iterable[tuple[Key, bool]], alone: Iterable[Entry]) -> set[str]:
    """Modules of several outputs whose outputs get other gradients, and whose weights and inputs get the same ones.

    The last state of a recurrent layer is also the last step of its sequence, and what a layer gives may be kept or
    computed anew for every use: which of the tensors a program reads is its author's choice, and the layer makes one
    gradient of all of theirs. `compared` are gradients and whether they are the same
    as their partners; `alone` have none.
    """
    if not several:
        return set()
    lost = (one for one in alone if one.key.phase in ("gradient", "backward") and not one.is_zero())
    rows = [*compared, *((one.key, False) for one in lost)]
    differ = {key.path for key, equal in rows if _is_given_back(key, several) and not equal}
    shown: dict[str, list[bool]] = {}
    for key, equal in rows:
        if key.phase == "gradient" or key.role.startswith("input"):
            for path in differ.intersection(fronts(key.path)):
                shown.setdefault(path, []).append(equal)
    return {path for path, equal in shown.items() if all(equal)}


def _gradients(pairs: Iterable[Pair], weights: WeightMap) -> tuple[list[tuple[Key, bool]], list[tuple[Key, bool]]]:
    """The gradients of both sides that have partners, and whether they are the same; zeros on both say nothing."""
    both = [pair for pair in pairs if pair.reference.key.phase in ("gradient", "backward")]
    runs = {pair.reference.key.run for pair in both}
    run, limit = (_FLOAT64, LOOSE) if _FLOAT64 in runs else ("", AS_RUN)
    ours: list[tuple[Key, bool]] = []
    theirs: list[tuple[Key, bool]] = []
    for pair in both:
        key = pair.reference.key
        if key.run == run and not (pair.reference.is_zero() and pair.candidate.is_zero()):
            equal = _is_equal_pair(pair, limit)
            ours.append((key, equal))
            links = weights.by_source.get(key.path, ()) if key.phase == "gradient" else ()
            theirs += [(replace(key, path=link.target), equal) for link in links] or [(pair.candidate.key, equal)]
    return ours, theirs


def _idle_gradients(
    pairs: Iterable[Pair],
    used: tuple[Collection[_Update], Collection[_Update]],
    compared: Iterable[tuple[Key, bool]],
) -> set[Key]:
    """Gradients that differ by those of the step before, in steps in which neither side's optimizers use them.

    The critic of a generator gets gradients that nobody wants while the generator is trained: one program clears them
    before they come, another one before its critic is trained.
    """
    before: dict[tuple[str, str, str], tuple[Array, Array]] = {}
    found: set[Key] = set()
    for pair in pairs:
        key, other = pair.reference.key, pair.candidate.key
        if key.phase != "gradient" or key.run not in ("", _FLOAT64):
            continue
        both = _arrays(pair)
        if both is None:
            continue
        place = key.run, key.path, key.role
        idle = (key.path, key.step) not in used[0] and (other.path, other.step) not in used[1]
        if idle and place in before and before[place][0].shape == both[0].shape:
            limit = LOOSE if key.run else AS_RUN
            kept = (both[0] - before[place][0], both[1]), (both[0], both[1] - before[place][1])
            if not same_numbers(*both, limit) and any(same_numbers(*one, limit) for one in kept):
                found.add(key)
        before[place] = both
    harmless = _harmless(found, compared, used[0])
    return {key for key in found if key.path in harmless}


def _idle_alone(
    alone: Iterable[Entry], compared: Iterable[tuple[Key, bool]], used: Collection[_Update]
) -> frozenset[int]:
    """Gradients of one side alone that no optimizer uses in their step: a program may freeze its critic while the
    generator is trained."""
    idle = [one for one in alone if one.key.phase == "gradient" and (one.key.path, one.key.step) not in used]
    harmless = _harmless((one.key for one in idle), compared, used)
    return frozenset(id(one) for one in idle if one.key.path in harmless)


def _harmless(idle: Iterable[Key], compared: Iterable[tuple[Key, bool]], used: Collection[_Update]) -> set[str]:
    """Weights whose idle gradients change nothing later: at the next update both sides have the same gradient."""
    equal = {(key.path, key.step) for key, is_equal in compared if is_equal and key.phase == "gradient"}
    found = set()
    for key in idle:
        later = [step or 0 for path, step in used if path == key.path and (step or 0) > (key.step or 0)]
        if later and (key.path, min(later)) in equal:
            found.add(key.path)
    return found


def _updates(recording: Recording) -> set[_Update]:
    """Weights, and the steps in which they are updated."""
    return {(one.key.path, one.key.step) for one in recording.of_run("") if one.key.phase == "update"}


def _renamed(updates: Iterable[_Update], links: Mapping[str, Link]) -> set[_Update]:
    """The candidate's updates under the reference's names."""
    return {(name, step) for path, step in updates if path in links for name in links[path].sources}


def _renamed_back(updates: Iterable[_Update], links: Mapping[str, Sequence[Link]]) -> set[_Update]:
    return {(link.target, step) for path, step in updates for link in links.get(path, ())}


def _is_given_back(key: Key, paths: Collection[str]) -> bool:
    """Whether it is the gradient of an output of one of some modules."""
    return key.phase == "backward" and key.role.startswith("output") and key.path in paths


def _held(recording: Recording, mapped: Collection[str]) -> frozenset[str]:
    """The modules with weights of which one is not mapped."""
    held = {module.path for module in recording.modules if module.parameters}
    return frozenset(held - covered_modules(recording, mapped))


def _not_gone(known: Pair, gone: Collection[str], freed: Mapping[str, Pair]) -> Pair | None:
    """The pair, or the one whose partner was left when its own was taken, if there is one."""
    for _ in range(len(freed) + 1):
        text = str(known.candidate.key)
        if text not in gone:
            return known
        if text not in freed:
            return None
        known = freed[text]
    return None


def _with_reasons(pair: Pair, known: Pair) -> Pair:
    """A pair by value that names or structure say as well, in their words."""
    if known.how == "name":
        pair = replace(pair, how=known.how, confidence=known.confidence)
    if pair.view is not None and known.view is not None and known.view.axes == pair.view.axes:
        pair = replace(pair, view=known.view)
    return pair


def results_agree(reference: Recording, candidate: Recording, named: Pairing) -> bool:
    """Whether all that the programs return, and their losses, are the same numbers in the first step."""
    ours, theirs, limit = first_steps(reference.entries, candidate.entries)
    if not ours:
        return False
    roots, run, step = roots_of(reference), ours[0].key.run, ours[0].key.step
    partners = {str(pair.reference.key): pair for pair in named.pairs}
    results = [one for one in ours if is_result(one.key, roots)]
    losses = [one for one in reference.of_run(run) if one.key.phase == "loss" and one.key.step == step]
    if not results or len(results) != sum(is_result(one.key, roots_of(candidate)) for one in theirs):
        return False
    if not any(map(is_telling, (*results, *losses))):
        # Classes, flags and constants are the same for many programs.
        return False
    return all(
        (pair := partners.get(str(one.key))) is not None and _is_equal_pair(pair, limit) for one in (*results, *losses)
    )


def _is_equal_pair(pair: Pair, limit: float) -> bool:
    both = _arrays(pair)
    return both is not None and same_numbers(*both, limit)


def _arrays(pair: Pair) -> tuple[Array, Array] | None:
    """Both tensors in one form, where both were kept and have one."""
    if not prod(pair.reference.shape) or not "full" == pair.reference.detail == pair.candidate.detail:
        return None
    ours, theirs = pair.reference.array(), pair.candidate.array()
    theirs = theirs if pair.view is None else pair.view.of(theirs)
    return (ours, theirs) if ours.shape == theirs.shape else None


@dataclass(frozen=True)
class _Results:
    """What whole models return."""

    roots: frozenset[str]
    inner: Collection[str]
    """Results that the other side only computes on its way."""

    def has(self, key: Key) -> bool:
        return is_result(key, self.roots) and key.role not in self.inner


@dataclass(frozen=True)
class _Missing:
    """What has no partner and needs one."""

    named: Pairing
    finder: Partners
    results: _Results
    sides: tuple[Regions, Regions]
    held: tuple[frozenset[str], frozenset[str]]
    """Modules of either side with weights that the other side does not have: that they run is no formulation."""
    formulated: Collection[int]
    """Entries of the candidate whose partner lies in a region that agrees."""
    given: bool
    """Whether there is a map of live weights; else names say what is missing."""
    graph: bool
    """Whether a side is a graph, in which layers are folded: only what the program takes and gives must pair."""

    def here(self, left: Sequence[Entry]) -> list[Entry]:
        unmatched = {id(one) for one in self.named.only_in_reference}
        if not self.given:
            unmatched |= {id(pair.reference) for pair in self.named.pairs}
            return [one for one in left if id(one) in unmatched and not self._is_inside(one, 0)]
        found = [one for one in left if self._is_needed(one, unmatched)]
        if any(one.key.phase == "gradient" and not one.key.run for one in found):
            # Where a weight gets no gradient, it is lost at the tensors behind that weight.
            found += [one for one in left if one.key.phase == "backward" and id(one) in unmatched]
        return found

    def there(self, rest: Sequence[Entry]) -> list[Entry]:
        unmatched = {id(one) for one in self.named.only_in_candidate}
        if not self.given:
            unmatched |= {id(pair.candidate) for pair in self.named.pairs}
            return [one for one in rest if id(one) in unmatched and not self._is_inside(one, 1)]
        return [
            one
            for one in rest
            if not one.key.run
            and (
                self.finder.is_lost_there(one)
                if one.key.phase in OF_TENSORS
                else id(one) in unmatched and (one.key.phase not in OF_MODULES)
            )
        ]

    def _is_inside(self, entry: Entry, side: int) -> bool:
        if self.results.has(entry.key):
            return False
        if id(entry) in self.formulated:
            return True
        if entry.key.path in self.held[side] and not self.graph:
            return False
        if self.graph:
            return bool(entry.key.run) or entry.key.phase not in ("data", "loss")
        return self.sides[side].has(entry.key)

    def _is_needed(self, entry: Entry, unmatched: Collection[int]) -> bool:
        key = entry.key
        lost = self.finder.is_lost(entry)
        if lost and key.run == "isolated" and key.phase == "gradient" and key.region in self.finder.untrained:
            # Without a loss only the program alone has gradients.
            return True
        own = key.phase not in (*OF_MODULES, *OF_TENSORS) or self.results.has(key)
        if key.run or not (own or lost):
            return False
        return key.phase in OF_TENSORS or self.results.has(key) or id(entry) in unmatched
