"""match: finds the partner of every entry; says how, and lists what has none."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from reprod_log.match.pairing import How, Pair, Pairing, View
from reprod_log.match.rename import check_rename, renamed
from reprod_log.record import Entry, Recording

_EXPECTED_OF_BOTH = ("float64", "isolated", "isolated.float64")
_ONE_ELEMENT = View(reason="(1,) and () are the same single number", shape=())


def match(reference: Recording, candidate: Recording, *, rename: Mapping[str, str] | None = None) -> Pairing:
    """Every entry of the reference with its partner, found by name or by the rename map."""
    rename = rename or {}
    check_rename(rename, reference)
    pairs: list[Pair] = []
    alone: list[Entry] = []
    taken: set[str] = set()
    for entry in reference.entries:
        key, rule = renamed(entry.key, rename)
        how: How = "rename" if rule is not None else "name"
        if str(key) in candidate and str(key) not in taken:
            partner = candidate[key]
            taken.add(str(key))
            pairs.append(Pair(entry, partner, how, view=one_element_view(entry, partner)))
        else:
            alone.append(entry)
    left = [entry for entry in candidate.entries if str(entry.key) not in taken]
    # A pass (float64, repeats …) that one side lacks altogether is evidence that was not recorded, not a missing entry.
    extra_there, extra_here = set(reference.runs) - set(candidate.runs), set(candidate.runs) - set(reference.runs)
    notes = [f"the candidate has no {run} pass" for run in sorted(extra_there) if run in _EXPECTED_OF_BOTH]
    return Pairing(
        tuple(pairs),
        tuple(entry for entry in alone if not entry.key.run or entry.key.run not in extra_there),
        tuple(entry for entry in left if not entry.key.run or entry.key.run not in extra_here),
        tuple(notes),
    )


def one_element_view(reference: Entry, candidate: Entry) -> View | None:
    """The view that makes (1,) and () the same thing: old paddle losses are 1-element arrays."""
    shapes = {reference.shape, candidate.shape}
    if shapes != {(), (1,)}:
        return None
    return View(_ONE_ELEMENT.reason, shape=reference.shape)


def near_names(name: str, others: tuple[str, ...], most: int = 3) -> list[str]:
    """Names on the other side that look like this one, for messages."""
    return get_close_matches(name, others, n=most, cutoff=0.5)
