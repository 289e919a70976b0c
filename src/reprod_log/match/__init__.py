"""match: pairs the entries of two recordings."""

from reprod_log.match.matching import match
from reprod_log.match.pairing import Pair, Pairing, View

__all__ = ["Pair", "Pairing", "View", "match"]
