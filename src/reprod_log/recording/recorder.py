"""Recorder: collects entries in order while a program runs, in memory or step by step into a folder."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.errors import UnreadableFile, WriteFailed
from reprod_log.recording.background import Background
from reprod_log.recording.content import content_hash
from reprod_log.recording.entry import Array, Detail, Entry, dtype_name, no_values
from reprod_log.recording.folder import FolderWriter, open_recording
from reprod_log.recording.key import Key
from reprod_log.recording.provenance import Provenance, current_provenance
from reprod_log.recording.recording import ModuleInfo, Recording
from reprod_log.recording.sketch import sketch_of


class Recorder:
    """Takes entries one by one; `close` gives the recording.

    With a `path`, `end_step` writes what has come since the last one as a shard and lets go of the memory: a small
    shard at once, a large one on a thread of its own that stays at most two steps behind. When the disk refuses,
    recording stops, the program goes on, and the recording says that it is incomplete.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        provenance: Provenance | None = None,
        modules: Sequence[ModuleInfo] = (),
    ) -> None:
        self.provenance = provenance or current_provenance()
        self.modules = tuple(modules)
        self.notes: list[str] = []
        self._batch: list[tuple[Entry, Array | None]] = []
        # Data loaders and several models may record from threads of their own.
        self._adding = threading.Lock()
        self._entries: list[Entry] = []
        self._seen: set[str] = set()
        self._failed = False
        """Whether the disk refused, after which nothing more is written."""
        self._whole = True
        self._writer: FolderWriter | None = None
        self._background: Background | None = None
        self._path = None if path is None else Path(path)
        if self._path is not None:
            try:
                self._writer = FolderWriter(self._path, provenance=self.provenance, modules=self.modules)
                self._background = Background(self._writer.write_shard)
            except OSError as error:
                self._failed = True
                self.notes.append(f"nothing was recorded: {self._path} cannot be written ({error.strerror or error})")

    def add(
        self,
        key: Key | str,
        array: Array,
        *,
        dtype: str = "",
        layer_type: str = "",
        detail: Detail = "full",
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Record an array that nobody will change any more (the caller has copied it).

        `dtype` is the framework's name for it when numpy's differs. With a `detail` below full only a sketch, or the
        description and `meta` (statistics), are kept, not the values.
        """
        array = np.asarray(array)
        name = dtype or dtype_name(array.dtype)
        numeric = name not in ("str", "object")
        facts = dict(meta or {})
        kept: Array | None = array if detail == "full" else None
        if detail == "sketch":
            sketch = sketch_of(array)
            kept, facts = sketch.values, {**facts, "summary": sketch.summary, "sketch": sketch.facts()}
        entry = Entry(
            key=Key.parse(key) if isinstance(key, str) else key,
            shape=array.shape,
            dtype=name,
            read=no_values if kept is None else lambda: kept,
            layer_type=layer_type,
            detail=detail,
            hash=content_hash(array) if numeric else "",
            meta=facts,
        )
        self.put(entry, kept)

    def put(self, entry: Entry, array: Array | None) -> None:
        """Record a finished entry, whose hash is known, with its values (None: description only)."""
        text = str(entry.key)
        with self._adding:
            if text in self._seen:
                raise ValueError(f"{text!r} was recorded twice; entries of one recording need different keys")
            self._seen.add(text)
            self._batch.append((entry, array))

    def describe(self, provenance: Provenance, modules: Sequence[ModuleInfo]) -> None:
        """Say where the recording comes from, once it is known; a growing folder says so at once."""
        self.provenance, self.modules = provenance, tuple(modules)
        if self._writer is None or self._failed:
            return
        self._writer.provenance, self._writer.modules = self.provenance, self.modules
        try:
            self._writer.write_manifest(complete=False, notes=self.notes)
        except WriteFailed as error:
            self._failed = True
            self.notes.append(f"nothing was recorded: {error}")

    def note(self, text: str) -> None:
        """Something a reader of the recording should know."""
        self.notes.append(text)

    def cut_short(self, why: str) -> None:
        """The program did not get to its end: the recording has what came until now, and says that it is not whole."""
        self.notes.append(why)
        self._whole = False

    def end_step(self) -> None:
        """Everything of this step has come: write it, if a path was given."""
        with self._adding:
            batch, self._batch = self._batch, []
        if self._path is None:
            self._entries += [entry for entry, _ in batch]
        elif self._background is not None and not self._failed and batch:
            self._background.put(batch)
            self._look_at_disk()

    def _look_at_disk(self) -> None:
        if self._background is not None and self._background.failure is not None and not self._failed:
            batch, error = self._background.failure
            self._failed = True
            self.notes.append(f"recording stopped at {str(batch[0][0].key)!r}: {error}")

    def close(self) -> Recording:
        """The finished recording (opened from disk, if a path was given)."""
        self.end_step()
        if self._background is not None:
            self._background.finish()
            self._look_at_disk()
        in_memory = Recording(
            tuple(self._entries),
            self.provenance,
            modules=self.modules,
            complete=self._whole,
            notes=tuple(self.notes),
        )
        self._entries = []
        if self._path is None:
            return in_memory
        if self._writer is None:
            return replace(in_memory, source=str(self._path), complete=False)
        self._writer.provenance, self._writer.modules = self.provenance, self.modules
        try:
            self._writer.close(complete=self._whole and not self._failed, notes=self.notes)
        except WriteFailed as error:
            self._failed = True
            self.notes.append(str(error))
        try:
            written = open_recording(self._path)
        except UnreadableFile as error:
            return replace(in_memory, source=str(self._path), complete=False, notes=(*self.notes, str(error)))
        # When the last manifest could not be written, the file knows less than we do.
        return replace(written, complete=False, notes=tuple(self.notes)) if self._failed else written
