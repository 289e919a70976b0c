"""The alignment as JSON: everything in it, to be read back and judged again without the tensors."""

from __future__ import annotations

from reprod_log.alignment import Alignment
from reprod_log.report import USUAL, Options

SUFFIXES = (".json",)


def render(alignment: Alignment, options: Options = USUAL) -> str:
    """All of the alignment, however much was asked for."""
    return alignment.to_json()
