"""Modules that need no partner of their own, because all they hold is compared under another layer's name.

What lies inside a paired layer (the projections of an attention layer, a parametrization that makes a weight) is one
case; a head tied to an embedding, against a plain product with the embedding's weight, is another.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from reprod_log.layers.lookup import find_layer
from reprod_log.pairing.unit import join
from reprod_log.recording import Entry, Recording


def constants(recording: Recording) -> frozenset[str]:
    """Buffers that a model only looks up (indices, position tables), so that no result depends on their being stored.

    Integers outside of known layers, and floating ones that do not change from step to step nor with the precision of
    the run: another model may compute the same numbers whenever it needs them.
    """
    layers = {module.path for module in recording.modules if find_layer(module.origin) is not None}
    seen: dict[str, list[Entry]] = {}
    for entry in recording.entries:
        if entry.key.phase == "buffer" and entry.key.run in ("", "float64"):
            seen.setdefault(entry.key.path, []).append(entry)
    return frozenset(
        path
        for path, entries in seen.items()
        if entries[0].dtype.startswith(("int", "uint", "bool"))
        or (path.rpartition(".")[0] not in layers and _never_changes(entries))
    )


def _never_changes(entries: Sequence[Entry]) -> bool:
    """Whether it was seen more than once and was always the same; what is computed would round in another precision."""
    first = entries[0]
    if len(entries) < 2 or any(entry.detail != "full" for entry in entries):
        return False
    return all(
        entry.hash == first.hash if entry.hash and entry.key.run == first.key.run else _equal(entry, first)
        for entry in entries[1:]
    )


def _equal(one: Entry, other: Entry) -> bool:
    return bool(np.array_equal(one.array(), other.array()))


def covered_modules(recording: Recording, compared: Collection[str]) -> frozenset[str]:
    """Paths of the modules whose tensors are all among `compared`, each under the name it was recorded by."""
    first = recording.provenance.extra.get("tied_parameters", {})
    found = set()
    for module in recording.modules:
        names = [join(module.path, name) for name in module.parameters]
        if names and all(first.get(name, name) in compared for name in names):
            found.add(module.path)
    return frozenset(found)
