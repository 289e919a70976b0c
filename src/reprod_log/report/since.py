"""Since last time: which causes are gone, new or elsewhere, and which entries changed sides, between two alignments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reprod_log.alignment import Alignment
from reprod_log.diagnose import Finding
from reprod_log.messages import Message, Name, message
from reprod_log.recording import Key
from reprod_log.report.view import first_in_words

_MOST_KEYS = 50


@dataclass(frozen=True)
class Since:
    """What changed. A cause that is gone is a finding of the earlier alignment, any other one of the later."""

    path: str
    """Where the earlier alignment is."""
    entries: Mapping[str, tuple[Key, ...]]
    """Those that pass and did not (fixed), and those that do not pass and did (broken)."""
    causes: Mapping[str, tuple[Finding, ...]]
    """Those that are gone (fixed), new, or the same mistake at other entries than before (moved)."""
    first: tuple[Message | None, Message | None]
    """The first divergence before and now."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """As sentences, what counts first."""
        parts = tuple(message(f"since.{how}", count=len(keys)) for how, keys in self.entries.items() if keys)
        lines = [message("since", path=Name(self.path), parts=parts or message("since.same"))]
        lines += [message(f"since.cause.{how}", cause=one.cause) for how, found in self.causes.items() for one in found]
        before, now = self.first
        if before is not None and now is not None and before != now:
            lines.append(message("since.first", before=before, now=now))
        return tuple(lines)

    def to_dict(self) -> dict[str, Any]:
        """As plain values for programs."""
        return {
            "path": self.path,
            **{f"entries_{how}": [str(key) for key in keys[:_MOST_KEYS]] for how, keys in self.entries.items()},
            **{f"entries_{how}_total": len(keys) for how, keys in self.entries.items()},
            **{f"causes_{how}": [one.cause.to_dict() for one in found] for how, found in self.causes.items()},
            **{
                f"first_divergence_{when}": None if first is None else first.to_dict()
                for when, first in zip(("before", "now"), self.first, strict=True)
            },
        }


def since(before: Alignment, now: Alignment, path: str) -> Since:
    """What changed from the alignment saved at `path` to this one; entries that only one of them has do not count."""
    earlier = {one.key: one.status.passed for one in before.verdict.judgements}
    changed = {
        one.key: one.status.passed
        for one in now.verdict.judgements
        if one.key in earlier and earlier[one.key] != one.status.passed
    }
    old, new = _mistakes(before), _mistakes(now)
    moved = [mistake for mistake in new if mistake in old and _causes(new[mistake]) != _causes(old[mistake])]
    return Since(
        path=path,
        entries={
            "fixed": tuple(key for key, passes in changed.items() if passes),
            "broken": tuple(key for key, passes in changed.items() if not passes),
        },
        causes={
            "fixed": tuple(found[0] for mistake, found in old.items() if mistake not in new),
            "new": tuple(found[0] for mistake, found in new.items() if mistake not in old),
            "moved": tuple(new[mistake][0] for mistake in moved),
        },
        first=(first_in_words(before), first_in_words(now)),
    )


def _mistakes(alignment: Alignment) -> dict[tuple[str, Message], list[Finding]]:
    """The causes by what is the same of one mistake in many layers."""
    found: dict[tuple[str, Message], list[Finding]] = {}
    for one in alignment.findings if not alignment.passed else ():
        if one.kind == "cause":
            found.setdefault(one.mistake, []).append(one)
    return found


def _causes(found: list[Finding]) -> list[Message]:
    return [one.cause for one in found]
