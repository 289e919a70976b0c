"""Since last time: which causes are gone, new or elsewhere, and which entries changed sides, between two alignments."""

from __future__ import annotations

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
    """What changed; `Finding`s are those of the earlier alignment where they are gone, else those of the later one."""

    path: str
    """Where the earlier alignment is."""
    fixed: tuple[Key, ...]
    """Entries that pass and did not."""
    broken: tuple[Key, ...]
    """Entries that do not pass and did."""
    causes_fixed: tuple[Finding, ...]
    causes_new: tuple[Finding, ...]
    causes_moved: tuple[Finding, ...]
    """The same mistake at other entries than before."""
    first: tuple[Message | None, Message | None]
    """The first divergence before and now."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """As sentences, what counts first."""
        counts = [("since.fixed", len(self.fixed)), ("since.broken", len(self.broken))]
        parts = tuple(message(id, count=count) for id, count in counts if count)
        lines = [message("since", path=Name(self.path), parts=parts or message("since.same"))]
        for id, causes in (
            ("since.cause.fixed", self.causes_fixed),
            ("since.cause.new", self.causes_new),
            ("since.cause.moved", self.causes_moved),
        ):
            lines += [message(id, cause=one.cause) for one in causes]
        before, now = self.first
        if before is not None and now is not None and before != now:
            lines.append(message("since.first", before=before, now=now))
        return tuple(lines)

    def to_dict(self) -> dict[str, Any]:
        """As plain values for programs."""
        before, now = self.first
        return {
            "path": self.path,
            "entries_fixed": [str(key) for key in self.fixed[:_MOST_KEYS]],
            "entries_fixed_total": len(self.fixed),
            "entries_broken": [str(key) for key in self.broken[:_MOST_KEYS]],
            "entries_broken_total": len(self.broken),
            "causes_fixed": [one.cause.to_dict() for one in self.causes_fixed],
            "causes_new": [one.cause.to_dict() for one in self.causes_new],
            "causes_moved": [one.cause.to_dict() for one in self.causes_moved],
            "first_divergence_before": None if before is None else before.to_dict(),
            "first_divergence_now": None if now is None else now.to_dict(),
        }


def since(before: Alignment, now: Alignment, path: str) -> Since:
    """What changed from the alignment saved at `path` to this one; entries that only one of them has do not count."""
    earlier = {one.key: one.status.passed for one in before.verdict.judgements}
    later = {one.key: one.status.passed for one in now.verdict.judgements}
    both = [key for key in later if key in earlier]
    old, new = _mistakes(before), _mistakes(now)
    return Since(
        path=path,
        fixed=tuple(key for key in both if later[key] and not earlier[key]),
        broken=tuple(key for key in both if earlier[key] and not later[key]),
        causes_fixed=tuple(found[0] for mistake, found in old.items() if mistake not in new),
        causes_new=tuple(found[0] for mistake, found in new.items() if mistake not in old),
        causes_moved=tuple(
            found[0] for mistake, found in new.items() if mistake in old and _causes(found) != _causes(old[mistake])
        ),
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
