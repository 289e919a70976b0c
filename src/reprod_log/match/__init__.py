"""match: pairs the entries of two recordings."""

from reprod_log.match.matching import match, near_names
from reprod_log.match.pairing import Pair, Pairing, View

__all__ = ["Pair", "Pairing", "View", "match", "near_names"]
