"""Honest JSON with some of its parts replaced: what random bytes hardly ever make of a text."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**30, -(10**30), 0.5, -0.0, 1e308, 1e-320, "", "x", "nan", "*",
    "../../x", "step0/forward/fc#0:output", "float32", "object", "O", "S0", "U1000000000", "float64@step0/loss/loss",
    [], [1], [[]], [-1], [0, 2**62], ["x"], [None], {}, {"a": 1}, {"nonfinite": "nan"}, {"nonfinite": "inf"},
    {"nonfinite": []}, "\ud800", "\x00", "<script>", "a" * 300,
)  # fmt: skip

MOST_CHANGES = 8


def changed(text: bytes, plan: bytes) -> bytes:
    """The JSON `text` with the parts that `plan` names (two bytes for where, one for what) replaced or taken away."""
    content = json.loads(text)
    for start in range(0, min(len(plan) - 2, 3 * MOST_CHANGES), 3):
        places = list(_places(content))
        holder, name = places[int.from_bytes(plan[start : start + 2], "little") % len(places)]
        choice = plan[start + 2] % (len(ODD_VALUES) + 2)
        if choice < len(ODD_VALUES):
            holder[name] = deepcopy(ODD_VALUES[choice])
        elif choice == len(ODD_VALUES):
            del holder[name]
        else:
            holder[name] = [deepcopy(holder[name]) for _ in range(3)]
        if not content:
            break
    return json.dumps(content).encode()


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in list(items):
        yield value, name
        yield from _places(one)
