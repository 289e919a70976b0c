"""Recording: the ordered entries of one run, the model's modules, and the provenance of both."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from reprod_log.errors import RecordingError, UsageError, counted, listed, near_names
from reprod_log.messages import Note
from reprod_log.recording.entry import Array, Entry, dtype_name, exact_array
from reprod_log.recording.key import Key
from reprod_log.recording.plain import Plain, from_plain
from reprod_log.version import __version__

# Longer numbers are not counts, and Python refuses to read numbers of thousands of digits.
_STEP_NUMBER = re.compile(r"\d{1,18}")


@dataclass(frozen=True)
class Provenance(Plain):
    """What produced a recording. Everything is optional: classic files have none of it."""

    framework: str = ""
    framework_version: str = ""
    device: str = ""
    dtype: str = ""
    seeds: Mapping[str, int] = field(default_factory=dict)
    threads: int | None = None
    command: str = ""
    git_commit: str = ""
    time: str = ""
    python: str = ""
    numpy: str = ""
    platform: str = ""
    reprod_log: str = ""
    weights_hash: str = ""
    """Hash of all initial parameters and buffers, when a model was recorded."""
    data_hash: str = ""
    """Hash of the inputs that were fed, when they were recorded."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def brief() -> tuple[str, ...]:
        return tuple(Provenance.__dataclass_fields__)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Provenance:
        """What was written; facts that have no field here go to the others."""
        unknown = {name: value for name, value in data.items() if name not in cls.__dataclass_fields__}
        return from_plain(cls, {**data, "extra": {**data.get("extra", {}), **unknown}} if unknown else data)

    def differences(self, other: Provenance) -> dict[str, tuple[Any, Any]]:
        """Every field in which the two differ, with both values."""
        mine, theirs = asdict(self), asdict(other)
        return {name: (mine[name], theirs[name]) for name in mine if mine[name] != theirs[name]}


def current_provenance(**known: Any) -> Provenance:
    """The provenance of this process now; `known` adds or overrides what only the caller can know."""
    values: dict[str, Any] = {
        "threads": _thread_count(),
        "command": " ".join(sys.argv),
        "git_commit": git_commit(),
        # To the microsecond: two sides that start together are not one recording given twice.
        "time": datetime.now(timezone.utc).isoformat(timespec="microseconds"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "reprod_log": __version__,
    }
    values.update(known)
    return Provenance(**values)


def git_commit() -> str:
    """The commit of the working directory, with '+' when it has uncommitted changes; '' outside a repository."""
    try:
        return _commit_of(os.getcwd())
    except OSError:
        return ""  # the folder was removed meanwhile


@cache
def _commit_of(folder: str) -> str:
    """Asked once per folder: an alignment of live models makes a dozen recordings, each of which would start git."""
    import subprocess  # 7 ms that only recording needs

    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def _thread_count() -> int | None:
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return int(text) if text.isdigit() else os.cpu_count()


@dataclass(frozen=True)
class ModuleInfo(Plain):
    """One module of the recorded model: enough to match it with another model's."""

    path: str
    type: str
    """Class name, e.g. `Conv2d`."""
    kind: str = ""
    """What it is in words that all frameworks share, e.g. `conv2d`; '' for containers and unknown classes."""
    parameters: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Own parameters and buffers (not the children's), name to shape."""
    origin: str = ""
    """Full name of the class, to tell apart classes of one name that store their tensors differently."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Its plain attributes as the framework calls them (eps, momentum, padding …), leading underscores removed."""
    unseen: bool = False
    """Whether its calls could not be recorded: it runs inside a compiled module."""
    line: str = ""
    """`file:line` where the program makes it, or where its own forward pass is written; '' when that is not known."""

    @staticmethod
    def brief() -> tuple[str, ...]:
        return "unseen", "line"


@dataclass(frozen=True)
class Recording:
    """Ordered entries plus provenance. It is immutable; data is read on demand."""

    reopens: ClassVar[bool] = True
    """Whether another process finds the same entries by opening `source`."""
    entries: tuple[Entry, ...]
    provenance: Provenance = field(default_factory=Provenance)
    modules: tuple[ModuleInfo, ...] = ()
    """The recorded model's modules in registration order; empty for classic files."""
    source: str = ""
    """Path it was read from, or '' when it was made in this process."""
    complete: bool = True
    """False while it is still growing, or when writing it was cut short."""
    notes: tuple[Note, ...] = ()
    """What a reader should know: missing shards, entries degraded to summaries …"""

    def __post_init__(self) -> None:
        by_key = {str(entry.key): entry for entry in self.entries}
        if len(by_key) != len(self.entries):
            twice = [text for text, count in Counter(str(entry.key) for entry in self.entries).items() if count > 1]
            raise RecordingError(f"{self.source or 'recording'}: duplicate key: {listed(twice)}")
        object.__setattr__(self, "_by_key", by_key)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __contains__(self, key: object) -> bool:
        return str(key) in self._index

    def __getitem__(self, key: str | Key) -> Entry:
        try:
            return self._index[str(key)]
        except KeyError:
            near = near_names(str(key), self._index)
            hint = f" Near names: {listed(near)}." if near else ""
            raise UsageError(
                f"no entry {str(key)!r} in {self.source or 'this recording'} "
                f"({counted(len(self), 'entry', 'entries')}).{hint}"
            ) from None

    @property
    def _index(self) -> dict[str, Entry]:
        index: dict[str, Entry] = self.__dict__["_by_key"]
        return index

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._index)

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps that have at least one entry, in order."""
        return tuple(sorted({entry.key.step for entry in self.entries if entry.key.step is not None}))

    @property
    def runs(self) -> tuple[str, ...]:
        """The passes in it: '' for the program as the user runs it, 'float64' …"""
        return tuple(dict.fromkeys(entry.key.run for entry in self.entries))

    def of_run(self, run: str) -> tuple[Entry, ...]:
        """The entries of one pass, in order."""
        return tuple(entry for entry in self.entries if entry.key.run == run)

    def save(self, path: str | Path) -> Path:
        """Write it in the format that the suffix names (no suffix: a folder) and give back the path."""
        from reprod_log.recording.stores import save  # the stores import this module

        return save(self, path)

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, Any] | Iterable[tuple[str, Any]],
        *,
        provenance: Provenance | None = None,
    ) -> Recording:
        """A recording of arrays at hand, in the order given; each is copied."""
        items = arrays.items() if isinstance(arrays, Mapping) else arrays
        entries = tuple(entry_of(key, np.array(exact_array(value), copy=True)) for key, value in items)
        return cls(entries, provenance or Provenance())

    def _repr_html_(self) -> str:
        from html import escape  # 2 ms that only notebooks need

        rows = "".join(
            f"<tr><td>{escape(str(entry.key))}</td><td>{escape(entry.dtype)}</td><td>{list(entry.shape)}</td></tr>"
            for entry in self.entries[:50]
        )
        more = f"<p>… and {len(self) - 50} more</p>" if len(self) > 50 else ""
        head = escape(f"{counted(len(self), 'entry', 'entries')}, {self.provenance.framework or 'framework unknown'}")
        titles = "<tr><th>key</th><th>dtype</th><th>shape</th></tr>"
        return f"<p><b>Recording</b>: {head}</p><table>{titles}{rows}</table>{more}"


def entry_of(key: str | Key, array: Array, **facts: Any) -> Entry:
    """An entry over an array that the caller will not change any more."""
    if not isinstance(key, (str, Key)):
        raise UsageError(f"a key must be a string, not {type(key).__name__} ({key!r}); use str({key!r})")
    array = exact_array(array)
    return Entry(
        key=Key.of(key),
        shape=array.shape,
        dtype=dtype_name(array.dtype),
        read=lambda: array,
        **facts,
    )


@dataclass(frozen=True)
class Source(Plain):
    """What a report shows of a recording: where it came from and whether it is complete."""

    source: str
    entries: int
    provenance: Provenance = field(default_factory=Provenance)
    complete: bool = True
    notes: tuple[Note, ...] = ()
    lines: Mapping[str, str] = field(default_factory=dict)
    """Where the program makes its modules, by their paths: `file:line`."""

    @classmethod
    def of(cls, recording: Recording) -> Source:
        lines = {one.path: one.line for one in recording.modules if one.line}
        return cls(recording.source, len(recording), recording.provenance, recording.complete, recording.notes, lines)

    @staticmethod
    def brief() -> tuple[str, ...]:
        return ("lines",)


def series(keys: Iterable[Key]) -> dict[str, tuple[tuple[int, Key], ...]]:
    """Keys that differ only in their step, under a common name, each with its step in ascending order.

    Structured keys (`step3/loss/loss`) have a step; in a classic name (`loss_3`, `step_100_linear_lr`) it is the number
    that changes while the rest stays, the last one if several do. A key like no other is a series of one.
    """
    groups: _StepGroups = {}
    for key in keys:
        for front, step, back in _step_readings(key):
            groups.setdefault((front, back), {})[key] = step
    best: dict[Key, tuple[str, str]] = {}
    for group, members in groups.items():
        for key in members:
            if key not in best or _series_rank(group, groups) > _series_rank(best[key], groups):
                best[key] = group
    found: dict[str, list[tuple[int, Key]]] = {}
    for key, (front, back) in best.items():
        name = front if key.phase or (front, back) == (key.path, "") else f"{front}*{back}"
        found.setdefault(name, []).append((groups[front, back][key], key))
    return {name: tuple(sorted(rows, key=lambda row: (row[0], str(row[1])))) for name, rows in found.items()}


_StepGroups = dict[tuple[str, str], dict[Key, int]]
"""The keys with something in common before and after a number, each with that number."""


def _step_readings(key: Key) -> Iterable[tuple[str, int, str]]:
    """Each way to read a key as something before, a step, and something after."""
    if key.phase:
        yield str(replace(key, step=0)).replace("step0/", "", 1), key.step or 0, ""
        return
    text = key.path
    numbers = list(_STEP_NUMBER.finditer(text))
    for number in numbers:
        yield text[: number.start()], int(number.group()), text[number.end() :]
    if not numbers:
        yield text, 0, ""


def _series_rank(group: tuple[str, str], groups: _StepGroups) -> tuple[int, int]:
    return len(groups[group]), len(group[0])
