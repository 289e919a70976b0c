"""alignment: the whole comparison as one value, and the two faces that make it."""

from reprod_log.alignment.alignment import SCHEMA, Alignment
from reprod_log.alignment.options import AlignOptions
from reprod_log.alignment.recordings import align, align_with

__all__ = ["SCHEMA", "AlignOptions", "Alignment", "align", "align_with"]
