"""match: finds the partner of every entry; says how, and lists what has none.

By name, rename map and place. Where the recordings describe their models, `by_layers` goes on from there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from reprod_log.messages import Message, Name, message
from reprod_log.pairing.pairing import CONFIDENCE, How, Pair, Pairing, View
from reprod_log.pairing.rename import oriented, recorded_names, renamed
from reprod_log.recording import Entry, Key, Recording
from reprod_log.recording.entry import gc_paused

if TYPE_CHECKING:
    from reprod_log.pairing.links import WeightMap

_EXPECTED_OF_BOTH = ("float64", "isolated", "isolated.float64")
_FLOAT64 = "float64"
_BY_PLACE = ("data", "loss", "lr")
"""Phases whose names are the scripts' own (input names, optimizer groups): paired by place when names differ."""


def match(
    reference: Recording,
    candidate: Recording,
    *,
    rename: Mapping[str, str] | None = None,
    weights: WeightMap | None = None,
) -> Pairing:
    """Every entry of the reference with its partner, as far as there is one.

    With a weight map under which both programs agree, values decide instead of names.
    """
    if rename:
        rename = oriented(rename, recorded_names(reference), recorded_names(candidate))
    with gc_paused():
        if weights is None and not any(one.modules or not keeps_weights(one) for one in (reference, candidate)):
            return matched(NameFinder(reference, candidate, rename or {}))
        # Plain logs have no layers, and need not wait for what pairs them.
        from reprod_log.pairing.by_layers import match_models

        return match_models(reference, candidate, rename=rename or {}, weights=weights)


def keeps_weights(recording: Recording) -> bool:
    """Whether weights are known by name; those of a graph are part of it, and its recording says so."""
    return not recording.provenance.extra.get("fixed_weights")


def matched(finder: NameFinder) -> Pairing:
    """The pairs that a finder finds, and what is left on either side."""
    reference, candidate = finder.reference, finder.candidate
    pairs: list[Pair] = []
    alone: list[Entry] = []
    for entry in reference.entries:
        pair = finder.partner(entry)
        if pair is None:
            alone.append(entry)
        else:
            pairs.append(pair)
    left = [entry for entry in candidate.entries if str(entry.key) not in finder.taken]
    structural = finder.structural(pairs, alone, left)
    skipped = {id(entry) for entry in structural}
    skipped -= _of_half_a_pair(alone, reference, candidate, {pair.reference.key for pair in pairs})
    skipped -= _of_half_a_pair(left, candidate, reference, {pair.candidate.key for pair in pairs})
    structural = [entry for entry in structural if id(entry) in skipped]
    alone = [entry for entry in alone if id(entry) not in skipped]
    left = [entry for entry in left if id(entry) not in skipped]
    lacking = set(reference.runs) - set(candidate.runs)
    notes = [message("note.pairing.no_pass", run=Name(run)) for run in sorted(lacking) if run in _EXPECTED_OF_BOTH]
    # Other passes (float64, isolated, repeats …) are evidence: what one side lacks there weakens the evidence for an
    # entry, which calibrate sees; what it lacks in the plain run is missing.
    paired = {str(pair.reference.key) for pair in pairs}, {str(pair.candidate.key) for pair in pairs}
    partners = {pair.reference.key: pair.candidate.key for pair in pairs}
    cut = _cut_gradients(reference, candidate, partners, alone)
    cut |= _cut_gradients(candidate, reference, {theirs: ours for ours, theirs in partners.items()}, left)
    return Pairing(
        tuple(pairs),
        tuple(one for one in alone if id(one) in cut or _is_missing(one.key, reference, candidate, paired[0])),
        tuple(one for one in left if id(one) in cut or _is_missing(one.key, candidate, reference, paired[1])),
        tuple(structural),
        (*notes, *finder.notes()),
    )


def _cut_gradients(own: Recording, other: Recording, pairs: Mapping[Key, Key], unpaired: Iterable[Entry]) -> set[int]:
    """Gradients of what both sides ran alone that only the own side has: there the graph of the other is cut.

    The gradient of a weight needs a partner where the weight has one. Inputs have names of their own, so theirs count
    only where the other side has none at all. A side without any gradient of layers alone was not asked for them.
    """
    there = {
        (key.run, key.layer_alone, key.phase) for key in (one.key for one in other.entries) if _is_gradient_alone(key)
    }
    if not there:
        return set()
    ran = {(key.run, key.layer_alone): one.layer_alone for key, one in pairs.items() if key.phase == "forward"}
    weights = {key.path for key in pairs if key.phase == "parameter"}
    found = set()
    for entry in unpaired:
        key = entry.key
        partner = ran.get((key.run, key.layer_alone)) if _is_gradient_alone(key) else None
        if partner is not None and (
            key.path in weights if key.phase == "gradient" else (key.run, partner, key.phase) not in there
        ):
            found.add(id(entry))
    return found


def _is_gradient_alone(key: Key) -> bool:
    return key.run.partition(".")[0] == "isolated" and key.phase in ("gradient", "backward")


def _is_missing(key: Key, own: Recording, other: Recording, paired: Collection[str]) -> bool:
    """Whether an entry without a partner is missing on the other side, and not only evidence that one side has.

    An entry in float64 speaks for the same entry of the plain run. One without it speaks for nothing, and where both
    sides have a float64 pass, one of them must not leave out what it would be held to.
    """
    if not key.run:
        return True
    mode, _, wide = key.run.rpartition(".")
    if wide != _FLOAT64:
        return False
    plain = key.in_run(mode)
    return plain not in own or (not mode and str(plain) in paired and key.run in other.runs)


def _of_half_a_pair(unpaired: Iterable[Entry], own: Recording, other: Recording, paired: Collection[Key]) -> set[int]:
    """Entries without a partner whose twin in the other precision has one, although both sides ran in both.

    What belongs to one side's code alone is alone in every pass; this was left out of one.
    """
    found = set()
    for entry in unpaired:
        key = entry.key
        twin = key.in_run("" if key.run == _FLOAT64 else _FLOAT64) if key.run in ("", _FLOAT64) else None
        if twin is not None and twin in paired and key.run in other.runs and key.run in own.runs:
            found.add(id(entry))
    return found


class NameFinder:
    """Looks for partners by name, rename map and place; remembers what is taken."""

    def __init__(self, reference: Recording, candidate: Recording, rename: Mapping[str, str]) -> None:
        self.reference, self.candidate, self.rename = reference, candidate, rename
        self.there = {str(entry.key): entry for entry in candidate.entries}
        self.taken: set[str] = set()
        self.places = _Places(reference, candidate)

    def partner(self, entry: Entry) -> Pair | None:
        """The entry with its partner; None when there is none."""
        key, rule = renamed(entry.key, self.rename)
        pair = self.named(entry, key, "rename" if rule is not None else "name")
        if pair is None and key.phase in _BY_PLACE:
            place = self.places.partner(entry)
            return None if place is None else self.named(entry, place, "order")
        return pair

    def named(self, entry: Entry, key: Key, how: How) -> Pair | None:
        text = str(key)
        partner = self.there.get(text)
        if partner is None or text in self.taken:
            return None
        self.taken.add(text)
        return Pair(entry, partner, how, CONFIDENCE[how], one_element_view(entry, partner))

    def structural(self, pairs: Sequence[Pair], alone: Sequence[Entry], left: Sequence[Entry]) -> list[Entry]:
        """What has no partner and needs none: `alone` of the reference, `left` of the candidate."""
        return [
            *(one for one in alone if _is_unneeded(one, self.reference, self.candidate)),
            *(one for one in left if _is_unneeded(one, self.candidate, self.reference)),
        ]

    def notes(self) -> list[Message]:
        """What a reader should know about the pairs."""
        return []


def _is_unneeded(entry: Entry, own: Recording, other: Recording) -> bool:
    return (
        _is_zero_gradient(entry)
        or _is_repeated_rate(entry, own)
        or _is_unknown(entry, other)
        or _is_unasked(entry, own, other)
    )


def _is_zero_gradient(entry: Entry) -> bool:
    """Whether a gradient or an update is all zero: what one framework gives as zeros, another does not give at all."""
    return entry.key.phase in ("backward", "gradient", "update") and entry.is_zero()


def _is_repeated_rate(entry: Entry, recording: Recording) -> bool:
    """Whether a group of parameters has the same learning rate as the first: other groups, the same schedule."""
    first = str(replace(entry.key, role="group0"))
    if entry.key.phase != "lr" or entry.key.role == "group0" or first not in recording:
        return False
    return bool(entry.array() == recording[first].array())


def _is_unknown(entry: Entry, other: Recording) -> bool:
    """Whether it is a learning rate, and the other side's optimizer does not tell its own: the updates show it."""
    return entry.key.phase == "lr" and bool(other.provenance.extra.get("unknown_rates"))


def _is_unasked(entry: Entry, own: Recording, other: Recording) -> bool:
    """Whether it is the gradient of a program's data, and the other side never asks for one."""
    key = entry.key
    if key.phase != "backward" or not key.role.startswith("input"):
        return False
    given = str(replace(key, phase="data", role=key.role.partition("~")[0]))
    return given in own and _asks(own[given]) and not any(map(_asks, other.entries))


def _asks(entry: Entry) -> bool:
    return entry.key.phase == "data" and bool(entry.meta.get("asks_for_gradient"))


class _Places:
    """Inputs, losses and learning rates by their place within a step, when their names differ."""

    def __init__(self, reference: Recording, candidate: Recording) -> None:
        self._there = _by_step_and_phase(candidate)
        self._place = {
            str(entry.key): (group, place)
            for group, entries in _by_step_and_phase(reference).items()
            for place, entry in enumerate(entries)
            if len(entries) == len(self._there.get(group, ()))
        }

    def partner(self, entry: Entry) -> Key | None:
        found = self._place.get(str(entry.key))
        if found is None:
            return None
        group, place = found
        partner = self._there[group][place]
        return partner.key if partner.shape == entry.shape or {partner.shape, entry.shape} == {(), (1,)} else None


def _by_step_and_phase(recording: Recording) -> dict[tuple[str, int | None, str], list[Entry]]:
    groups: dict[tuple[str, int | None, str], list[Entry]] = {}
    for entry in recording.entries:
        if entry.key.phase in _BY_PLACE:
            groups.setdefault((entry.key.run, entry.key.step, entry.key.phase), []).append(entry)
    return groups


def one_element_view(reference: Entry, candidate: Entry) -> View | None:
    """The view that makes (1,) and () the same thing: old paddle losses are 1-element arrays."""
    if reference.shape == candidate.shape or {reference.shape, candidate.shape} != {(), (1,)}:
        return None
    return View(message("view.one_number"), shape=reference.shape)
