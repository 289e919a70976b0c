"""Modules that need no partner of their own, because all they hold is compared under another layer's name.

What lies inside a paired layer (the projections of an attention layer, a parametrization that makes a weight) is one
case; a head tied to an embedding, against a plain product with the embedding's weight, is another.
"""

from __future__ import annotations

from collections.abc import Collection

from reprod_log.record import Recording
from reprod_log.transfer.unit import join


def covered_modules(recording: Recording, compared: Collection[str]) -> frozenset[str]:
    """Paths of the modules whose tensors are all among `compared`, each under the name it was recorded by."""
    first = recording.provenance.extra.get("tied_parameters", {})
    found = set()
    for module in recording.modules:
        names = [join(module.path, name) for name in module.parameters]
        if names and all(first.get(name, name) in compared for name in names):
            found.add(module.path)
    return frozenset(found)
