"""alignment: the whole comparison as one value, and the two faces that make it."""

from reprod_log.alignment.alignment import SCHEMA, Alignment, align, verdict_of

__all__ = ["SCHEMA", "Alignment", "align", "verdict_of"]
