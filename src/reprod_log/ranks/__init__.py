"""ranks: the parts that the processes of one parallel run recorded, compared with each other and put together."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from reprod_log.ranks.opening import explained, has_ranks, open_sides

if TYPE_CHECKING:
    from reprod_log.ranks.joining import JoinedRecording, join_ranks
    from reprod_log.ranks.parts import Ranks, load_ranks
    from reprod_log.ranks.replicas import compare_ranks

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
    "compare_ranks": "reprod_log.ranks.replicas",
    "join_ranks": "reprod_log.ranks.joining",
    "load_ranks": "reprod_log.ranks.parts",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'reprod_log.ranks' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
