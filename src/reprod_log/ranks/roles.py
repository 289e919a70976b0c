"""Which entries belong together on several ranks: the axis of the batch, what a split parameter splits, statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from reprod_log.layers.arrangement import batch_first, is_sequence, is_sequence_role
from reprod_log.ranks.parts import Group
from reprod_log.recording import Entry, Key, ModuleInfo, Recording
from reprod_log.recording.shards import shard_of

STATISTICS = (("running_mean", "running_var"), ("_mean", "_variance"))
"""What torch and paddle call a batch norm's running mean and variance."""
_RECURRENT = ("lstm", "gru", "rnn")


def of_rank(key: Key, rank: int) -> Key:
    """The key under which a rank's own version of an entry stands beside that of rank 0."""
    if not key.phase:
        return replace(key, path=f"{key.path}.rank{rank}")
    return replace(key, role=f"{key.role}.rank{rank}" if key.role else f"rank{rank}")


def batch_axis(entry: Entry, module: ModuleInfo | None) -> int:
    """The axis of the samples: the first, unless the layer itself says otherwise."""
    if module is None or len(entry.shape) != 3 or not is_sequence(module):
        return 0
    if is_sequence_role(module, entry.key.role):
        return 0 if batch_first(module) else 1
    # The states of a recurrent layer are layers × batch × features, whatever its sequence is.
    return 1 if any(word in module.kind for word in _RECURRENT) else 0


def parameter_shapes(recording: Recording) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter by its path."""
    return {
        f"{module.path}.{name}" if module.path else name: tuple(shape)
        for module in recording.modules
        for name, shape in module.parameters.items()
    }


def is_split(entry: Entry, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether declared dims hold for an entry: not for single numbers, nor for counters kept beside a parameter."""
    if not entry.shape:
        return False
    return entry.key.phase != "optimizer" or entry.shape == shapes.get(entry.key.path, entry.shape)


def running_statistics(recording: Recording) -> dict[str, ModuleInfo]:
    """The paths of all running means and variances, with the batch norm they belong to."""
    found: dict[str, ModuleInfo] = {}
    for module in recording.modules:
        if module.kind == "batchnorm":
            for names in STATISTICS:
                found.update({f"{module.path}.{name}": module for name in names if name in module.parameters})
    return found


def has_pieces(part: Recording) -> bool:
    """Whether a rank has parameters only in pieces."""
    return any(shard_of(entry.meta) is not None for entry in part.entries if entry.key.phase == "parameter")


def other_weights(group: Group) -> list[int]:
    """The ranks of a group that began with other weights than its first.

    Of weights that lie in pieces along it the hashes differ and tell nothing.
    """
    if has_pieces(group.parts[0]):
        return []
    hashes = [part.provenance.weights_hash for part in group.parts]
    return [rank for rank, one in zip(group.numbers, hashes, strict=True) if one and hashes[0] and one != hashes[0]]
