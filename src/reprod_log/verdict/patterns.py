"""Patterns of keys, as people give them."""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.errors import UsageError


def patterns(given: str | Iterable[str], *, name: str) -> tuple[str, ...]:
    """The patterns one by one; a single text is one pattern, not its letters, one of which may be a star.

    `name` is what the caller calls them, for the message about something that is none.
    """
    found = (given,) if isinstance(given, str) else tuple(given)
    wrong = [one for one in found if not isinstance(one, str)]
    if wrong:
        raise UsageError(f"{name} takes patterns of keys such as '*running_var*', not {wrong[0]!r}")
    return found
