"""Settings of layers in words that the frameworks share, so that two layers can be held against each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reprod_log.recording import ModuleInfo


@dataclass(frozen=True)
class Difference:
    """A setting in which two paired layers differ."""

    name: str
    """The shared word."""
    ours: Any
    theirs: Any
    native: str
    """What the candidate's framework calls it, without leading underscores."""
    right: Any
    """The value that the candidate should have, in its own convention."""
    has: Any
    """The value that it has, in its own convention."""


_WORDS = {
    "epsilon": "eps",
    "ksize": "kernel_size",
    "exclusive": "count_include_pad",
    "dim": "axis",
    "start_dim": "start_axis",
    "end_dim": "stop_axis",
    "min": "min_val",
    "max": "max_val",
    "normalize_before": "norm_first",
}
"""Names that mean the same; the second is the shared word."""

_COMPARED = frozenset(
    {
        "eps", "momentum", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode", "output_padding",
        "count_include_pad", "ceil_mode", "align_corners", "scale_factor", "approximate", "negative_slope", "alpha",
        "beta", "threshold", "lambd", "p", "axis", "start_axis", "stop_axis", "padding_idx", "num_groups", "num_layers",
        "num_heads", "normalized_shape", "upscale_factor", "output_size", "min_val", "max_val", "k", "slope", "offset",
        "use_global_stats", "dropout", "norm_first", "reduction", "ignore_index", "label_smoothing", "delta", "value",
        "mode",
    }
)  # fmt: skip

_WITHOUT = {
    "padding_idx": None,
    "align_corners": False,
    "use_global_stats": False,
    "mode": "upscale_in_train",
}
"""What it means when a layer does not have the setting at all."""
_ABSENT_MATTERS = {
    "padding_idx": ("embedding",),
    "align_corners": ("upsample",),
    "use_global_stats": ("batchnorm",),
    "mode": ("dropout",),
}


def setting_differences(ours: ModuleInfo, theirs: ModuleInfo) -> list[Difference]:
    """Every setting that both layers have, or that one lacks with a known meaning, and in which they differ."""
    if ours.kind != theirs.kind:
        return []
    here, there = _shared(ours), _shared(theirs)
    found = []
    for name in sorted(_COMPARED):
        absent_is_known = any(word in ours.kind for word in _ABSENT_MATTERS.get(name, ()))
        if not ((name in here and name in there) or (absent_is_known and (name in here or name in there))):
            continue
        left = here[name][1] if name in here else _WITHOUT[name]
        native, right_value, has = there.get(name, (name, _WITHOUT.get(name), None))
        if same_setting(left, right_value):
            continue
        convert = _CONVENTION.get((_family(theirs), native, theirs.kind)) or _CONVENTION.get(
            (_family(theirs), native, "")
        )
        right = convert(left) if convert else left
        found.append(Difference(name, left, right_value, native, right, has))
    return found


def same_setting(left: Any, right: Any) -> bool:
    """Whether two settings mean the same: 1 and (1, 1) do, and numbers that agree to float32."""
    if isinstance(left, (list, tuple)) or isinstance(right, (list, tuple)):
        one = list(left) if isinstance(left, (list, tuple)) else None
        other = list(right) if isinstance(right, (list, tuple)) else None
        if one is None:
            one = [left] * len(other or ())
        if other is None:
            other = [right] * len(one)
        return len(one) == len(other) and all(same_setting(a, b) for a, b in zip(one, other, strict=True))
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (left, right))
    return math.isclose(left, right, rel_tol=1e-6) if numbers else bool(left == right)


def _shared(module: ModuleInfo) -> dict[str, tuple[str, Any, Any]]:
    """Shared word → native name, value in the shared convention, value as it is."""
    found: dict[str, tuple[str, Any, Any]] = {}
    family = _family(module)
    for native, value in module.settings.items():
        name = _WORDS.get(native, native)
        convert = _CONVENTION.get((family, native, module.kind)) or _CONVENTION.get((family, native, ""))
        if name in _COMPARED:
            found[name] = (native, convert(value) if convert else value, value)
    return found


def _family(module: ModuleInfo) -> str:
    return module.origin.partition(".")[0]


def _kept(share: Any) -> Any:
    return round(1 - share, 12)


def _not(value: Any) -> Any:
    return not value


def _approximation(value: Any) -> Any:
    return {"tanh": True, "none": False, True: "tanh", False: "none"}.get(value, value)


# Each turns the native value into the shared one and, being its own inverse, back.
_CONVENTION: Mapping[tuple[str, str, str], Callable[[Any], Any]] = {
    # torch's momentum is the share of the new value, paddle's the share of the old.
    ("paddle", "momentum", "batchnorm"): _kept,
    ("paddle", "momentum", "instancenorm"): _kept,
    ("paddle", "exclusive", ""): _not,
    ("torch", "approximate", ""): _approximation,
}
