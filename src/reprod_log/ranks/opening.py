"""Opening: both sides of a comparison, where either may be the parts of several ranks, and what these then tell.

Most recordings are of one process; what joins and explains ranks is loaded where there are some.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprod_log.errors import UsageError, listed
from reprod_log.recording import Recording
from reprod_log.recording.files import is_file, is_remote, location, reading
from reprod_log.recording.stores import load

if TYPE_CHECKING:
    from reprod_log.alignment import Alignment

_PART = re.compile(r"(?:(?P<name>.+)\.)?rank(?P<rank>0|[1-9][0-9]{0,5})(?P<suffix>\.\w+)?")


def open_sides(
    reference: str | Path,
    candidate: str | Path,
    *,
    dims: Mapping[str, str] | None = None,
    mesh: Mapping[str, int] | None = None,
    trust: bool = False,
) -> tuple[Recording, Recording]:
    """Both recordings, ready to be compared; where there are the parts of several ranks, put together from them."""
    ranks = [has_ranks(path) for path in (reference, candidate)]
    for name, given in (("dims say", dims), ("a mesh says", mesh)):
        if given and not any(ranks):
            raise UsageError(f"{name} how ranks are put together, but neither {reference} nor {candidate} has any")
    ours, theirs = (
        _joined(path, dims, mesh, trust) if split else load(path, trust=trust)
        for path, split in zip((reference, candidate), ranks, strict=True)
    )
    return ours, theirs


def _joined(path: str | Path, dims: Mapping[str, str] | None, mesh: Mapping[str, int] | None, trust: bool) -> Recording:
    from reprod_log.ranks.joining import join_ranks
    from reprod_log.ranks.parts import load_ranks

    return join_ranks(load_ranks(path, mesh=mesh, trust=trust), dims=dims)


def explained(alignment: Alignment, reference: Recording, candidate: Recording) -> Alignment:
    """The alignment with what the ranks behind its sides tell; as it is when neither was put together from ranks."""
    if type(reference) is Recording and type(candidate) is Recording:
        return alignment
    from reprod_log.ranks.explaining import with_ranks

    return with_ranks(alignment, reference, candidate)


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
