"""What the command line declares of ranks, read: --dims and --mesh."""

from __future__ import annotations

import re
from collections.abc import Sequence

from reprod_log.errors import UsageError

AXIS_NAME = re.compile(r"[A-Za-z]\w*")


def read_dims(texts: Sequence[str]) -> dict[str, str]:
    """PATTERN=DIMS texts of the command line as a map."""
    found: dict[str, str] = {}
    for text in texts:
        pattern, equals, dims = text.partition("=")
        if not equals or not pattern.strip():
            raise UsageError(f"cannot read --dims {text!r}: write PATTERN=DIMS, e.g. --dims 'fc.weight=o[tp] i'")
        found[pattern.strip()] = dims
    return found


def read_mesh(text: str | None) -> dict[str, int] | None:
    """The NAME=SIZE,… of the command line as a map."""
    if text is None:
        return None
    found: dict[str, int] = {}
    for word in text.split(","):
        name, _, size = word.partition("=")
        if not AXIS_NAME.fullmatch(name.strip()) or not size.strip().isdigit() or name.strip() in found:
            raise UsageError(f"cannot read --mesh {text!r}: write the axes with their sizes, e.g. --mesh dp=2,tp=2")
        found[name.strip()] = int(size)
    return found
