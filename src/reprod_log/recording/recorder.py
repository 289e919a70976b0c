"""Recorder: collects entries in order while a program runs, in memory or step by step into a folder."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.errors import UnreadableFile, WriteFailed
from reprod_log.messages import Foreign, Message, Name, Note, message
from reprod_log.recording.entry import Array, Entry, content_hash
from reprod_log.recording.folder import FolderWriter, open_recording
from reprod_log.recording.key import Key, SeenKeys
from reprod_log.recording.recording import ModuleInfo, Provenance, Recording, current_provenance, entry_of
from reprod_log.recording.spool import Spool

Batch = Sequence[tuple[Entry, Array | None]]

_WRITTEN_AT_ONCE = 1 << 18
"""Batches of up to so many bytes are on disk when `write` comes back: no thread is worth it, and a kill loses none."""
_MOST_WAITING_BYTES = 1 << 29
_MOST_WAITING = 2
"""What may wait to be written: two steps, and together no more than 512 MB unless a single step is larger."""

_POOLED_FROM = 1 << 16
"""Smaller arrays come from the allocator's own reserve."""
_MOST_SPARE_BYTES = 1 << 29


class Recorder:
    """Takes entries one by one; `close` gives the recording.

    With a `path`, `end_step` writes what has come since the last one as a shard and lets go of the memory: a small
    shard at once, a large one on a thread of its own that stays at most two steps behind. When the disk refuses,
    recording stops, the program goes on, and the recording is marked as incomplete.
    Without a path the recording stays in memory, or its arrays in a `spool`.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        provenance: Provenance | None = None,
        spool: Spool | None = None,
    ) -> None:
        self.provenance = provenance or current_provenance()
        self._spool = spool
        # What is written to disk is let go of after each step, so its memory serves the next one.
        self._copied = np.copy if path is None else Pool().copy
        self.modules: tuple[ModuleInfo, ...] = ()
        self.notes: list[Note] = []
        self._batch: list[tuple[Entry, Array | None]] = []
        # Data loaders and several models may record from threads of their own.
        self._adding = threading.Lock()
        self._entries: list[Entry] = []
        self._seen = SeenKeys()
        self.failed = False
        """Whether the disk refused, after which nothing more is written."""
        self._complete = True
        self._writer: FolderWriter | None = None
        self._background: Background | None = None
        self._path = None if path is None else Path(path)
        if self._path is not None:
            try:
                self._writer = FolderWriter(self._path, provenance=self.provenance, modules=self.modules)
                self._background = Background(self._writer.write_shard)
            except OSError as error:
                self.failed = True
                why = Foreign(error.strerror or error)
                self.notes.append(message("note.recording.not_writable", path=Name(self._path), why=why))

    def add(self, key: Key | str, array: Array, *, layer_type: str = "", meta: Mapping[str, Any] | None = None) -> None:
        """Record an array that will not change any more (the caller has copied it)."""
        array = np.asarray(array)
        digest = content_hash(array) if array.dtype.kind not in "UO" else ""
        kept = self.kept(array, digest, fresh=True)
        self.put(entry_of(key, kept, layer_type=layer_type, hash=digest, meta=dict(meta or {})), kept)

    def kept(self, array: Array, digest: str, *, fresh: bool) -> Array:
        """The array where this recorder keeps arrays; a `fresh` one, which will not change, is not copied."""
        if self._spool is not None:
            return self._spool.keep(array, digest)
        return array if fresh else self._copied(array)

    def put(self, entry: Entry, array: Array | None) -> None:
        """Record a finished entry, whose hash is known, with its values (None: description only)."""
        with self._adding:
            if not self._seen.add(entry.key):
                raise ValueError(f"{str(entry.key)!r} was recorded twice; entries of one recording need different keys")
            self._batch.append((entry, array))

    def describe(self, provenance: Provenance, modules: Sequence[ModuleInfo]) -> None:
        """Set where the recording comes from, once it is known; a growing folder is updated at once."""
        self.provenance, self.modules = provenance, tuple(modules)
        if self._writer is None or self.failed:
            return
        self._writer.provenance, self._writer.modules = self.provenance, self.modules
        try:
            self._writer.write_manifest(complete=False, notes=self.notes)
        except WriteFailed as error:
            self.failed = True
            self.notes.append(message("note.recording.nothing", why=Foreign(error)))

    def note(self, note: Message) -> None:
        """Add something that a reader of the recording should know."""
        self.notes.append(note)

    def cut_short(self, why: Message) -> None:
        """Mark the recording as incomplete: the program did not get to its end."""
        self.notes.append(why)
        self._complete = False

    def end_step(self) -> None:
        """Everything of this step has come: write it, if a path was given."""
        with self._adding:
            batch, self._batch = self._batch, []
        if self._path is None:
            self._entries += [entry for entry, _ in batch]
        elif self._background is not None and not self.failed and batch:
            self._background.put(batch)
            self._look_at_disk()

    def _look_at_disk(self) -> None:
        if self._background is not None and self._background.failure is not None and not self.failed:
            batch, error = self._background.failure
            self.failed = True
            key = Name(batch[0][0].key)
            # Only a disk's refusal is a sentence of its own.
            why = Foreign(error) if isinstance(error, WriteFailed) else Foreign(f"{type(error).__name__}: {error}")
            self.notes.append(message("note.recording.stopped", key=key, why=why))

    def remains(self) -> Recording:
        """What is in memory, as a recording that is not complete: for when it could not be closed."""
        source = "" if self._path is None else str(self._path)
        entries = tuple(self._entries)
        return Recording(entries, self.provenance, complete=False, notes=tuple(self.notes), source=source)

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
            complete=self._complete,
            notes=tuple(self.notes),
        )
        self._entries = []
        if self._path is None:
            return in_memory
        if self._writer is None:
            return replace(in_memory, source=str(self._path), complete=False)
        self._writer.provenance, self._writer.modules = self.provenance, self.modules
        try:
            self._writer.close(complete=self._complete and not self.failed, notes=self.notes)
        except WriteFailed as error:
            self.failed = True
            self.notes.append(message("note.recording.not_finished", why=Foreign(error)))
        try:
            written = open_recording(self._path)
        except UnreadableFile as error:
            unreadable = message("note.recording.unreadable", why=Foreign(error))
            return replace(in_memory, source=str(self._path), complete=False, notes=(*self.notes, unreadable))
        # When the last manifest could not be written, the file knows less than we do.
        return replace(written, complete=False, notes=tuple(self.notes)) if self.failed else written


class Background:
    """Writes batches in order on a thread of its own while the program goes on. `put` waits when too much is waiting.

    When the disk refuses, or anything else goes wrong, what waits and what comes later is dropped; `failure` then has
    the first of them and the reason.
    """

    def __init__(self, write: Callable[[Batch], None], *, most_bytes: int = _MOST_WAITING_BYTES) -> None:
        self._write, self._most_bytes = write, most_bytes
        self._waiting: deque[tuple[Batch, int]] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._over = False
        self.failure: tuple[Batch, Exception] | None = None

    def put(self, batch: Batch) -> None:
        """Take a batch, now or as soon as there is room for it; its arrays must not change any more."""
        size = sum(array.nbytes for _, array in batch if array is not None)
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(size))
            if self.failure is not None:
                return
            if (size > _WRITTEN_AT_ONCE or self._waiting) and self._has_thread():
                self._waiting.append((batch, size))
                self._bytes += size
                self._changed.notify_all()
                return
        self._do(batch)

    def finish(self) -> None:
        """Write what is waiting and end the thread."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _has_room(self, size: int) -> bool:
        if self.failure is not None or not self._waiting:
            return True
        return len(self._waiting) < _MOST_WAITING and self._bytes + size <= self._most_bytes

    def _has_thread(self) -> bool:
        """Whether the thread runs, begun now if need be; a system that gives no more threads has us write at once."""
        if self._thread is None:
            # A daemon: a program that ends without leaving its `with` block is not held up.
            thread = threading.Thread(target=self._run, name="reprod_log writer", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._over)
                if not self._waiting:
                    return
                batch, size = self._waiting[0]
            # It stays in the queue meanwhile: a small batch that comes now must not overtake it.
            self._do(batch)
            del batch
            with self._changed:
                self._waiting.popleft()
                self._bytes -= size
                if self.failure is not None:
                    self._waiting.clear()
                    self._bytes = 0
                self._changed.notify_all()

    def _do(self, batch: Batch) -> None:
        try:
            self._write(batch)
        except Exception as error:
            # Its frames would keep the batch.
            self.failure = (batch[:1], error.with_traceback(None))


class Pool:
    """Gives copies of arrays, and reuses their memory once a copy is no longer referenced.

    Fresh memory costs five times the copy itself, because the system provides it page by page. A recording that is
    written to disk step by step needs the same sizes in every step.

    Only for arrays that never leave the recorder: a part of a copy does not keep its memory from being used again.
    """

    def __init__(self) -> None:
        self._spare: dict[int, deque[Array]] = {}
        self._bytes = 0
        self._lent: dict[int, weakref.ref[Array]] = {}

    def copy(self, array: Array) -> Array:
        """A copy in C order; no part of it may outlive it."""
        copied = self.empty(array)
        np.copyto(copied, array)
        return copied

    def empty(self, like: Array) -> Array:
        """An array of the same shape and dtype with any content."""
        if like.nbytes < _POOLED_FROM:
            return np.empty(like.shape, like.dtype)
        try:
            memory = self._spare[like.nbytes].popleft()
            self._bytes -= like.nbytes
        except (KeyError, IndexError):
            memory = np.empty(like.nbytes, np.uint8)
        lent: Array = memory.view(like.dtype).reshape(like.shape)
        self._lent[id(lent)] = weakref.ref(lent, self._returner(id(lent), memory))
        return lent

    def _returner(self, name: int, memory: Array) -> Callable[[object], None]:
        # Called by whichever thread lets go last; a deque may be filled from any.
        def take_back(_: object) -> None:
            self._lent.pop(name, None)
            if self._bytes + memory.nbytes > _MOST_SPARE_BYTES:
                return
            self._bytes += memory.nbytes
            self._spare.setdefault(memory.nbytes, deque()).append(memory)

        return take_back
