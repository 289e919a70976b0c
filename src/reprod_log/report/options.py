"""Options: what a reader may ask of any report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """How much to show, and in which language. Each format makes of it what fits it."""

    full: bool = False
    """Every entry, where the usual report shows only what does not pass."""
    language: str = "en"


USUAL = Options()
