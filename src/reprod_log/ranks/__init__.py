"""ranks: the parts that the processes of one parallel run recorded, compared with each other and put together."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprod_log.errors import UsageError
from reprod_log.ranks.opening import has_ranks
from reprod_log.recording import Recording
from reprod_log.recording.stores import load

if TYPE_CHECKING:
    from reprod_log.ranks.joining import JoinedRecording, join_ranks
    from reprod_log.ranks.parts import Ranks, load_ranks

__all__ = [
    "JoinedRecording",
    "Ranks",
    "compare_ranks",
    "explained",
    "has_ranks",
    "join_ranks",
    "load_ranks",
    "open_sides",
]

# Every comparison asks whether there are ranks; few have some.
_HOMES = {
    "JoinedRecording": "reprod_log.ranks.joining",
    "Ranks": "reprod_log.ranks.parts",
    "compare_ranks": "reprod_log.alignment.ranks",
    "join_ranks": "reprod_log.ranks.joining",
    "load_ranks": "reprod_log.ranks.parts",
}


def open_sides(
    reference: Recording | str | Path,
    candidate: Recording | str | Path,
    *,
    dims: Mapping[str, str] | None = None,
    mesh: Mapping[str, int] | None = None,
    trust: bool = False,
) -> tuple[Recording, Recording]:
    """Both recordings, ready to be compared; where a path has the parts of several ranks, put together from them."""
    sides = (reference, candidate)
    split = [not isinstance(side, Recording) and has_ranks(side) for side in sides]
    for name, given in (("dims say", dims), ("a mesh says", mesh)):
        if given and not any(split):
            ours, theirs = (side.source or "a recording" if isinstance(side, Recording) else side for side in sides)
            raise UsageError(f"{name} how ranks are put together, but neither {ours} nor {theirs} has any")
    return _opened(reference, split[0], dims, mesh, trust), _opened(candidate, split[1], dims, mesh, trust)


def _opened(
    side: Recording | str | Path,
    split: bool,
    dims: Mapping[str, str] | None,
    mesh: Mapping[str, int] | None,
    trust: bool,
) -> Recording:
    if isinstance(side, Recording):
        return side
    if not split:
        return load(side, trust=trust)
    # Most recordings are of one process, and need not wait for what joins several.
    from reprod_log.ranks.joining import open_ranks

    return open_ranks(side, dims=dims, mesh=mesh, trust=trust)


def explained(alignment: Any, reference: Recording, candidate: Recording) -> Any:
    """The alignment as it is: `align` itself adds what ranks explain. Kept for programs that still call it."""
    return alignment


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'reprod_log.ranks' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
