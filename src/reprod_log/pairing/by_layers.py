"""Entries follow their layers, so that other names, nesting and registration order do not matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from reprod_log.layers.lookup import find_layer
from reprod_log.messages import Message, Names, message
from reprod_log.pairing.by_values import match_by_values
from reprod_log.pairing.entries import NameFinder, matched, one_element_view
from reprod_log.pairing.layouts import output_view, row_view, viewed_entry
from reprod_log.pairing.links import WeightMap
from reprod_log.pairing.models import Layers, match_layers
from reprod_log.pairing.pairing import CONFIDENCE, How, Pair, Pairing, View
from reprod_log.pairing.recorded_map import covered_modules
from reprod_log.pairing.rename import is_front, renamed
from reprod_log.pairing.units import stored_shapes, tensor_views
from reprod_log.recording import OF_MODULES, OF_TENSORS, Entry, Key, ModuleInfo, Recording


def match_models(
    reference: Recording, candidate: Recording, *, rename: Mapping[str, str], weights: WeightMap | None
) -> Pairing:
    """Every entry of the reference with its partner, where a recording describes a model."""
    if not (reference.modules and candidate.modules):
        return matched(NameFinder(reference, candidate, rename))
    layers = match_layers(reference, candidate, rename=rename)
    pairing = matched(LayerFinder(reference, candidate, rename, layers))
    return match_by_values(reference, candidate, pairing, layers.units, weights)


class LayerFinder(NameFinder):
    """Looks for partners by the layers that both recordings describe."""

    def __init__(self, reference: Recording, candidate: Recording, rename: Mapping[str, str], layers: Layers) -> None:
        super().__init__(reference, candidate, rename)
        self.layers = layers
        self.our_constants, self.their_constants = constants(reference), constants(candidate)
        self.their_partners = {partner for partner, _ in layers.modules.values()}
        self.views = tensor_views(layers.units, stored_shapes(reference.modules), stored_shapes(candidate.modules))
        self.our_covered = covered_modules(reference, self.views.keys() | self.our_constants)
        there = {name for view in self.views.values() for name in view.candidate}
        self.their_covered = covered_modules(candidate, there | self.their_constants)
        self.ours = {module.path: module for module in reference.modules}
        self.theirs = {module.path: module for module in candidate.modules}
        self._answered: set[_Call] = set()
        self.results = _result_roles(reference, candidate)

    def partner(self, entry: Entry) -> Pair | None:
        key, rule = renamed(entry.key, self.rename)
        if key.phase in OF_MODULES:
            if rule is None:
                return self._module_entry(entry)
            return self._in_layout(entry, self.named(entry, key, "rename"))
        if key.phase in OF_TENSORS:
            if rule is None:
                return self._tensor_entry(entry) or self.named(entry, key, "name")
            if key.path in self._view_sources(entry):
                return self._tensor_entry(entry)
        if key.phase == "data" and rule is None and key.path in self.layers.modules:
            # What a model is given is its module's, under whatever name.
            path, how = self.layers.modules[key.path]
            return self.named(entry, replace(key, path=path), how) or super().partner(entry)
        return super().partner(entry)

    def structural(self, pairs: Sequence[Pair], alone: Sequence[Entry], left: Sequence[Entry]) -> list[Entry]:
        found = [*filter(self.is_structural, alone), *filter(self.is_structural_there, left)]
        found += filter(self.runs_unseen, (*alone, *left))
        for side in (alone, left):
            unpaired = {str(entry.key): entry for entry in side}
            found += [entry for entry in side if self.is_own_interface(entry, pairs, unpaired)]
        return [*found, *super().structural(pairs, alone, left)]

    def _module_entry(self, entry: Entry) -> Pair | None:
        found = self.layers.modules.get(entry.key.path)
        path, how = found if found is not None else (entry.key.path, "name")
        if found is None and path in self.their_partners:
            # The name belongs to another layer there.
            return None
        role = self.results.get(entry.key.role, entry.key.role) if not entry.key.path else entry.key.role
        pair = self.named(entry, replace(entry.key, path=path, role=role), how) or self._other_role(entry, path, how)
        return self._in_layout(entry, pair)

    def _in_layout(self, entry: Entry, pair: Pair | None) -> Pair | None:
        """The pair with the view that the two layers' settings call for."""
        if pair is None:
            return None
        ours, theirs = self.ours.get(entry.key.path), self.theirs.get(pair.candidate.key.path)
        view = output_view(entry, pair.candidate, ours, theirs)
        if view is None and not entry.key.run.startswith("isolated"):
            view = row_view(entry, pair.candidate, ours, theirs)
        return replace(pair, view=view) if view is not None else pair

    def _view_sources(self, entry: Entry) -> tuple[str, ...]:
        view = self.views.get(entry.key.path)
        return () if view is None else view.candidate

    def _other_role(self, entry: Entry, path: str, how: How) -> Pair | None:
        """`output` of one side and `output.0` of the other are the same tensor when there is no other."""
        role = entry.key.role
        for other in (f"{role}.0", role.removesuffix(".0")):
            if other != role:
                pair = self.named(entry, replace(entry.key, path=path, role=other), how)
                if pair is not None:
                    return pair
        return None

    def _tensor_entry(self, entry: Entry) -> Pair | None:
        view = self.views.get(entry.key.path)
        if view is None:
            return None
        keys = [str(replace(entry.key, path=name)) for name in view.candidate]
        if any(key not in self.candidate for key in keys):
            return None
        parts = [self.candidate[key] for key in keys]
        self.taken.update(keys)
        how: How = "name" if keys == [str(entry.key)] else "structure"
        if view.unchanged and parts[0].shape == entry.shape:
            return Pair(entry, parts[0], how, CONFIDENCE[how])
        if not entry.shape or any(not part.shape for part in parts):
            # Counters and powers kept per parameter (beta1_pow) have no layout.
            return Pair(entry, parts[0], how, CONFIDENCE[how], one_element_view(entry, parts[0]))
        reason = message("view.of_kind", kind=view.kind, steps=view.steps)
        return Pair(entry, viewed_entry(view, parts, entry), how, CONFIDENCE[how], View(reason))

    def is_structural(self, entry: Entry) -> bool:
        """Whether an entry of the reference belongs to a module without partner that holds nothing of its own."""
        return entry.key.path not in self.layers.modules and _bare(
            entry, self.ours, self.our_constants, self.our_covered
        )

    def is_structural_there(self, entry: Entry) -> bool:
        """The same for an entry of the candidate."""
        return entry.key.path not in self.their_partners and _bare(
            entry, self.theirs, self.their_constants, self.their_covered
        )

    def runs_unseen(self, entry: Entry) -> bool:
        """Whether the layer runs inside a compiled module on the other side, by whose results it is judged."""
        if entry.key.phase not in OF_MODULES or _is_alone(entry.key):
            return False
        return entry.key.path in self._unseen

    @cached_property
    def _unseen(self) -> frozenset[str]:
        """The layers of either side whose partner could not be recorded."""
        both = [(path, found[0]) for path, found in self.layers.modules.items()]
        there = {path for path, partner in both if partner in self.theirs and self.theirs[partner].unseen}
        return frozenset(there | {partner for path, partner in both if path in self.ours and self.ours[path].unseen})

    def is_own_interface(self, entry: Entry, pairs: Sequence[Pair], unpaired: Mapping[str, Entry]) -> bool:
        """Whether it is an argument, or a further output, that only one author's module has, or the gradient of one.

        Every argument is another layer's output or data, and what is done with a further output shows behind it. What
        the model itself returns must have a partner. `unpaired` are the entries of the same side that have none.
        """
        if entry.key.phase not in OF_MODULES:
            return False
        if entry.key.role.startswith("input"):
            return entry.key.phase == "forward"
        if not self._answered:
            # Only an output that has a partner makes another output a further one.
            for pair in pairs:
                if pair.reference.key.role.startswith("output"):
                    self._answered |= {_call(pair.reference.key), _call(pair.candidate.key)}
        modules = self.ours if entry.key.path in self.ours else self.theirs
        if entry.key.path.rpartition(".")[0] not in modules or entry.key.path == "":
            return False
        if _call(entry.key) in self._answered:
            return True
        if not entry.key.role.startswith("output"):
            return False
        # It may be the only gradient of the call: of a sequence that one side keeps packed, beside unused states.
        output = replace(entry.key, phase="forward", role=entry.key.role.partition("~")[0])
        return str(output) in unpaired and _call(output) in self._answered

    def notes(self) -> list[Message]:
        """Layers that found no partner, by name."""
        notes = []
        for side, left in (("reference", self.layers.left_in_reference), ("candidate", self.layers.left_in_candidate)):
            known = self.our_constants | self.our_covered
            if side == "candidate":
                known = self.their_constants | self.their_covered
            left = tuple(path for path in left if path not in known)
            if left:
                notes.append(message("note.pairing.unmatched_layers", side=message(side), layers=Names(left)))
        return notes


def _is_alone(key: Key) -> bool:
    """Whether the layer was run alone, on what the reference's was given at its first call."""
    return key.run.startswith("isolated")


def _result_roles(reference: Recording, candidate: Recording) -> dict[str, str]:
    """The candidate's role for each result of the whole program: the same, or the one at the same place."""
    ours, theirs = (
        list(
            dict.fromkeys(
                one.key.role
                for one in side.entries
                if one.key.phase == "forward" and not one.key.path and one.key.role.startswith("output")
            )
        )
        for side in (reference, candidate)
    )
    if len(ours) == len(theirs) and set(ours) != set(theirs):
        return dict(zip(ours, theirs, strict=True))
    return {}


_Call = tuple[str, int | None, str, str, int | None]


def _call(key: Key) -> _Call:
    return key.run, key.step, key.phase, key.path, key.call


def _bare(entry: Entry, modules: Mapping[str, ModuleInfo], constant: frozenset[str], covered: frozenset[str]) -> bool:
    path = entry.key.path
    if entry.key.phase == "buffer":
        return path in constant
    if entry.key.phase == "data":
        # A loss may be a module on one side only.
        return path in modules and not any(one.parameters for one in modules.values() if is_front(path, one.path))
    module = modules.get(path)
    if entry.key.phase not in OF_MODULES or module is None:
        return False
    return path in covered or not module.parameters


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
