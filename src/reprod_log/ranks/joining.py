"""Joining: the parts of all ranks as one recording, which can be compared with that of a single process.

Along a batch axis: batches and activations one after another in rank order; losses averaged; gradients of activations
divided by the number of ranks, for the loss of one process is the mean of the ranks' losses; parameters, reduced
gradients, updates and states as the first rank has them. Along other axes: shards as they know it themselves or as
their dims declare. Data is read when an entry is asked for, and only then put together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from reprod_log.errors import RecordingError
from reprod_log.messages import Message, Names, message
from reprod_log.ranks.mesh import DeclaredDims, Mesh
from reprod_log.ranks.parts import Ranks, digest, load_ranks, ranks_in_words
from reprod_log.ranks.placing import (
    Parts,
    Placed,
    Placing,
    has_pieces,
    of_rank,
    other_weights,
    statistics_of,
    together,
)
from reprod_log.ranks.reductions import Reduction, reductions
from reprod_log.recording import Entry, Key, ModuleInfo, Recording
from reprod_log.recording.shards import MESH_FACT


@dataclass(frozen=True)
class JoinedRecording(Recording):
    """A recording put together from several ranks; knows them, for what only they can tell."""

    reopens: ClassVar[bool] = False
    ranks: Ranks | None = field(default=None, repr=False)
    layout: DeclaredDims = field(default_factory=DeclaredDims)
    mesh: Mesh = field(default_factory=lambda: Mesh((), ()))
    differing: Mapping[Key, tuple[str, ...]] = field(default_factory=dict)
    """Keys of entries that should be the same on several ranks and are not, with the axes along which they differ."""
    left_out: tuple[Key, ...] = ()
    """Keys of entries that could not be put together, because their values were not recorded."""


def open_ranks(
    path: str | Path, *, dims: Mapping[str, str] | None, mesh: Mapping[str, int] | None, trust: bool
) -> JoinedRecording:
    """The parts of all ranks at a path as one recording."""
    return join_ranks(load_ranks(path, mesh=mesh, trust=trust), dims=dims)


def join_ranks(ranks: Ranks, *, dims: Mapping[str, str] | None = None) -> JoinedRecording:
    """All ranks as one recording; `dims` declare by pattern which tensors are split, e.g. {"fc.weight": "o[tp] i"}."""
    layout = DeclaredDims.of(dims)
    layout.check_used([entry.key for entry in ranks.parts[0].entries])
    mesh = layout.mesh(ranks.mesh, ranks.size)
    _check_weights(ranks, mesh)
    joiner = _Joiner(ranks, layout, mesh)
    entries = tuple(joiner.entries())
    first = ranks.parts[0]
    extra = {name: value for name, value in first.provenance.extra.items() if name not in ("rank", MESH_FACT)}
    whole = mesh.batch == tuple(range(len(mesh.axes))) and not has_pieces(first)
    weights = first.provenance.weights_hash if whole else ""
    return JoinedRecording(
        entries=entries,
        provenance=replace(first.provenance, weights_hash=weights, data_hash="", extra=extra),
        modules=_whole_modules(first.modules, entries),
        source=ranks.source,
        complete=all(part.complete for part in ranks.parts),
        notes=(*ranks.notes_of(range(ranks.size)), *joiner.notes()),
        ranks=ranks,
        layout=layout,
        mesh=mesh,
        differing={key: tuple(axes) for key, axes in joiner.differing.items()},
        left_out=tuple(joiner.left_out),
    )


class _Joiner:
    """Goes through the entries of rank 0 and puts those of the others beside them."""

    def __init__(self, ranks: Ranks, layout: DeclaredDims, mesh: Mesh) -> None:
        self._ranks, self._mesh = ranks, mesh
        self._placing = Placing(ranks, layout, mesh)
        self._statistics = statistics_of(ranks.parts[0])
        self._late: dict[Key, list[Reduction]] = {}
        for one in reductions(ranks, self._placing):
            if one.late:
                self._late.setdefault(one.raw, []).append(one)
        self.differing: dict[Key, dict[str, None]] = {}
        self.left_out: list[Key] = []

    def entries(self) -> Iterator[Entry]:
        for key in self._ranks.keys:
            yield from self._joined(self._ranks.entries(key))
        for rank, entry in self._ranks.all.unmatched():
            raw = replace(entry.key, phase="gradient", role="raw")
            if entry.key.role != "local" and not (entry.key.phase == "clip" and raw in self._late):
                self.differing.setdefault(entry.key, {})
                yield replace(entry, key=of_rank(entry.key, rank))

    def notes(self) -> Iterator[Message]:
        size = self._ranks.size
        if self._mesh.is_grid:
            yield message("note.ranks.joined_on_axes", count=size, axes=self._mesh.sizes)
        else:
            yield message("note.ranks.joined" if self._mesh.has_batch else "note.ranks.joined_by_dims", count=size)
        if self._late:
            yield message("note.ranks.reduced_late")
        uneven = [step for (run, step), sizes in self._placing.batches.items() if not run and len(set(sizes)) > 1]
        if uneven and self._mesh.has_batch:
            yield message("note.ranks.uneven_batches", count=len(uneven))
        if self.left_out:
            yield message("note.ranks.left_out", count=len(self.left_out), keys=Names(map(str, self.left_out)))

    def _joined(self, parts: Parts) -> Iterator[Entry]:
        key = parts[0].key
        if key.phase == "gradient" and key.role == "local":
            return
        if key.phase == "clip" and replace(key, phase="gradient", role="raw") in self._late:
            return
        for late in self._late.get(key, ()):
            given = dict(zip(late.numbers, late.reduced, strict=True))
            parts = tuple(replace(given.get(rank, part), key=key) for rank, part in enumerate(parts))
        placed = self._placing.of(parts)
        whole = together(parts, placed, self._mesh)
        if whole is None:
            self.left_out.append(key)
            return
        yield whole
        yield from self._odd_ones(parts, placed)

    def _odd_ones(self, parts: Parts, placed: Placed) -> Iterator[Entry]:
        """Those of ranks that should have the same as others and do not."""
        key = parts[0].key
        axes = placed.same
        if key.path in self._statistics and key.phase == "buffer":
            # The first rank's are those that are saved; whether the others' may differ is for the findings to say.
            axes = tuple(axis for axis in axes if not self._mesh.axes[axis].batch)
        odd = odd_ranks(parts, axes, self._mesh)
        for rank in odd:
            yield replace(parts[rank], key=of_rank(key, rank))
        if odd:
            self.differing[key] = dict.fromkeys(axes_apart(parts, axes, self._mesh))


def odd_ranks(parts: Parts, axes: tuple[int, ...], mesh: Mesh) -> tuple[int, ...]:
    """The ranks that do not have what the first along these axes has."""
    found = []
    for ranks in mesh.groups(*axes) if axes else ():
        first = digest(parts[ranks[0]])
        found += [rank for rank in ranks[1:] if digest(parts[rank]) != first or not first]
    return tuple(sorted(found))


def axes_apart(parts: Parts, axes: tuple[int, ...], mesh: Mesh) -> list[str]:
    """The names of those of the axes along which the parts differ."""
    return [
        mesh.axes[axis].name
        for axis in axes
        if any(len({digest(parts[rank]) for rank in ranks}) > 1 for ranks in mesh.groups(axis))
    ]


def _check_weights(ranks: Ranks, mesh: Mesh) -> None:
    for group in ranks.groups(mesh, *mesh.batch) if mesh.has_batch else ():
        others = other_weights(group)
        if others:
            raise RecordingError(
                f"{ranks.source}: {ranks_in_words(others)} started from other weights than rank {group.numbers[0]}, so "
                "these are not replicas of one model. See which with `reprod ranks`, or declare how layers are split "
                "with --dims."
            )


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
