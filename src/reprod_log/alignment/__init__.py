"""alignment: the whole comparison as one value, and the two faces that make it."""

from reprod_log.alignment.alignment import SCHEMA, Alignment, align, align_with, verdict_of
from reprod_log.alignment.options import AlignOptions

__all__ = ["SCHEMA", "AlignOptions", "Alignment", "align", "align_with", "verdict_of"]
