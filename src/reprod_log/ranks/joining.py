"""Joining: the parts of all ranks as one recording, which can be compared with that of a single process.

Data-parallel: batches and activations one after another in rank order; losses averaged; gradients of activations
divided by the number of ranks, for the loss of one process is the mean of the ranks' losses; parameters, reduced
gradients, updates and states as rank 0 has them. Tensor-parallel: shards along the axis that their dims declare.
Data is read when an entry is asked for, and only then put together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from reprod_log.errors import RecordingError, counted, listed
from reprod_log.ranks.dims import Layout
from reprod_log.ranks.gradients import Reduction, reductions, same
from reprod_log.ranks.parts import Ranks, said_ranks
from reprod_log.ranks.roles import batch_axis, is_split, of_rank, parameter_shapes, running_statistics
from reprod_log.record import Array, Entry, ModuleInfo, Recording
from reprod_log.record.summary import joined as joined_summary

_ACTIVATIONS = ("data", "forward", "backward")
_NUMBERS = ("loss", "metric")


@dataclass(frozen=True)
class JoinedRecording(Recording):
    """A recording put together from several ranks; knows them, for what only they can tell."""

    reopens: ClassVar[bool] = False
    ranks: Ranks | None = field(default=None, repr=False)
    layout: Layout = field(default_factory=Layout)
    differing: tuple[str, ...] = ()
    """Keys of entries that should be the same on all ranks and are not."""


def join_ranks(ranks: Ranks, *, dims: Mapping[str, str] | None = None) -> JoinedRecording:
    """All ranks as one recording; `dims` declare by pattern which tensors are split, e.g. {"fc.weight": "o[tp] i"}."""
    layout = Layout.of(dims)
    layout.check_used([entry.key for entry in ranks.parts[0].entries])
    if layout.data_parallel:
        _check_weights(ranks)
    joiner = _Joiner(ranks, layout)
    entries = tuple(joiner.entries())
    first = ranks.parts[0]
    extra = {name: value for name, value in first.provenance.extra.items() if name != "rank"}
    weights = first.provenance.weights_hash if layout.data_parallel else ""
    return JoinedRecording(
        entries=entries,
        provenance=replace(first.provenance, weights_hash=weights, data_hash="", extra=extra),
        modules=_whole_modules(first.modules, entries),
        source=ranks.source,
        complete=all(part.complete for part in ranks.parts),
        notes=(*ranks.notes, *joiner.notes()),
        ranks=ranks,
        layout=layout,
        differing=tuple(joiner.differing),
    )


class _Joiner:
    """Goes through the entries of rank 0 and puts those of the others beside them."""

    def __init__(self, ranks: Ranks, layout: Layout) -> None:
        self._ranks, self._layout = ranks, layout
        self._modules = {module.path: module for module in ranks.parts[0].modules}
        self._shapes = parameter_shapes(ranks.parts[0])
        self._statistics = running_statistics(ranks.parts[0])
        self._late: dict[str, Reduction] = {}
        if layout.data_parallel:
            self._late = {str(one.raw): one for one in reductions(ranks) if one.late}
        self._batches = _batch_sizes(ranks)
        self.differing: dict[str, None] = {}
        self._left_out: list[str] = []

    def entries(self) -> Iterator[Entry]:
        for text in self._ranks.keys:
            yield from self._joined(self._ranks.entries(text))
        for rank, entry in self._ranks.lonely():
            raw = replace(entry.key, phase="gradient", role="raw")
            if entry.key.role != "local" and not (entry.key.phase == "clip" and str(raw) in self._late):
                self.differing[str(entry.key)] = None
                yield replace(entry, key=of_rank(entry.key, rank))

    def notes(self) -> Iterator[str]:
        way = "batches one after another, losses averaged" if self._layout.data_parallel else "shards by their dims"
        yield f"put together from {self._ranks.size} ranks: {way}"
        if self._late:
            yield "gradients were reduced after backward: what the optimizers used stands for the raw ones"
        uneven = [step for (run, step), sizes in self._batches.items() if not run and len(set(sizes)) > 1]
        if uneven and self._layout.data_parallel:
            yield (
                f"in {counted(len(uneven), 'step')} the ranks' batches differ in size, so the mean over "
                "ranks is not the mean over samples"
            )
        if self._left_out:
            yield (
                f"{counted(len(self._left_out), 'entry is', 'entries are')} left out, their values were not "
                f"recorded: {listed(self._left_out)}"
            )

    def _joined(self, parts: tuple[Entry, ...]) -> Iterator[Entry]:
        key = parts[0].key
        if key.phase == "gradient" and key.role == "local":
            return
        late = self._late.get(str(key))
        if late is not None:
            parts = tuple(replace(entry, key=key) for entry in late.reduced)
        elif key.phase == "clip" and str(replace(key, phase="gradient", role="raw")) in self._late:
            return
        dims = self._layout.dims(key)
        if dims is not None and is_split(parts[0], self._shapes):
            dims.check(parts)
            if dims.axis is not None:
                yield from self._concatenated(parts, dims.axis)
            else:
                yield from self._replicas(parts)
        elif not self._layout.data_parallel:
            yield from self._replicas(parts)
        else:
            yield from self._data_parallel(parts)

    def _data_parallel(self, parts: tuple[Entry, ...]) -> Iterator[Entry]:
        key, first = parts[0].key, parts[0]
        averaged = key.phase in _NUMBERS or (not first.shape and key.phase in (*_ACTIVATIONS, ""))
        if averaged and first.dtype.startswith(("float", "bfloat", "complex")):
            yield _mean(parts)
            return
        axis = self._axis(parts)
        if axis is None:
            yield from self._replicas(parts)
        else:
            yield from self._concatenated(parts, axis)

    def _axis(self, parts: tuple[Entry, ...]) -> int | None:
        """The axis along which the ranks' batches lie; None for what does not belong to samples."""
        first = parts[0]
        if first.key.phase not in (*_ACTIVATIONS, "") or not first.shape:
            return None
        axis = batch_axis(first, self._modules.get(first.key.path))
        sizes = self._batches.get((first.key.run, first.key.step))
        if sizes is not None and tuple(part.shape[axis] for part in parts) == sizes:
            return axis
        # Tables of positions and the like: the same on every rank, whatever it is fed.
        return None if all(same(first, part) for part in parts[1:]) else axis

    def _replicas(self, parts: tuple[Entry, ...]) -> Iterator[Entry]:
        """Rank 0's, and those of ranks that should have the same and do not."""
        first = parts[0]
        yield first
        if first.key.path in self._statistics and first.key.phase == "buffer":
            # Rank 0's are those that are saved; whether the others' may differ is for the findings to say.
            return
        for rank, part in enumerate(parts[1:], start=1):
            if not same(first, part):
                self.differing[str(first.key)] = None
                yield replace(part, key=of_rank(part.key, rank))

    def _concatenated(self, parts: tuple[Entry, ...], axis: int) -> Iterator[Entry]:
        first = parts[0]
        _check_tiles(parts, axis)
        shape = (*first.shape[:axis], sum(part.shape[axis] for part in parts), *first.shape[axis + 1 :])
        share = len(parts) if first.key.phase == "backward" and self._layout.data_parallel else 1
        if all(part.detail == "full" for part in parts):

            def read() -> Array:
                whole = np.concatenate([part.array() for part in parts], axis=axis)
                return whole if share == 1 else (whole / share).astype(whole.dtype)

            yield replace(first, shape=shape, read=read, hash="")
        elif share == 1 and len({part.shape for part in parts}) == 1 and all("summary" in p.meta for p in parts):
            # A sketch of a whole cannot be made from sketches of its pieces; its statistics can.
            whole = joined_summary([part.meta["summary"] for part in parts])
            yield replace(first, shape=shape, read=_nothing_to_read, detail="summary", hash="", meta={"summary": whole})
        else:
            self._left_out.append(str(first.key))


def _mean(parts: tuple[Entry, ...]) -> Entry:
    def read() -> Array:
        arrays = [part.array() for part in parts]
        wide = np.complex128 if arrays[0].dtype.kind == "c" else np.float64
        found: Array = np.mean(arrays, axis=0, dtype=wide).astype(arrays[0].dtype)
        return found

    return replace(parts[0], read=read, hash="")


def _nothing_to_read() -> Array:
    raise AssertionError("Entry.array() answers for entries without values")


def _check_tiles(parts: tuple[Entry, ...], axis: int) -> None:
    first = parts[0]
    for rank, part in enumerate(parts):
        if part.dtype != first.dtype or (*part.shape[:axis], *part.shape[axis + 1 :]) != (
            *first.shape[:axis],
            *first.shape[axis + 1 :],
        ):
            raise RecordingError(
                f"the parts of {str(first.key)!r} do not tile along axis {axis}: rank 0 has {first.dtype} "
                f"{list(first.shape)}, rank {rank} {part.dtype} {list(part.shape)}. Declare their dims, e.g. "
                f"--dims '{first.key.path}=b[dp] …'."
            )


def _check_weights(ranks: Ranks) -> None:
    hashes = [part.provenance.weights_hash for part in ranks.parts]
    others = [rank for rank, one in enumerate(hashes) if one and hashes[0] and one != hashes[0]]
    if others:
        raise RecordingError(
            f"{ranks.source}: {said_ranks(others)} started from other weights than rank 0, so these are not "
            "replicas of one model. See which with `reprod ranks`, or declare how layers are split with --dims."
        )


def _batch_sizes(ranks: Ranks) -> dict[tuple[str, int | None], tuple[int, ...]]:
    """The size of every rank's batch for each pass and step: of the first input, else of the model's output."""
    found: dict[tuple[str, int | None], tuple[int, ...]] = {}
    for phase, path in (("data", None), ("forward", "")):
        for text in ranks.keys:
            key = ranks.parts[0][text].key
            if key.phase == phase and (path is None or (key.path == path and key.role.startswith("output"))):
                shapes = [entry.shape for entry in ranks.entries(text)]
                if all(shapes):
                    found.setdefault((key.run, key.step), tuple(shape[0] for shape in shapes))
    return found


def _whole_modules(modules: tuple[ModuleInfo, ...], entries: tuple[Entry, ...]) -> tuple[ModuleInfo, ...]:
    """The modules with the shapes that their parameters have after joining."""
    shapes: dict[str, tuple[int, ...]] = {}
    for entry in entries:
        if entry.key.phase in ("parameter", "gradient", "buffer") and not entry.key.run:
            shapes.setdefault(entry.key.path, entry.shape)
    return tuple(
        replace(
            module,
            parameters={
                name: shapes.get(f"{module.path}.{name}" if module.path else name, shape)
                for name, shape in module.parameters.items()
            },
        )
        for module in modules
    )
