"""Opening: whether the parts of several ranks are at a path, and what the command line declares of them.

Every comparison asks this and few have ranks, so nothing here loads what joins them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reprod_log.errors import UsageError, listed
from reprod_log.recording import Recording
from reprod_log.recording.files import is_file, is_remote, location, reading
from reprod_log.recording.stores import load

_PART = re.compile(r"(?:(?P<name>.+)\.)?rank(?P<rank>0|[1-9][0-9]{0,5})(?P<suffix>\.\w+)?")


def has_ranks(path: str | Path) -> bool:
    """Whether the parts of several ranks are at `path`: a folder of them, or `name.rank0.npz` … for `name.npz`."""
    return bool(parts_at(location(path)))


def parts_at(place: Path) -> dict[int, Path]:
    """The parts by rank."""
    if is_remote(place):
        return _remote_parts(place)
    if place.exists() and not place.is_dir():
        return {}
    if place.is_dir():
        if (place / "manifest.json").is_file():
            return {}
        folder, wanted = place, None
    else:
        folder, wanted = place.parent, (place.stem, place.suffix)
    names: dict[tuple[str, str], dict[int, Path]] = {}
    for child in sorted(folder.iterdir()) if folder.is_dir() else ():
        found = _PART.fullmatch(child.name)
        if found is not None:
            family = found["name"] or "", found["suffix"] or ""
            names.setdefault(family, {})[int(found["rank"])] = child
    if wanted is not None:
        return names.get(wanted, {}) if wanted[1] else {}
    if len(names) > 1:
        shown = listed([f"{name}{suffix}" for name, suffix in names])
        raise UsageError(f"{place} holds the ranks of several runs: {shown}. Name one of them, e.g. {place}/NAME.npz.")
    return next(iter(names.values()), {})


def _remote_parts(place: Path) -> dict[int, Path]:
    """Not every server can list a folder: rank 0 says how many there are."""
    if place.suffix:
        return {}
    with reading(place):
        if is_file(place / "manifest.json") or not is_file(place / "rank0" / "manifest.json"):
            return {}
    size = fact(load(place / "rank0"), "world_size") or 1
    found = {rank: place / f"rank{rank}" for rank in range(int(size))}
    return {rank: part for rank, part in found.items() if is_file(part / "manifest.json")}


def fact(part: Recording, name: str) -> Any:
    return part.provenance.extra.get(name)


AXIS_NAME = re.compile(r"[A-Za-z]\w*")


def read_dims(texts: Sequence[str]) -> dict[str, str]:
    """PATTERN=DIMS texts of the command line as a map."""
    found: dict[str, str] = {}
    for text in texts:
        pattern, equals, dims = text.partition("=")
        if not equals or not pattern.strip():
            raise UsageError(f"cannot read --dims {text!r}: write PATTERN=DIMS, e.g. --dims 'fc.weight=o[tp] i'")
        found[pattern.strip()] = dims
    return found


def read_mesh(text: str | None) -> dict[str, int] | None:
    """The NAME=SIZE,… of the command line as a map."""
    if text is None:
        return None
    found: dict[str, int] = {}
    for word in text.split(","):
        name, _, size = word.partition("=")
        if not AXIS_NAME.fullmatch(name.strip()) or not size.strip().isdigit() or name.strip() in found:
            raise UsageError(f"cannot read --mesh {text!r}: write the axes with their sizes, e.g. --mesh dp=2,tp=2")
        found[name.strip()] = int(size)
    return found
