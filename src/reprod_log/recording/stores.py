"""stores: the formats a recording can be kept in, one file each.

A store module has
    TITLE                                   what it is called in messages
    SUFFIXES                                file endings it writes ('' for a folder)
    recognises(path) -> bool                whether this existing path is one of its own, judged by content
    open_recording(path, *, trust) -> Recording
    save_recording(recording, path) -> Path
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from reprod_log.errors import MissingFile, UnreadableFile, UsageError, listed, near_names
from reprod_log.recording.entry import gc_paused
from reprod_log.recording.files import first_bytes, is_file, is_remote, is_url, location, reading
from reprod_log.recording.recording import Recording

_STORES = ("folder", "npy", "npz", "safetensors")


def all_stores() -> Iterator[ModuleType]:
    """Every store, by name; each is loaded when its turn comes."""
    return (import_module(f"reprod_log.recording.{name}") for name in _STORES)


def load(path: str | Path, *, trust: bool = False) -> Recording:
    """The recording at `path` (or at a URL that fsspec supports), in any format. Opening reads no tensor data.

    `trust=True` lets a classic file run whatever code its author put into it; only for files you made yourself.
    """
    path = location(path)
    with reading(path), gc_paused():
        path = existing(path)
        for store in all_stores():
            if store.recognises(path):
                recording: Recording = store.open_recording(path, trust=trust)
                return recording
    kinds = listed([store.TITLE for store in all_stores()], most=10)
    what = "a folder without a manifest.json" if path.is_dir() else "a device or pipe"
    if path.is_dir() and any(path.glob("rank[0-9]*")):
        what = (
            "a folder with the parts of several ranks (see reprod ranks, reprod compare, reprod_log.ranks.load_ranks)"
        )
    if is_file(path):
        start = first_bytes(path, 64)
        what = f"a file that starts with {start[:16]!r}" if start else "an empty file"
        if b'"reprod_log alignment"' in start:
            raise UnreadableFile(f"{path} is a saved alignment and not a recording: `reprod report {path}` shows it.")
    raise UnreadableFile(f"{path} is not a recording: it is {what}. Known formats: {kinds}.")


def save(recording: Recording, path: str | Path) -> Path:
    """Write `recording` in the format that the suffix of `path` names; no suffix means a folder of shards."""
    if is_url(path):
        raise UsageError(f"recordings are written to files and folders here, not to {path}; save it and copy it there")
    path = Path(path)
    written: Path = store_for(path).save_recording(recording, path)
    return written


def store_for(path: str | Path) -> ModuleType:
    """The store that writes to `path`, by its suffix; UsageError when there is none."""
    if not isinstance(path, (str, Path)):
        raise UsageError(f"a recording is saved to a path, not to {path!r}")
    for store in all_stores():
        if Path(path).suffix in store.SUFFIXES:
            return store
    known = listed([suffix or "no suffix (folder)" for store in all_stores() for suffix in store.SUFFIXES], most=10)
    raise UsageError(f"cannot tell the format from the suffix of {path}; known are {known}")


def existing(path: str | Path) -> Path:
    """`path` as it lies on disk; like numpy's save, a name given without `.npy` finds the file with it."""
    path = location(path)
    if is_remote(path):
        # A server may not answer for folders, and some send a whole file when they are asked whether it exists.
        if is_file(path) or is_file(path / "manifest.json"):
            return path
        raise MissingFile(f"nothing is at {path}, or it may not be seen from here. Is the address right?")
    if path.exists():
        return path
    with_suffix = path.with_name(path.name + ".npy")
    if with_suffix.exists():
        return with_suffix
    folder = path.parent
    if not folder.is_dir():
        raise MissingFile(f"no such file or folder: {path}. There is no folder {folder}.")
    names = sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))
    where = "this folder" if folder == Path() else str(folder)
    near = near_names(path.name, names)
    seen = f"similar: {listed(near)}" if near else f"{where} has {listed(names)}" if names else f"{where} is empty"
    raise MissingFile(f"no such file or folder: {path}; {seen}.")
