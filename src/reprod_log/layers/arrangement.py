"""How a layer arranges its activations: channels last or first, time or batch first, read from its own settings."""

from __future__ import annotations

from reprod_log.recording.recording import ModuleInfo

_CHANNELS_LAST = ("NHWC", "NLC", "NDHWC")
_SEQUENCE_ROLES = ("output", "output.0", "input.0")
_ATTENDED_ROLES = ("input.1", "input.2", "input.query", "input.key", "input.value")
_SEQUENCE_KINDS = ("lstm", "gru", "rnn", "multihead_attention", "transformer")


_ROW_BY_ROW = (
    *("linear", "embedding", "layernorm", "rmsnorm", "identity", "dropout"),
    *("relu", "relu6", "leaky_relu", "elu", "celu", "selu", "gelu", "silu", "mish", "softplus", "softsign"),
    *("sigmoid", "logsigmoid", "hardsigmoid", "hardswish", "hardtanh", "tanh"),
)


def row_by_row(module: ModuleInfo) -> bool:
    """Whether the layer does the same to every row along the last axis, so that no other axis has a meaning to it."""
    return module.kind in _ROW_BY_ROW


def channels_last(module: ModuleInfo) -> bool:
    """Whether the layer keeps its channels in the last dimension."""
    return str(module.settings.get("data_format", "")) in _CHANNELS_LAST


def is_sequence(module: ModuleInfo) -> bool:
    """Whether it is a recurrent or attention layer, whose activations have a time axis."""
    return any(word in module.kind for word in _SEQUENCE_KINDS)


def batch_first(module: ModuleInfo) -> bool:
    """Whether such a layer has the batch before the time axis."""
    if "time_major" in module.settings:
        return not module.settings["time_major"]
    # paddle's attention is always batch first; torch's says so.
    return bool(module.settings.get("batch_first", module.origin.startswith("paddle")))


def is_sequence_role(module: ModuleInfo, role: str) -> bool:
    """Whether it is a sequence itself: states and weights that come beside it have no time axis."""
    return role in _SEQUENCE_ROLES or (module.kind == "multihead_attention" and role in _ATTENDED_ROLES)


def canonical_axes(module: ModuleInfo, role: str, rank: int) -> tuple[int, ...] | None:
    """The axes that put an activation into channels first or batch first; None when it is so already."""
    if rank >= 3 and channels_last(module):
        return (0, rank - 1, *range(1, rank - 1))
    if rank == 3 and is_sequence_role(module, role) and is_sequence(module) and not batch_first(module):
        return (1, 0, 2)
    return None
