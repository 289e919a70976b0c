"""Subject: one alignment step of the reproduction guides, named by what it is about; numbers belong to a plan."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Subject:
    """What a step checks, how its files are usually called, and the limits it is usually held to."""

    name: str
    title: str
    words: tuple[str, ...]
    """Words in a file's name that mean this step."""
    limits: tuple[str, ...]
    why: str
    """The reason for the limits."""
