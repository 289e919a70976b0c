"""record: entries, recordings, provenance, and the stores they are kept in."""

from reprod_log.recording.entry import Array, Entry, dtype_name, dtype_named
from reprod_log.recording.key import OF_MODULES, OF_TENSORS, PHASES, Key
from reprod_log.recording.program import join_passes
from reprod_log.recording.recording import ModuleInfo, Provenance, Recording, current_provenance, entry_of

__all__ = [
    "OF_MODULES",
    "OF_TENSORS",
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
    "join_passes",
]
