"""The documented address of the values of a recording; they live in reprod_log.recording."""

from reprod_log.recording import Entry, Key, Provenance, Recording

__all__ = ["Entry", "Key", "Provenance", "Recording"]
