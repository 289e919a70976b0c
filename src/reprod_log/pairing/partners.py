"""Partners of entries: by the places that both programs have, and through the weight map."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from reprod_log.messages import Names, message
from reprod_log.pairing.anchors import is_informative
from reprod_log.pairing.links import AS_IS, WeightMap
from reprod_log.pairing.pairing import CONFIDENCE, Pair, View
from reprod_log.pairing.places import ValuePairs, is_result, nearest_view, roots_of
from reprod_log.pairing.rename import fronts
from reprod_log.recording import OF_MODULES, OF_TENSORS, Array, Entry, Key, Recording


def _same_form(one: Entry, other: Entry) -> bool:
    """Whether two tensors have the same axes, but for those of one element."""
    wide, wide_there = ([size for size in shape if size != 1] for shape in (one.shape, other.shape))
    return wide == wide_there


class Partners:
    """Partners of entries by the places of `ValuePairs` and by the weight map."""

    def __init__(
        self,
        reference: Recording,
        candidate: Recording,
        weights: WeightMap,
        found: ValuePairs,
        *,
        given: bool,
    ) -> None:
        self.candidate, self.weights, self.found = candidate, weights, found
        self.given = given
        self.roots = roots_of(reference) & roots_of(candidate)
        trained = any(entry.key.phase == "loss" or entry.key.phase == "gradient" for entry in reference.of_run(""))
        self.unasked = self.roots if trained else frozenset[str]()
        """Whole programs whose training asks for no gradient of their inputs."""
        self.untrained = self.roots - self.unasked
        self.moving = (_moving(reference), _moving(candidate))
        self.there = {str(entry.key): entry for entry in candidate.entries}
        self.taken: set[str] = set()
        self.like = _kinds_and_sizes(reference), _kinds_and_sizes(candidate)
        self.fed = {own[:2]: other[:2] for own, (other, _) in found.places.items() if own[2].startswith("input")}
        """Calls that take the same."""
        self._covered: dict[tuple[str, bool, int], bool] = {}
        self.layouts: dict[tuple[str, str, str], View | None] = {}
        """Of modules' tensors that differ, by both paths and the role."""

    def partner(self, entry: Entry) -> Pair | None:
        if entry.key.phase in OF_MODULES:
            return self._module_entry(entry)
        return self._tensor_entry(entry) if entry.key.phase in OF_TENSORS else None

    def knows_better(self, entry: Entry) -> bool:
        """Whether values speak for a partner of the entry: of weights, only where structure was wrong or knew none."""
        if entry.key.phase not in OF_TENSORS:
            return True
        return any(link.proof == "values" for link in self.weights.by_source.get(entry.key.path, ()))

    def is_unasked(self, key: Key) -> bool:
        """Whether it is the gradient of what a whole program is given, which its training does not ask for: programs
        that are the same for every batch (of zeros and ones, say) need not be the same around it."""
        return key.run.startswith("isolated") and key.phase == "backward" and key.path in self.unasked

    def lie_apart(self, pair: Pair) -> bool:
        """Whether plain numbers are those of two weights whose modules are not each other's partners."""
        key, other = pair.reference.key, pair.candidate.key
        if key.phase not in OF_TENSORS or pair.reference.detail != "full" or is_informative(pair.reference.array()):
            return False
        (ours, _, _), (theirs, _, _) = key.path.rpartition("."), other.path.rpartition(".")
        return self.found.viewed.get(ours, theirs) != theirs

    def _module_entry(self, entry: Entry) -> Pair | None:
        key = entry.key
        if key.run.startswith("isolated"):
            path = key.path if key.path in self.roots else self.found.modules.get(key.path)
            if path is None or self.is_unasked(key):
                return None
            roles = (key.role, f"{key.role}.0", key.role.removesuffix(".0"))
            # Alone it is given the same, in the layout that it has in the run of the whole.
            _, view = self.found.places.get((key.path, key.call, key.role.partition("~")[0]), ("", None))
            pairs = (self._pair(entry, replace(key, path=path, role=role), view) for role in roles)
            return next((pair for pair in pairs if pair is not None), None)
        base, mark, rest = key.role.partition("~")
        place = self.found.places.get((key.path, key.call, base))
        if place is None:
            return None
        (path, call, role), view = place
        if view is not None and view.axes is not None and not self.given and is_result(key, self.roots):
            # Whoever uses what a program returns depends on its axes, too.
            return None
        return self._pair(entry, replace(key, path=path, call=call, role=f"{role}{mark}{rest}"), view)

    def _pair(self, entry: Entry, key: Key, view: View | None) -> Pair | None:
        other = self.there.get(str(key))
        if other is None or str(key) in self.taken:
            return None
        if is_result(entry.key, self.roots) and entry.meta.get("training") != other.meta.get("training"):
            # In evaluation a program gives what another without a dropout gives in training.
            return None
        if other.shape != entry.shape and prod(other.shape) != prod(entry.shape):
            return None
        if view is not None:
            # Found in the first step; a later one may have more or fewer rows.
            view = replace(view, shape=entry.shape)
        elif other.shape != entry.shape:
            if not _same_form(entry, other):
                return None
            view = View(message("view.values_reshaped"), shape=entry.shape)
        if view is not None and view.axes is None and is_result(entry.key, self.roots) and not _same_form(entry, other):
            # Whoever uses what a program returns depends on its shape.
            return None
        return Pair(entry, other, "value", CONFIDENCE["value"], view)

    def by_input(self, entry: Entry) -> Pair | None:
        """What a call gives that takes the same as one of the other side, where nothing else pairs them."""
        key = entry.key
        path, call = self.fed.get((key.path, key.call), ("", None))
        if not path or key.phase != "forward" or not key.role.startswith("output"):
            return None
        (kind, held), (other_kind, other_held) = self.like[0].get(key.path, ("", 0)), self.like[1].get(path, ("", 0))
        other = self.there.get(str(replace(key, path=path, call=call)))
        # A part of a model takes the same as the whole.
        if kind != other_kind or held != other_held or not (kind or held):
            return None
        if other is None or other.shape != entry.shape:
            return None
        return Pair(entry, other, "order", CONFIDENCE["order"])

    def laid_out(self, pair: Pair) -> Pair:
        """A pair of tensors that differ, in the layout in which they are closest: that of their module's first call."""
        one, other = pair.reference, pair.candidate
        if pair.view is not None or one.key.phase not in OF_MODULES or is_result(one.key, self.roots):
            return pair
        if one.key.run.startswith("isolated"):
            # Each was given the reference's own input.
            return pair
        if one.detail != "full" or other.detail != "full":
            return pair
        place = one.key.path, other.key.path, one.key.role.partition("~")[0]
        if place not in self.layouts:
            self.layouts[place] = nearest_view(one, other)
        view = self.layouts[place]
        fits = (
            view is not None and prod(one.shape) == prod(other.shape) and len(view.axes or ()) in (0, len(other.shape))
        )
        return replace(pair, view=replace(view, shape=one.shape)) if view is not None and fits else pair

    def _runs_alone(self, region: str | None) -> bool:
        """Whether a module takes and gives the same on both sides, so that it can be compared alone."""
        return region in self.roots or region in self.found.modules

    def _tensor_entry(self, entry: Entry) -> Pair | None:
        key = entry.key
        if key.run.startswith("isolated") and not self._runs_alone(key.region):
            return None
        add = key.phase in ("gradient", "clip")
        links = self.weights.by_source.get(key.path, ())
        if any(link.is_computed for link in links):
            return None
        if len(links) > 1 and not self.weights.is_apart(key.path):
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

        # With zeros, since whether a tensor is covered does not depend on its values; nor does it on the run.
        asked = key.path, add, len(links)
        if asked not in self._covered:
            empty = {one.target: np.zeros(one.shape) for one in links}
            self._covered[asked] = self.weights.back(key.path, shape, empty, add=add) is not None
        if not self._covered[asked]:
            return None
        self.taken.update(keys)
        if len(links) == 1 and link.recipe == AS_IS and parts[0].shape == entry.shape:
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


def _kinds_and_sizes(recording: Recording) -> dict[str, tuple[str, int]]:
    """The kind of each module, and how many numbers its weights have with those of all modules inside of it."""
    held: dict[str, int] = {}
    for module in recording.modules:
        for front in fronts(module.path):
            held[front] = held.get(front, 0) + sum(map(prod, module.parameters.values()))
    return {module.path: (module.kind, held[module.path]) for module in recording.modules}


def _moving(recording: Recording) -> frozenset[str]:
    """Buffers and weights that a training changes: an average of weights is never called. Tables stay the same."""
    contents: dict[str, set[str]] = {}
    for entry in recording.of_run(""):
        if entry.key.phase in ("buffer", "parameter"):
            contents.setdefault(entry.key.path, set()).add(entry.hash)
    return frozenset(path for path, hashes in contents.items() if len(hashes) > 1)
