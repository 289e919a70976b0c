"""Finding: a named cause, a doubt or a remark, with its evidence.

Causes and remarks never change a verdict. A doubt says that a pass proves nothing: it makes it NOT PROVEN.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from reprod_log.messages import Message, Name, Names, message, places, words
from reprod_log.recording import Key

Confidence = Literal["proven", "explained", "hint"]
"""proven: fixed in a copy, run again, and gone; explained: the numbers that it predicts are the candidate's; hint: all
else that is worth a look."""
Kind = Literal["cause", "hint", "doubt", "remark"]
_EARLIER = {"consistent": "explained", "possible": "hint"}
"""What the degrees were called before 2026-11-17."""
_CERTAINTY = {"proven": 0, "explained": 1, "hint": 2}
_WEIGHT = {"cause": 0, "hint": 1, "doubt": 2, "remark": 3}
_MOST_KEYS = 5


@dataclass(frozen=True)
class Fix:
    """What a re-run can change to prove a cause: settings of one layer of the candidate, or its weights."""

    layer: str
    """The reference's path."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """By the candidate's names; the values that would make it right."""
    weights: bool = False
    """Whether the reference's weights are to be given to it again."""
    back: Mapping[str, Any] = field(default_factory=dict)
    """By the reference's names: what would make it as wrong as the candidate, where the candidate cannot be changed."""


@dataclass(frozen=True)
class Finding:
    """What a hypothesis found: the cause, the numbers that support it, and what to do."""

    rule: str
    """The hypothesis' name, which stands in saved alignments."""
    cause: Message
    """One sentence a person can act on."""
    evidence: tuple[Message, ...] = ()
    confidence: Confidence = "hint"
    advice: tuple[Message, ...] = ()
    keys: tuple[Key, ...] = ()
    kind: Kind = "cause"
    fixes: tuple[Fix, ...] = ()
    """How a re-run with live models may prove it: one for each layer that it concerns."""
    agreeing: tuple[Key, ...] = ()
    """Entries that the evidence says match: unless each was compared and passed, the finding is not made."""
    patch: str = ""
    """A unified diff of the candidate's source that fixes it, where that was proven and is one line."""

    def __post_init__(self) -> None:
        if self.kind == "cause" and self.confidence == "hint":
            # What nothing proves or explains never stands in the place of a cause.
            object.__setattr__(self, "kind", "hint")
        elif self.kind == "hint" and self.confidence != "hint":
            object.__setattr__(self, "kind", "cause")

    @property
    def mistake(self) -> tuple[str, Message]:
        """What is the same for one mistake in many layers: the hypothesis, and its cause without their names."""
        return self.rule, without_places(self.cause)

    def sentences(self, language: str = "en") -> tuple[str, str, str]:
        """Cause, evidence and advice in the reader's language; '' where there is none."""
        told = words(language)
        return told(self.cause), told(self.evidence), told(self.advice)

    def text(self, language: str = "en") -> str:
        """All of it in the reader's language, a line each."""
        return "\n".join(filter(None, self.sentences(language)))

    def to_dict(self) -> dict[str, Any]:
        """As plain values: English sentences for readers, and beside them the messages that they are made from."""
        cause, evidence, advice = self.sentences()
        written = {
            "cause": self.cause.to_dict(),
            "evidence": [one.to_dict() for one in self.evidence],
            "advice": [one.to_dict() for one in self.advice],
        }
        only_text = all(one.id == "text" for one in (self.cause, *self.evidence, *self.advice))
        return {
            "rule": self.rule,
            "cause": cause,
            "evidence": evidence,
            "confidence": self.confidence,
            "advice": advice,
            "keys": [str(key) for key in self.keys],
            "kind": self.kind,
            "mends": [
                {"layer": fix.layer, "settings": dict(fix.settings), "weights": fix.weights} for fix in self.fixes
            ],
            **({"patch": self.patch} if self.patch else {}),
            **({} if only_text else {"messages": written}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Finding:
        """What `to_dict` wrote; the first edition wrote sentences alone, and before 2026-11-16 one fix or none and
        suspicious passes.
        """
        values = dict(data)
        if values.get("kind") == "suspicious pass":
            values["kind"] = "doubt"
        values["confidence"] = _EARLIER.get(values["confidence"], values["confidence"])
        values["keys"] = tuple(map(Key.parse, values.get("keys", ())))
        one = values.pop("mend", None)
        fixes = values.pop("mends", () if one is None else (one,))
        values["fixes"] = tuple(Fix(**fix) for fix in fixes)
        written = values.pop("messages", None)
        if written is None:
            written = {
                "cause": values["cause"],
                **{name: _texts(values.get(name, "")) for name in ("evidence", "advice")},
            }
        values["cause"] = Message.from_dict(written["cause"])
        for name in ("evidence", "advice"):
            values[name] = tuple(Message.from_dict(part) for part in written[name])
        return cls(**values)


@dataclass(frozen=True)
class What:
    """A part of a cause: a row of the table of findings by its id, with all arguments of its messages."""

    id: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    evidence: tuple[Message, ...] = ()
    """What supports it beside the messages of its row."""


def what(id: str, /, **arguments: object) -> What:
    return What(id, arguments)


def told(
    one: What | str,
    keys: Iterable[Key] = (),
    /,
    *,
    evidence: Message | Iterable[Message] = (),
    advice: Message | Iterable[Message] = (),
    sure: Confidence | None = None,
    kind: Kind | None = None,
    fixes: tuple[Fix, ...] = (),
    agreeing: tuple[Key, ...] = (),
    **arguments: object,
) -> Finding:
    """The finding that a row of the table describes; each of its messages takes the arguments that it has places for.

    A row has the rule, how sure it makes, and what supports and follows from it; `evidence` and `advice` come behind
    these. Where an argument is a row itself (a part of the cause that has several forms), its evidence comes first, and
    the finding is no surer than it.
    """
    table = _table()
    id, arguments = (one, arguments) if isinstance(one, str) else (one.id, {**arguments, **one.arguments})
    parts = [(part, table[part.id]) for part in arguments.values() if isinstance(part, What)]
    row = table[id]
    given = {name: _said(part) if isinstance(part, What) else part for name, part in arguments.items()}
    rows = [*((part.arguments, found) for part, found in parts), (given, row)]
    evidence, advice = ((more,) if isinstance(more, Message) else more for more in (evidence, advice))
    degrees = [found.get("sure", "explained") for _, found in rows] if sure is None else [sure]
    return Finding(
        row["rule"],
        _fitting(id, given),
        (
            *(_fitting(each, values) for values, found in rows for each in found.get("evidence", ())),
            *(more for part, _ in parts for more in part.evidence),
            *evidence,
        ),
        max(degrees, key=_CERTAINTY.__getitem__),
        (*(_fitting(each, values) for values, found in rows for each in found.get("advice", ())), *advice),
        tuple(keys),
        kind or row.get("kind", "cause"),
        fixes,
        agreeing,
    )


@lru_cache(maxsize=1)
def _table() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(Path(__file__).with_name("findings.json").read_text(encoding="utf-8"))
    return found


def _said(one: What) -> Message:
    return _fitting(one.id, one.arguments)


def _fitting(id: str, arguments: Mapping[str, object]) -> Message:
    """A message with those of the arguments that it has places for."""
    return Message(id, {name: arguments[name] for name in sorted(places(id))})


def _texts(sentence: str) -> tuple[str, ...]:
    return (sentence,) if sentence else ()


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Causes before doubts before remarks, each the surest first; one mistake in many layers is reported once."""
    return tuple(sorted(merged(findings), key=lambda one: (_WEIGHT[one.kind], _CERTAINTY[one.confidence], one.rule)))


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, those of the same mistake in different layers put together."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for one in findings:
        groups.setdefault((one.kind, one.confidence, *one.mistake), []).append(one)
    return [_together(group) for group in groups.values()]


def _together(group: Sequence[Finding]) -> Finding:
    first = group[0]
    if len(group) == 1:
        return first
    keys = dict.fromkeys(key for place in range(_MOST_KEYS) for one in group for key in one.keys[place : place + 1])
    return replace(
        first,
        cause=_of_all_places([one.cause for one in group]),
        advice=tuple(map(_of_all_places, zip(*(one.advice for one in group), strict=False))),
        keys=tuple(keys),
        fixes=tuple(fix for one in group for fix in one.fixes),
    )


def without_places(what: Message) -> Message:
    """The message with the names in it left out: what is left is the same for other layers."""
    kept = {name: value for name, value in what.arguments.items() if not isinstance(value, (Name, Names))}
    return Message(what.id, {name: without_places(v) if isinstance(v, Message) else v for name, v in kept.items()})


def _of_all_places(group: Sequence[Message]) -> Message:
    """Messages that differ only in their names as one that has all of them; the first if they differ otherwise."""
    first = group[0]
    if len({without_places(one) for one in group}) > 1:
        return first
    return Message(first.id, {name: _all_of([one.arguments[name] for one in group]) for name in first.arguments})


def _all_of(values: Sequence[object]) -> object:
    if isinstance(values[0], Message):
        return _of_all_places([one for one in values if isinstance(one, Message)])
    if not isinstance(values[0], (Name, Names)):
        return values[0]
    names = dict.fromkeys(
        name for one in values for name in ([one] if isinstance(one, Name) else one if isinstance(one, Names) else ())
    )
    return values[0] if len(names) == 1 else Names(names)


# Words that stand in many messages


def side(name: str) -> Message:
    """`reference` or `candidate`, as a word of a sentence."""
    return message("word.reference" if name == "reference" else "word.candidate")


def as_message(what: Message | str) -> Message:
    """A sentence that comes as text (from a file of the first edition) as a message."""
    return what if isinstance(what, Message) else Message.from_dict(what)
