"""How a layer arranges its activations: channels last or first, time or batch first, and which of its outputs count."""

from __future__ import annotations

from typing import Any

from reprod_log.layers.lookup import column_of, layer_kind
from reprod_log.layers.rows import data_format_says_last
from reprod_log.recording import ModuleInfo


def row_by_row(module: ModuleInfo) -> bool:
    """Whether the layer does the same to every row along the last axis, so that no other axis has a meaning to it."""
    row = layer_kind(module.kind)
    return row is not None and row.row_wise


def channels_last(module: ModuleInfo) -> bool:
    """Whether the layer keeps its channels in the last dimension."""
    column = column_of(module)
    # A custom module that has such a setting means it as the frameworks do.
    return data_format_says_last(module.settings) if column is None else column.channels_last(module.settings)


def is_sequence(module: ModuleInfo) -> bool:
    """Whether it is a recurrent or attention layer, whose activations have a time axis."""
    row = layer_kind(module.kind)
    return row is not None and bool(row.sequence)


def has_states(module: ModuleInfo) -> bool:
    """Whether it gives states of layers × batch × features, whatever its sequence is."""
    row = layer_kind(module.kind)
    return row is not None and row.states


def batch_first(module: ModuleInfo) -> bool:
    """Whether such a layer has the batch before the time axis."""
    column = column_of(module)
    return bool(module.settings.get("batch_first")) if column is None else not column.time_first(module.settings)


def is_sequence_role(module: ModuleInfo, role: str) -> bool:
    """Whether it is a sequence itself: states and weights that come beside it have no time axis."""
    row = layer_kind(module.kind)
    return row is not None and role in row.sequence


def canonical_axes(module: ModuleInfo, role: str, rank: int) -> tuple[int, ...] | None:
    """The axes that put an activation into channels first or batch first; None when it is so already."""
    if rank >= 3 and channels_last(module):
        return (0, rank - 1, *range(1, rank - 1))
    if rank == 3 and is_sequence_role(module, role) and not batch_first(module):
        return (1, 0, 2)
    return None


def canonical_output(kind: str, output: Any) -> Any:
    """The output of a layer of this kind as every framework's layer would return it.

    A recurrent cell gives its new state: h, or (h, c). paddle gives the output before it, (h, h) and (h, (h, c)), and
    the output is the very tensor that is the first of the state. A cell of the user's own that returns anything else
    keeps what it returns.

    An attention layer gives what it attended to. The weights that may come beside it are averaged over heads in one
    framework and not in the other, and may not be asked for at all; what is done with them shows behind them.
    """
    row = layer_kind(kind) if kind and isinstance(output, tuple) and output else None
    if row is None or not row.output:
        return output
    if row.output == "first":
        return output[0]
    if len(output) != 2:
        return output
    first, state = output
    again = state[0] if isinstance(state, (tuple, list)) and state else state
    return state if again is first else output
