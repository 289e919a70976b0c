"""What lies in a folder: saved alignments and recordings, each described by what can be read cheaply."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from reprod_log.alignment import SCHEMA, Alignment
from reprod_log.errors import ReprodLogError
from reprod_log.messages import message, words
from reprod_log.recording.files import check_inside
from reprod_log.recording.recording import Source
from reprod_log.report.first_screen import FirstScreen
from reprod_log.report.html_data import in_languages
from reprod_log.report.view import MARKS, first_in_words
from reprod_log.report.writing import plain
from reprod_log.verdict import Status

_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages"})
_RECORDING_SUFFIXES = frozenset({".npz", ".safetensors", ".npy"})
_MANIFEST = "manifest.json"
_HEAD = 400
_READ_AT_ONCE = 1 << 20
Signature = tuple[int, int]
MOST_ITEMS = 2_000


@dataclass(frozen=True)
class Item:
    """A saved alignment or a recording: `name` is its path below the folder and its id in addresses."""

    name: str
    kind: Literal["alignment", "recording"]
    time: str
    bytes: int
    growing: bool = False
    steps: int | None = None
    """Shards so far, for a recording that is a folder."""
    status: str = ""
    mark: str = ""
    headline: str = ""
    says: dict[str, str] = field(default_factory=dict)
    """The headline in every language, for the script to choose from."""
    first: str = ""
    sides: tuple[str, str] = ("", "")
    sources: tuple[str, str] = ("", "")
    """Where the recordings were that an alignment is of."""
    trend: tuple[int, ...] = ()
    """How many entries did not pass, in every alignment of these sides up to this one."""

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "title": plain(self.name)}


class Listing:
    """Looks through a folder; what has not changed is not read again."""

    def __init__(self, folder: Path, opened: Callable[[Path, Alignment], None] = lambda path, alignment: None) -> None:
        """`opened` is given every large alignment that was read in the background."""
        self.folder = folder.resolve()
        self._opened = opened
        self._known: dict[Path, tuple[Signature, Item | None]] = {}
        self._reader = ThreadPoolExecutor(1, "reprod_log reader")

    def close(self) -> None:
        """Read nothing more."""
        self._reader.shutdown(wait=False, cancel_futures=True)

    def items(self) -> list[Item]:
        """Everything there is, the newest first."""
        found = []
        for path in self._paths():
            item = self._item(path)
            if item is not None:
                found.append(item)
            if len(found) >= MOST_ITEMS:
                break
        return _with_trends(sorted(found, key=lambda one: (one.time, one.name)))[::-1]

    def path(self, name: str, kind: str) -> Path | None:
        """Where the item called `name` lies; None unless it is one of the list."""
        for path in self._paths():
            item = self._item(path)
            if item is not None and (item.name, item.kind) == (name, kind):
                return path
        return None

    def recording_at(self, source: str) -> Path | None:
        """The recording of the list that lies at `source`: a path as commands take it, or one below the folder."""
        for path in (Path(source), self.folder / source) if source else ():
            if path.resolve().is_relative_to(self.folder):
                return self.path(self.name(path.resolve()), "recording")
        return None

    def _paths(self) -> Iterator[Path]:
        for place, folders, files in os.walk(self.folder):
            here = Path(place)
            if _MANIFEST in files:
                # A recording: its shards are not recordings of their own.
                folders.clear()
                yield here
                continue
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
            for name in sorted(files):
                path = here / name
                # A link may lead out of the folder that was asked for.
                if not name.startswith(".") and not path.is_symlink():
                    yield path

    def _item(self, path: Path) -> Item | None:
        try:
            signature = signature_of(path)
        except OSError:
            return None
        known = self._known.get(path)
        if known is None or known[0] != signature:
            known = self._known[path] = (signature, self._described(path))
        return known[1]

    def _described(self, path: Path) -> Item | None:
        if path.is_dir():
            return self._folder_recording(path)
        if not path.is_file():
            # A pipe would make us wait for ever.
            return None
        if path.name.endswith((".json", ".json.gz")):
            return self._alignment(path)
        if path.suffix in _RECORDING_SUFFIXES:
            facts = path.stat()
            return Item(self.name(path), "recording", _time(facts.st_mtime), facts.st_size)
        return None

    def _alignment(self, path: Path) -> Item | None:
        try:
            with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
                head = file.read(_HEAD)
        except (OSError, EOFError, zlib.error):  # only named like a packed file
            return None
        if SCHEMA.encode() not in head:
            return None
        facts = path.stat()
        plain_item = Item(self.name(path), "alignment", _time(facts.st_mtime), facts.st_size)
        if facts.st_size > _READ_AT_ONCE:
            # Thousands of entries take seconds; the page looks again and finds what was read meanwhile.
            self._reader.submit(self._read_later, path, signature_of(path), plain_item)
            waiting = message("serve.reading")
            return replace(plain_item, headline=words()(waiting), says=in_languages(waiting), mark="…")
        return self._read(path, plain_item)

    def _read_later(self, path: Path, signature: Signature, plain_item: Item) -> None:
        self._known[path] = (signature, self._read(path, plain_item, self._opened))

    def _read(
        self, path: Path, plain_item: Item, opened: Callable[[Path, Alignment], None] = lambda path, alignment: None
    ) -> Item:
        try:
            found = Alignment.load(path)
        except ReprodLogError as error:
            return replace(plain_item, headline=plain(str(error)), mark="!")
        opened(path, found)
        first, headline = first_in_words(found), FirstScreen(found).headline
        return replace(
            plain_item,
            status=found.status.value,
            mark=MARKS[Status(found.status)],
            headline=words()(headline),
            says=in_languages(headline),
            first=plain(words()(first)) if first is not None else "",
            sides=(self._side(found.reference), self._side(found.candidate)),
            sources=(found.reference.source, found.candidate.source),
            trend=found.trend,
        )

    def _side(self, side: Source) -> str:
        """Framework, version and source; a path below the folder as it is listed."""
        path, folder = Path(side.source), self.folder.resolve()
        source = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else side.source
        known = (side.provenance.framework, side.provenance.framework_version, source)
        return plain(" ".join(part for part in known if part))

    def _folder_recording(self, path: Path) -> Item | None:
        try:
            check_inside(path / _MANIFEST, path)
            manifest = json.loads((path / _MANIFEST).read_bytes())
        except (OSError, ValueError, RecursionError, ReprodLogError):
            return None
        if not isinstance(manifest, dict) or manifest.get("format") != "reprod_log recording":
            return None
        shards = list((path / "shards").glob("*.safetensors"))
        facts = [shard.stat() for shard in shards if shard.is_file()]
        newest = max((one.st_mtime for one in facts), default=(path / _MANIFEST).stat().st_mtime)
        provenance = manifest.get("provenance")
        framework = provenance.get("framework", "") if isinstance(provenance, dict) else ""
        return Item(
            self.name(path),
            "recording",
            _time(newest),
            sum(one.st_size for one in facts),
            growing=not manifest.get("complete", False),
            steps=len(shards),
            sides=(plain(str(framework)), ""),
        )

    def name(self, path: Path) -> str:
        """The path below the folder, as addresses have it."""
        if path == self.folder:
            return "."
        # A name that is not UTF-8 cannot stand in an address; its bytes are shown as escapes.
        name = os.fsencode(path.relative_to(self.folder).as_posix())
        return name.decode("utf-8", "backslashreplace")


def signature_of(path: Path) -> Signature:
    """Two numbers that change when the file, or the recording in the folder, does."""
    if not path.is_dir():
        facts = path.stat()
        return facts.st_mtime_ns, facts.st_size
    shards = path / "shards"
    newest = max((path / _MANIFEST).stat().st_mtime_ns, shards.stat().st_mtime_ns if shards.is_dir() else 0)
    return newest, sum(1 for _ in shards.glob("*.safetensors"))


def _with_trends(items: list[Item]) -> list[Item]:
    """The items, the oldest first; one whose file knows of none before it follows the last of the same sides."""
    last: dict[tuple[str, str], tuple[int, ...]] = {}
    found = []
    for one in items:
        if all(one.sources):
            before = last.get(one.sources, ()) if len(one.trend) == 1 else ()
            last[one.sources] = (*before, *one.trend)
            one = replace(one, trend=last[one.sources])
        found.append(one)
    return found


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
