"""Rename maps: what a user says about names that differ between the two sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from reprod_log.errors import UsageError, listed
from reprod_log.recording import Key, Recording


def renamed(key: Key, rename: Mapping[str, str]) -> tuple[Key, str | None]:
    """The key as the candidate would call it, and the rule that changed it (None: no rule applied).

    A rule names a whole key (`loss_0`), a whole path (`fc`), or the front of one (`fc` also renames `fc.weight`).
    The longest rule that fits wins.
    """
    if not rename:
        return key, None
    text = str(key)
    if text in rename:
        return Key.parse(rename[text]), text
    fitting = [old for old in rename if _fits(old, key)]
    if not fitting:
        return key, None
    old = max(fitting, key=len)
    return replace(key, path=rename[old] + key.path[len(old) :]), old


def check_rename(rename: Mapping[str, str], reference: Recording) -> None:
    """Raise when a rule fits nothing: a mistyped rule must not go unnoticed."""
    idle = [old for old in rename if not any(_fits(old, entry.key) for entry in reference.entries)]
    if idle:
        raise UsageError(
            f"rename names what the reference does not have: {listed(idle)}. "
            f"The reference has {listed(reference.keys)}."
        )


def _fits(old: str, key: Key) -> bool:
    return old in (str(key), key.path) or key.path.startswith((old + ".", old + "/"))
