"""Merging: one mistake in many layers is one finding that names them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from reprod_log.diagnose.finding import Finding

_MOST_NAMES = 4
_MOST_KEYS = 5


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, those that say the same of different layers put together."""
    groups: dict[tuple[str, str, str, str], list[Finding]] = {}
    for one in findings:
        groups.setdefault((one.rule, one.kind, one.confidence, one.without_names), []).append(one)
    return [_together(group) for group in groups.values()]


def _together(group: Sequence[Finding]) -> Finding:
    first = group[0]
    if len(group) == 1:
        return first
    keys = dict.fromkeys(key for place in range(_MOST_KEYS) for one in group for key in one.keys[place : place + 1])
    return replace(
        first,
        cause=_one_text([one.cause for one in group]),
        advice=_one_text([one.advice for one in group]),
        keys=tuple(keys),
        mends=tuple(mend for one in group for mend in one.mends),
    )


def _one_text(texts: Sequence[str]) -> str:
    """The texts as one, with all of their words where they differ; the first when they are built differently."""
    split = [text.split(" ") for text in texts]
    if len({len(words) for words in split}) != 1:
        return texts[0]
    return " ".join(_names(list(dict.fromkeys(words))) for words in zip(*split, strict=True))


def _names(words: Sequence[str]) -> str:
    if len(words) == 1:
        return words[0]
    ends = {word[len(word.rstrip(",;:)")) :] for word in words}
    end = ends.pop() if len(ends) == 1 else ""
    names = [word.removesuffix(end) for word in words]
    more = f", … ({len(names)})" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more + end
