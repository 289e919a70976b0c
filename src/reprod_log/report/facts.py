"""Facts beside the verdict: both sides' provenance, what was covered, and the policy that judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reprod_log.alignment import Alignment
from reprod_log.layers.optimizers import group_settings, optimizer_kind
from reprod_log.layers.settings import same_setting
from reprod_log.messages import Message, Name, message
from reprod_log.recording import Key, Provenance, Recording
from reprod_log.recording.program import FACT
from reprod_log.report.view import ReportRow
from reprod_log.verdict import Policy, Status

MATTERS = ("device", "dtype", "threads", "data_hash")
"""Fields whose difference can by itself explain different numbers. Frameworks, times and commands differ anyway."""
MATTERS_WITHIN_A_FRAMEWORK = ("seeds", "weights_hash")
"""Two frameworks lay out their weights and use their seeds in different ways; the same one does not."""
_ORDER = (
    "framework", "framework_version", "device", "dtype", "seeds", "threads", "weights_hash", "data_hash",
    "python", "numpy", "platform", "reprod_log", "git_commit", "command", "time",
)  # fmt: skip
_BOOKKEEPING = (FACT, "run")
"""What later commands check or run again: digests of programs, paths. The command and the settings are facts above."""


@dataclass(frozen=True)
class Fact:
    """One field of provenance on both sides."""

    name: str
    reference: str
    candidate: str
    can_explain: bool = False
    """Whether a difference of this field can by itself explain different numbers."""

    @property
    def differs(self) -> bool:
        return self.reference != self.candidate

    @property
    def matters(self) -> bool:
        """Whether both sides know it and the difference can explain different numbers."""
        return self.differs and self.can_explain and bool(self.reference) and bool(self.candidate)


def provenance_facts(alignment: Alignment) -> tuple[Fact, ...]:
    """Source, size and provenance of the two recordings side by side, as far as either knows it."""
    reference, candidate = alignment.reference, alignment.candidate
    facts = [
        Fact("source", reference.source, candidate.source),
        Fact("entries", str(reference.entries), str(candidate.entries)),
        Fact("complete", _shown(reference.complete), _shown(candidate.complete)),
    ]
    ours, theirs = reference.provenance.to_dict(), candidate.provenance.to_dict()
    extra_ours, extra_theirs = ours.pop("extra", {}), theirs.pop("extra", {})
    names = [*_ORDER, *(name for name in {**ours, **theirs} if name not in _ORDER)]
    same = ours.get("framework") == theirs.get("framework")
    telling = (*MATTERS, *MATTERS_WITHIN_A_FRAMEWORK) if same else MATTERS
    facts += [
        Fact(name, _shown(ours.get(name)), _shown(theirs.get(name)), name in telling)
        for name in names
        if name in ours or name in theirs
    ]
    facts += _optimizer_facts(extra_ours, extra_theirs)
    for extra in (extra_ours, extra_theirs):
        for name in _BOOKKEEPING:
            extra.pop(name, None)
    more_ours, more_theirs = dict(unfolded("", extra_ours)), dict(unfolded("", extra_theirs))
    facts += [Fact(name, more_ours.get(name, ""), more_theirs.get(name, "")) for name in {**more_ours, **more_theirs}]
    return tuple(fact for fact in facts if fact.reference or fact.candidate)


def _optimizer_facts(ours: dict[str, Any], theirs: dict[str, Any]) -> list[Fact]:
    """The settings of optimizers that differ, in words that all frameworks share; taken out of the other facts.

    Each framework has names of its own for the same settings, and some that change no result.
    """
    here, there = ours.get("optimizers"), theirs.get("optimizers")
    if not isinstance(here, Mapping) or not isinstance(there, Mapping) or len(here) != len(there):
        return []
    facts = []
    for name, left, right in zip(here, here.values(), there.values(), strict=True):
        if not (_has_groups(left) and _has_groups(right) and optimizer_kind(left) and optimizer_kind(right)):
            return []
        pairs: list[tuple[str, Any, Any]] = [("kind", optimizer_kind(left), optimizer_kind(right))]
        groups = list(zip(group_settings(left), group_settings(right), strict=False))
        for place, (one, other) in enumerate(groups):
            where = f"group{place}." if len(groups) > 1 else ""
            pairs += [(where + setting, one.get(setting), other.get(setting)) for setting in {**one, **other}]
        pairs = [pair for place, pair in enumerate(pairs) if not place or not same_setting(pair[1], pair[2])]
        facts += [Fact(f"optimizers.{name}.{what}", _shown(a), _shown(b), True) for what, a, b in pairs]
    del ours["optimizers"], theirs["optimizers"]
    return facts


def _has_groups(settings: Any) -> bool:
    """Whether these are settings as we record them; a file may hold anything."""
    groups = settings.get("groups") if isinstance(settings, Mapping) else None
    return isinstance(groups, (list, tuple)) and all(isinstance(one, Mapping) for one in groups)


@dataclass(frozen=True)
class Coverage:
    """What was compared, and what was not."""

    judged: int
    compared: int
    elements: int
    only_in_reference: tuple[Key, ...]
    only_in_candidate: tuple[Key, ...]
    allowed: tuple[Key, ...]
    structural: tuple[str, ...]
    """Modules without parameters that only one side has; nothing to compare."""
    incomparable: int
    supporting: int
    """Entries of other passes (float64, repeats) that serve as evidence and are not judged themselves."""
    steps: tuple[int, ...]
    by_phase: tuple[tuple[str, Counter[Status]], ...]
    matched: tuple[tuple[str, int], ...]
    """How pairs were found: by name, rename, structure, order or value."""
    rearranged: tuple[tuple[Message, int], ...]
    """The views that made a pair comparable, and how many pairs needed them."""


def coverage(alignment: Alignment, rows: tuple[ReportRow, ...]) -> Coverage:
    """The share of both recordings that the verdict speaks about."""
    comparison = alignment.comparison
    measured = [row for row in comparison.rows if row.measurement is not None]
    judged = {row.key for row in rows}
    by_phase: dict[str, Counter[Status]] = {}
    for row in rows:
        by_phase.setdefault(row.key.phase, Counter())[row.status] += 1
    allowed = set(alignment.verdict.allowed)
    alone = [one for one in comparison.unmatched if one.key not in allowed]
    return Coverage(
        judged=len(rows),
        compared=len(measured),
        elements=sum(row.measurement.count for row in measured if row.measurement),
        only_in_reference=tuple(one.key for one in alone if one.side == "reference"),
        only_in_candidate=tuple(one.key for one in alone if one.side == "candidate"),
        allowed=alignment.verdict.allowed,
        structural=comparison.structural,
        incomparable=sum(row.measurement is None for row in comparison.rows),
        supporting=sum(row.key not in judged for row in comparison.rows),
        steps=tuple(sorted({row.key.step for row in comparison.rows if row.key.step is not None})),
        by_phase=tuple(by_phase.items()),
        matched=tuple(Counter(row.how for row in comparison.rows).most_common()),
        rearranged=tuple(Counter(row.view for row in comparison.rows if row.view is not None).most_common()),
    )


@dataclass(frozen=True)
class Rule:
    """One line of the policy."""

    name: str
    value: str
    scope: str = ""
    reason: Message | str = ""


def policy_rules(alignment: Alignment) -> tuple[Rule, ...]:
    """What the verdict was held to, line by line."""
    policy = alignment.policy
    if isinstance(policy, Policy):
        return tuple(
            Rule(one.metric, f"≤ {one.value:g}", _scope(one.keys, one.dtype), one.reason) for one in policy.limits
        )
    shown: Mapping[str, Any] = policy.to_dict()
    return tuple(
        Rule(name, f"{value:g}")
        for name, value in shown.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    )


def _scope(keys: str, dtype: str) -> str:
    return ", ".join(part for part in (keys if keys != "*" else "", dtype if dtype != "*" else "") if part)


def origin_lines(provenance: Provenance) -> list[tuple[str, str]]:
    """What is known of a recording's origin, as lines to read."""
    known = provenance.to_dict()
    further = known.pop("extra", {})
    return unfolded("", {**known, **further})


def passes_of(recording: Recording) -> Message:
    """The passes that a recording has."""
    passes = tuple(message("pass.named", name=Name(run)) if run else message("pass.plain") for run in recording.runs)
    return message("recording.passes", passes=passes) if passes else message("recording.no_passes")


def unfolded(name: str, value: Any) -> list[tuple[str, str]]:
    """A nested value as lines to read, each with its dotted name; what holds only plain values is one line."""
    parts = dict(enumerate(value)) if isinstance(value, (list, tuple)) else value
    if not isinstance(parts, Mapping):
        return [(name, _shown(value))]
    if name and not any(isinstance(one, (Mapping, list, tuple)) for one in parts.values()):
        text = ", ".join(map(_shown, value)) if isinstance(value, (list, tuple)) else _shown(value)
        return [(name, text)] if text else []
    return [line for part, one in parts.items() for line in unfolded(f"{name}.{part}" if name else str(part), one)]


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_shown(one)}" for name, one in value.items() if one is not None)
    return str(value)
