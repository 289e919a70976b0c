"""pairing: which part of one program answers which part of the other: entries, layers, weights."""

from reprod_log.pairing.entries import match
from reprod_log.pairing.pairing import Pair, Pairing, View

__all__ = ["Pair", "Pairing", "View", "match"]
