"""record: entries, recordings, provenance, and the stores they are kept in."""

from reprod_log.record.entry import Array, Entry, dtype_name, dtype_named
from reprod_log.record.key import PHASES, Key
from reprod_log.record.provenance import Provenance, current_provenance
from reprod_log.record.recording import ModuleInfo, Recording, entry_of

__all__ = [
    "PHASES",
    "Array",
    "Entry",
    "Key",
    "ModuleInfo",
    "Provenance",
    "Recording",
    "current_provenance",
    "dtype_name",
    "dtype_named",
    "entry_of",
]
