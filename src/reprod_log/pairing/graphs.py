"""Pairing with a graph that keeps no weights by name: values of the float64 passes decide first, then names and order.

An exporter folds layers into each other and drops those that do nothing, and a node may keep the name of a layer whose
result it no longer is. So a tensor is paired with the one that has its values; what differs is paired by the names and
the order of the layers, as long as that crosses no pair of equal values. What is left is a way of writing: only what
the program returns must have a partner.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reprod_log.messages import Message
from reprod_log.pairing.by_values import ValuePairs
from reprod_log.pairing.layouts import output_view
from reprod_log.pairing.models import Layers
from reprod_log.pairing.pairing import CONFIDENCE, How, Pair, Pairing
from reprod_log.recording import Entry, Key, Recording

_FLOAT64 = "float64"


@dataclass(frozen=True)
class GraphPairs:
    """Partners in a program of which one side is a graph."""

    values: ValuePairs
    partners: Mapping[str, tuple[str, How]]
    """The candidate's module for each of the reference: one that gives the same, or has the same name or place."""
    alone: Mapping[str, tuple[str, How]]
    """Those of them that can be run alone on the same tensors."""

    @classmethod
    def of(
        cls,
        recordings: tuple[Recording, Recording],
        wide: tuple[Iterable[Entry], Iterable[Entry]],
        layers: Layers,
    ) -> GraphPairs:
        """The partners; `wide` has the entries of both float64 passes, `layers` what names and order say."""
        values = ValuePairs.of(*wide)
        same: dict[str, tuple[str, How]] = {}
        for (path, call, role), ((other, _, _), _) in values.places.items():
            if call in (0, None) and role.startswith("output") and path and other:
                same.setdefault(path, (other, "value"))
        named = _by_name(recordings, layers)
        taken = {partner for partner, _ in same.values()}
        free = {path: found for path, found in named.items() if path not in same and found[0] not in taken}
        kept = _uncrossed(recordings, same, free)
        alike: dict[str, tuple[str, How]] = {path: (other, "value") for path, other in values.modules.items()}
        partners = same | kept
        fed = {
            path: found for path, found in kept.items() if _is_fed_alike(path, found[0], recordings, values, partners)
        }
        return cls(values, partners, alike | fed)


def _is_fed_alike(
    path: str,
    partner: str,
    recordings: tuple[Recording, Recording],
    values: ValuePairs,
    partners: Mapping[str, tuple[str, How]],
) -> bool:
    """Whether two modules are given the same, or what partners have made; a node of folded layers is not."""
    if values.places.get((path, 0, "input.0"), (("", 0, ""), None))[0] == (partner, 0, "input.0"):
        return True
    ours, theirs = (_maker(one, name) for one, name in zip(recordings, (path, partner), strict=True))
    return ours is not None and theirs is not None and partners.get(ours, ("", ""))[0] == theirs


def _maker(recording: Recording, path: str) -> str | None:
    """The module that has made what another is given at its first call."""
    makers: dict[str, str] = {}
    for entry in recording.of_run(""):
        key = entry.key
        if key.phase == "forward" and key.role.startswith("output"):
            makers[entry.hash] = key.path
        elif key.phase == "forward" and (key.path, key.call, key.role) == (path, 0, "input.0"):
            return makers.get(entry.hash)
    return None


def _by_name(recordings: tuple[Recording, Recording], layers: Layers) -> dict[str, tuple[str, How]]:
    """The module of the same name, else the one that structure and order give."""
    theirs = {module.path for module in recordings[1].modules}
    found: dict[str, tuple[str, How]] = {}
    for module in recordings[0].modules:
        if module.path and module.path in theirs:
            found[module.path] = (module.path, "name")
        elif module.path in layers.modules:
            found[module.path] = layers.modules[module.path]
    return found


def _uncrossed(
    recordings: tuple[Recording, Recording],
    anchors: Mapping[str, tuple[str, How]],
    wanted: Mapping[str, tuple[str, How]],
) -> dict[str, tuple[str, How]]:
    """Those pairs of modules that lie between the same pairs of equal values on both sides."""
    here, there = (_ends(one) for one in recordings)
    fixed = sorted((here[one], there[other]) for one, (other, _) in anchors.items() if one in here and other in there)
    places = [place for place, _ in fixed]
    found: dict[str, tuple[str, How]] = {}
    taken: set[str] = set()
    for path, (partner, how) in sorted(wanted.items(), key=lambda one: here.get(one[0], -1)):
        if path not in here or partner not in there or partner in taken:
            continue
        at = bisect(places, here[path])
        after = max((other for _, other in fixed[:at]), default=-1)
        before = min((other for _, other in fixed[at:]), default=len(there) + 1)
        if after < there[partner] < before:
            found[path] = (partner, how)
            taken.add(partner)
    return found


def _ends(recording: Recording) -> dict[str, int]:
    """The place of every module in the order of their first outputs."""
    paths = (
        entry.key.path
        for entry in recording.entries
        if not entry.key.run and entry.key.phase == "forward" and entry.key.role.startswith("output")
    )
    return {path: place for place, path in enumerate(dict.fromkeys(paths))}


def match_with_graph(reference: Recording, candidate: Recording, named: Pairing, layers: Layers) -> Pairing:
    """The pairing; `named` pairs what belongs to no module, `layers` are the modules that names and order pair."""
    found = GraphPairs.of((reference, candidate), (reference.entries, candidate.entries), layers)
    there = {str(entry.key): entry for entry in candidate.entries}
    others = {str(pair.reference.key): pair for pair in named.pairs if pair.reference.key.phase != "forward"}
    results = _results(reference, candidate)
    infos = tuple({module.path: module for module in side.modules} for side in (reference, candidate))
    pairs: list[Pair] = []
    left: list[Entry] = []
    taken: set[str] = set()
    for entry in reference.entries:
        key = entry.key
        pair = others.get(str(key)) if key.phase != "forward" else None
        for other, how, view in _options(key, found, results) if key.phase == "forward" else ():
            partner = there.get(str(other))
            if partner is not None and str(other) not in taken:
                view = view or output_view(entry, partner, infos[0].get(key.path), infos[1].get(other.path))
                pair = Pair(entry, partner, how, CONFIDENCE[how], view)
                break
        if pair is None:
            left.append(entry)
        else:
            pairs.append(pair)
            taken.add(str(pair.candidate.key))
    rest = [entry for entry in candidate.entries if str(entry.key) not in taken]
    missing = [one for one in left if _is_needed(one.key)], [one for one in rest if _is_needed(one.key)]
    known = {id(one) for one in (*missing[0], *missing[1])}
    structural = tuple(one for one in (*left, *rest) if id(one) not in known)
    return Pairing(tuple(pairs), tuple(missing[0]), tuple(missing[1]), structural, _notes(named))


def _notes(named: Pairing) -> tuple[Message, ...]:
    """The notes about passes; those about layers without partners speak of weights, which a graph does not keep."""
    return tuple(note for note in named.notes if note.id == "note.pairing.no_pass")


def _options(key: Key, found: GraphPairs, results: Mapping[str, str]) -> Iterable[tuple[Key, How, Any]]:
    """Where the partner of an entry of a module may be, the surest first."""
    if key.run.startswith("isolated"):
        partner = found.alone.get(key.path) or (("", "name") if not key.path else None)
        if partner is not None:
            for role in (key.role, f"{key.role}.0", key.role.removesuffix(".0")):
                yield replace(key, path=partner[0], role=role), partner[1], None
        return
    if not key.path and key.role in results:
        yield replace(key, role=results[key.role]), "name", None
        return
    place = found.values.places.get((key.path, key.call, key.role))
    if place is not None:
        (path, call, role), view = place
        if path or not role.startswith("output"):
            yield replace(key, path=path, call=call, role=role), "value", view
        return
    partner = found.partners.get(key.path)
    if partner is not None and partner[1] != "value":
        for role in (key.role, f"{key.role}.0", key.role.removesuffix(".0")):
            yield replace(key, path=partner[0], role=role), partner[1], None


def _results(reference: Recording, candidate: Recording) -> dict[str, str]:
    """The candidate's role for each result of the whole program: the same, or the one at the same place."""
    ours, theirs = _root_roles(reference), _root_roles(candidate)
    if len(ours) == len(theirs) and set(ours) != set(theirs):
        return dict(zip(ours, theirs, strict=True))
    return {role: role for role in ours if role in theirs}


def _root_roles(recording: Recording) -> Sequence[str]:
    roles = (
        entry.key.role
        for entry in recording.of_run("")
        if entry.key.phase == "forward" and not entry.key.path and entry.key.role.startswith("output")
    )
    return list(dict.fromkeys(roles))


def _is_needed(key: Key) -> bool:
    """Whether an entry must have a partner: data, and what the whole program returns."""
    if key.run:
        return False
    return key.phase in ("data", "loss") or (key.phase == "forward" and not key.path and key.role.startswith("output"))
