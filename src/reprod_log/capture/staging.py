"""Staging: where the entries of a step wait, in order, until the step is over and they are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from reprod_log.capture.selection import RunOptions
from reprod_log.errors import UsageError
from reprod_log.frameworks.module_tree import Node, Root, Slot, Tree
from reprod_log.layers.arrangement import canonical_axes
from reprod_log.layers.layouts import stored_transform
from reprod_log.messages import Foreign, Name, message
from reprod_log.recording import Array, Entry, Key, ModuleInfo, dtype_name
from reprod_log.recording.entry import Detail, content_hash, no_values
from reprod_log.recording.recorder import Recorder
from reprod_log.recording.shards import SHARD_FACT, Shard
from reprod_log.recording.sketch import Sketch, SketchOrder, sketch_of
from reprod_log.recording.summary import Summary, summarise


class Forms:
    """Knows each layer's canonical form: by the table of layers for parameters, by its settings for activations."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._infos: dict[Node, ModuleInfo] = {}
        self._forms: dict[tuple[Node, str, int], SketchOrder] = {}

    def of_parameter(self, slot: Slot, rank: int) -> SketchOrder:
        """The form of a parameter, its gradient, its update or its optimizer state."""
        place = (slot.node, f"parameter {slot.name}", rank)
        form = self._forms.get(place)
        if form is None:
            info = self._info(slot.node)
            stored = stored_transform(info.origin, slot.name, tuple(info.parameters))
            form = SketchOrder(stored.axes, stored.parts)
            form = self._forms[place] = form if form.axes is None or len(form.axes) == rank else SketchOrder()
        return form

    def of_activation(self, node: Node, role: str, rank: int) -> SketchOrder:
        """The form of an input, an output or its gradient."""
        place = (node, role, rank)
        form = self._forms.get(place)
        if form is None:
            form = self._forms[place] = SketchOrder(canonical_axes(self._info(node), role, rank))
        return form

    def _info(self, node: Node) -> ModuleInfo:
        if node not in self._infos:
            self._infos[node] = self._tree.info(node)
        return self._infos[node]


_FOR_SKETCHES = 0.1
"""The share of a budget that whole tensors leave to the sketches of those that have no room."""
_MOST_PROBLEMS = 20
"""A tensor that cannot be copied out is noted, not raised; so many of them, and then only counted."""
_EXACT_KEPT = 1 << 16
"""Integers and flags of up to so many elements are kept whole where others are sketched."""


def _as_it_is(rank: int) -> SketchOrder:
    return SketchOrder()


class Place(NamedTuple):
    """Where an entry stands. Its path is put together when it is written, since roots may get their names later."""

    phase: str
    step: int
    inside: str
    root: Root | None = None
    role: str = ""
    call: int | None = None

    def key(self, run: str) -> Key:
        path = self.inside if self.root is None else self.root.path(self.inside)
        return Key(path=path, phase=self.phase, step=self.step, call=self.call, role=self.role, run=run)


@dataclass(eq=False, slots=True)
class Staged:
    """An entry in the making."""

    place: Place
    shape: tuple[int, ...]
    dtype: str
    hash: str
    array: Array | None = None
    detail: Detail = "full"
    layer_type: str = ""
    meta: dict[str, Any] = field(default_factory=dict)
    source: Staged | None = None
    """Where an input came from: the output or batch of the same step with the same values."""
    found: bool = False
    """A loss that was found in the backward pass, not given by the user."""

    @property
    def phase(self) -> str:
        return self.place.phase


class Stage:
    """Copies tensors out, each content once, and passes them to the recorder step by step."""

    def __init__(
        self,
        recorder: Recorder,
        options: RunOptions,
        *,
        view: Callable[[Any], tuple[Array, bool]],
        shard: Callable[[Any], Shard | None] | None = None,
    ) -> None:
        self.recorder = recorder
        self.waiting: list[Staged] = []
        self.count = 0
        self._view = view
        self._shard = shard
        self._selection, self._run, self._budget = options.selection, options.name, options.budget
        self._spent = 0
        self._degraded: dict[Key, None] = {}
        self._problems = 0
        # Equal tensors are copied once: a block's output is that of its last layer, an input another layer's output.
        self._arrays: WeakValueDictionary[str, Array] = WeakValueDictionary()
        self._producers: dict[str, Staged] = {}
        self._last_outputs: frozenset[str] = frozenset()
        self._summaries: dict[str, Summary] = {}
        self._sketches: dict[tuple[str, SketchOrder], Sketch] = {}

    def make(
        self,
        place: Place,
        tensor: Any,
        *,
        layer_type: str = "",
        meta: dict[str, Any] | None = None,
        form: Callable[[int], SketchOrder] = _as_it_is,
    ) -> Staged | None:
        """An entry with the tensor's values of now, not yet in its place; None (and a note) when it has no values.

        `form` gives the order in which a tensor of so many dimensions is sketched.
        """
        try:
            array, fresh = self._view(tensor)
        except UsageError as error:
            self._problem(place.key(self._run), error)
            return None
        plain = np.asarray(array, order="C")
        shard = None if self._shard is None else self._shard(tensor)
        if shard is not None:
            meta = {**(meta or {}), SHARD_FACT: shard.to_dict()}
        staged = Staged(
            place,
            shape=plain.shape,
            dtype=dtype_name(plain.dtype),
            hash=content_hash(plain) if plain.dtype.kind not in "USO" else "",
            layer_type=layer_type,
            meta=meta or {},
        )
        self._keep(staged, plain, fresh or plain is not array, form)
        return staged

    def _keep(self, staged: Staged, plain: Array, fresh: bool, form: Callable[[int], SketchOrder]) -> None:
        wanted = self._selection.detail_of(staged.phase)
        # One number is its own summary, and a few take no more space than their sketch.
        if plain.size <= 1 or wanted == "full" or (wanted == "sketch" and self._is_small(plain)):
            kept = self._arrays.get(staged.hash) if staged.hash else None
            if kept is None and self._affords(plain.nbytes, staged):
                kept = self.recorder.kept(plain, staged.hash, fresh=fresh)
                if staged.hash:
                    self._arrays[staged.hash] = kept
            staged.array = kept
        # Of what the budget has no room for, a sketch still tells how far two runs are apart.
        room = self._selection.sketching.size * 8
        sketched = staged.array is None and wanted != "summary" and not self._is_small(plain)
        if sketched and self._affords(room, staged, sketch=True):
            self._sketch(staged, plain, form(plain.ndim))
        if staged.array is None:
            staged.detail = "summary"
            summary = self._summaries.get(staged.hash)
            if summary is None:
                summary = self._summaries[staged.hash] = summarise(plain)
            staged.meta["summary"] = summary

    def _is_small(self, plain: Array) -> bool:
        """Whether a sketch would gain nothing. Integers and flags are equal or not, which no estimate can say."""
        most = self._selection.sketching.size if plain.dtype.kind in "fcV" else _EXACT_KEPT
        return plain.size <= most or plain.dtype.kind in "USO"

    def _sketch(self, staged: Staged, plain: Array, form: SketchOrder) -> None:
        form = form if form.fits(plain.shape) else SketchOrder()
        sketch = self._sketches.get((staged.hash, form))
        if sketch is None:
            sketch = sketch_of(plain, form=form, made=self._selection.sketching)
            self._sketches[staged.hash, form] = sketch
        staged.detail, staged.array = "sketch", sketch.values
        staged.meta |= {"summary": sketch.summary, "sketch": sketch.facts()}

    def _affords(self, nbytes: int, staged: Staged, *, sketch: bool = False) -> bool:
        if self._budget is None or staged.shape in ((), (1,)):
            return True
        if self._spent + nbytes <= self._budget * (1 if sketch else 1 - _FOR_SKETCHES):
            self._spent += nbytes
            return True
        if not self._degraded:
            key = Name(staged.place.key(self._run))
            self.recorder.note(message("note.capture.budget", bytes=self._budget, key=key))
        self._degraded[staged.place.key(self._run)] = None
        return False

    def digest(self, tensor: Any) -> str:
        """The content hash of a tensor, without keeping its values; '' when it has none."""
        try:
            return content_hash(np.asarray(self._view(tensor)[0], order="C"))
        except UsageError:
            return ""

    def copy(self, tensor: Any) -> Array:
        """A copy of the values, shared with an entry that has the same."""
        array, fresh = self._view(tensor)
        plain = np.asarray(array, order="C")
        digest = content_hash(plain)
        kept = self._arrays.get(digest)
        if kept is None:
            fresh = fresh or plain is not array
            kept = self._arrays[digest] = self.recorder.kept(plain, digest, fresh=fresh)
        return kept

    def producer(self, digest: str) -> Staged | None:
        """The last output or batch of this step with these values."""
        return self._producers.get(digest)

    def was_output(self, digest: str) -> bool:
        """Whether some module gave these values in this step or the one before."""
        producer = self._producers.get(digest)
        return digest in self._last_outputs if producer is None else producer.phase == "forward"

    def add(self, staged: Staged | None, *, position: int | None = None) -> None:
        """Put an entry in its place: behind the others, or at `position`."""
        if staged is None:
            return
        self.waiting.insert(len(self.waiting) if position is None else position, staged)
        self.count += 1
        if staged.phase == "data" or (staged.phase == "forward" and not staged.place.role.startswith("input")):
            self._producers[staged.hash] = staged

    def flush(self) -> None:
        """The step is over: give everything to the recorder."""
        names: dict[str, int] = {}
        for staged in self.waiting:
            key = staged.place.key(self._run)
            again = names.get(str(key), 0)
            names[str(key)] = again + 1
            if again:
                # Read several times in one step, e.g. by two optimizers.
                staged.place = staged.place._replace(call=again)
                key = staged.place.key(self._run)
            if staged.source is not None:
                staged.meta["from"] = str(staged.source.place.key(self._run))
            self.recorder.put(_entry(staged, key), staged.array)
        self._last_outputs = frozenset(hash for hash, one in self._producers.items() if one.phase == "forward")
        self.drop()
        self.recorder.end_step()

    def drop(self) -> None:
        """Drop what is waiting."""
        self.waiting.clear()
        self._producers.clear()
        self._summaries.clear()
        self._sketches.clear()

    def close(self) -> None:
        self.flush()
        if self._degraded:
            self.recorder.note(message("note.capture.summaries", count=len(self._degraded), bytes=self._budget))
        if self._problems > _MOST_PROBLEMS:
            self.recorder.note(message("note.capture.not_copied", count=self._problems - _MOST_PROBLEMS))

    def _problem(self, where: Key, error: UsageError) -> None:
        self._problems += 1
        if self._problems <= _MOST_PROBLEMS:
            self.recorder.note(message("note.capture.left_out", key=Name(where), why=Foreign(error)))


def _entry(staged: Staged, key: Key) -> Entry:
    array = staged.array
    return Entry(
        key=key,
        shape=staged.shape,
        dtype=staged.dtype,
        read=no_values if array is None else lambda: array,
        layer_type=staged.layer_type,
        detail=staged.detail,
        hash=staged.hash,
        meta=staged.meta,
    )
