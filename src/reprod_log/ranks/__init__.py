"""ranks: the parts that the processes of one parallel run recorded, compared with each other and put together."""

from reprod_log.ranks.explaining import explained, open_sides
from reprod_log.ranks.joining import JoinedRecording, join_ranks
from reprod_log.ranks.parts import Ranks, has_ranks, load_ranks
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
