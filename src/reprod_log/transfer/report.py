"""The report of a transfer: what went where by which rule, how it was paired and checked, and what was left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from reprod_log.errors import TransferError, counted, listed
from reprod_log.messages import Message, Name, Words, message, words
from reprod_log.pairing.links import Link, WeightMap
from reprod_log.pairing.saved_map import link_steps
from reprod_log.pairing.units import Unit
from reprod_log.transfer.verification import Status

_WIDTH = 80


@dataclass(frozen=True)
class TransferRow:
    """One tensor of the target: which source tensors fill it, by which rule, how paired and how checked.

    `layer` is the target's layer and `source_layer` its partner. `reason` is what the check rests on or why there is
    none; `notes` state what was done to the values (transposed, cast).
    """

    target: str
    source: tuple[str, ...]
    rule: str
    how: str
    verified: Status
    reason: Message | None = None
    notes: tuple[Message, ...] = ()
    layer: str = ""
    source_layer: str = ""

    @classmethod
    def of(
        cls,
        link: Link,
        layers: tuple[Unit, Unit],
        verified: Status,
        reason: Message | None,
        notes: Iterable[Message],
        slot: str = "",
    ) -> TransferRow:
        """The row of a link between these units; `slot` is that of an optimizer's state, where this and not the weight
        was moved."""
        return cls(
            target=f"{link.target}{slot}",
            source=tuple(f"{name}{slot}" for name in link.sources),
            rule=layers[0].title,
            how=link.proof,
            verified=verified,
            reason=reason,
            notes=tuple(notes),
            layer=layers[1].path,
            source_layer=layers[0].path,
        )

    @property
    def note(self) -> str:
        """The notes in English."""
        return words()(self.notes)

    @property
    def check(self) -> str:
        """The reason in English."""
        return words()(self.reason or "")


@dataclass(frozen=True)
class TransferReport:
    """What a transfer did, or would do. `complete`: nothing was left on either side without being allowed to."""

    source_framework: str
    target_framework: str
    rows: tuple[TransferRow, ...]
    left_in_source: tuple[str, ...] = ()
    left_in_target: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    agreement: Message | None = None
    """How far the whole models agree, where both were run."""
    plan: WeightMap | None = field(default=None, repr=False, compare=False)
    model: Any = field(default=None, repr=False, compare=False)
    """The target with its new weights: the very model that was given, unless models of its framework are values."""

    @property
    def context(self) -> str:
        """The agreement in English."""
        return words()(self.agreement or "")

    @property
    def complete(self) -> bool:
        """Whether something was moved and nothing was left on either side."""
        return bool(self.rows) and not self.left_in_source and not self.left_in_target

    @property
    def differing(self) -> tuple[TransferRow, ...]:
        """Rows of layers that compute something else with the same weights."""
        return tuple(row for row in self.rows if row.verified == "differs")

    @property
    def unverified(self) -> tuple[TransferRow, ...]:
        """Rows that no run could check; `check` says why."""
        return tuple(row for row in self.rows if row.verified == "unverified")

    def raise_if_incomplete(self) -> None:
        """Raises TransferError if anything was left or any layer differs."""
        if not self.complete:
            raise TransferError(self._what_was_left())
        if self.differing:
            raise TransferError(self._what_differs())

    def _what_was_left(self) -> str:
        left = (*self.left_in_target, *self.left_in_source)
        if not left:
            return "Nothing to transfer: the two models have no tensor in common."
        parts = []
        if self.left_in_target:
            many = counted(len(self.left_in_target), "tensor")
            parts.append(f"{many} of the target cannot be filled: {listed(self.left_in_target)}.")
        if self.left_in_source:
            many = counted(len(self.left_in_source), "tensor")
            parts.append(f"{many} of the source have no place in the target: {listed(self.left_in_source)}.")
        why = dict.fromkeys(f"{reason}." for name in left if (reason := self.reasons.get(name)))
        # With inputs the order of execution was tried already.
        order = "inputs=... to go by execution order, " if self.agreement is None else ""
        advice = f"Pass rename={{...}}, {order}or allow_left=(...) to leave them on purpose."
        return " ".join([*parts, *list(why)[:5], advice])

    def _what_differs(self) -> str:
        layers = dict.fromkeys((row.layer, row.rule, row.check) for row in self.differing)
        parts = [f"{rule} '{path}' ({check})" for path, rule, check in list(layers)[:5]]
        more = f" and {len(layers) - 5} more" if len(layers) > 5 else ""
        return (
            f"With the same weights {len(layers)} of the layers compute something else: {', '.join(parts)}{more}. "
            "Fix the layer, or pass on_difference='report' to transfer the weights anyway."
        )

    def __str__(self) -> str:
        return self.text()

    def text(self, language: str = "en") -> str:
        """The report for a terminal of eighty columns, in a language."""
        render = words(language)
        lines = [self._head(render), *self._table(render), *self._tail(render)]
        return "\n".join(_shortened(line, _WIDTH) for line in lines)

    def _head(self, render: Words) -> str:
        counts = {status: sum(row.verified == status for row in self.rows) for status in _STATUSES}
        checks = tuple(message(f"transfer.{status}.count", count=count) for status, count in counts.items() if count)
        return render(
            message(
                "transfer.complete" if self.complete else "transfer.incomplete",
                source=self.source_framework,
                target=self.target_framework,
                count=len(self.rows),
                checks=checks or message("transfer.none"),
            )
        )

    def _table(self, render: Words) -> Iterator[str]:
        for (layer, source_layer), group in groupby(self.rows, key=lambda row: (row.layer, row.source_layer)):
            rows = list(group)
            yield _line(layer or rows[0].target, f"<- {source_layer or rows[0].source[0]}")
            first = rows[0]
            way = render.get(f"transfer.how.{first.how.replace(' ', '_')}")
            why = render(first.reason or "")
            parts = (first.rule, way, render.get(f"transfer.{first.verified}"), why)
            yield "    " + " · ".join(part for part in parts if part)
            for row in rows:
                if row.notes:
                    notes = render(row.notes)
                    yield "    " + _line(
                        row.target.removeprefix(f"{layer}."), f"<- {_names(row, source_layer)}: {notes}"
                    )

    def _tail(self, render: Words) -> Iterator[str]:
        yield from (render(message("transfer.left_in_target", name=Name(name))) for name in self.left_in_target)
        yield from (render(message("transfer.left_in_source", name=Name(name))) for name in self.left_in_source)
        yield from (render(message("transfer.left_on_purpose", name=Name(name))) for name in self.allowed)
        if self.agreement is not None:
            yield render(self.agreement)


def changes(link: Link) -> tuple[Message, ...]:
    """What is done to the values of a tensor on its way, if anything."""
    steps = link_steps(link)
    return () if steps == (message("view.as_is"),) else (message("view.done", steps=steps),)


_STATUSES: tuple[Status, ...] = ("verified", "unverified", "differs")


def _names(row: TransferRow, source_layer: str) -> str:
    return ", ".join(name.removeprefix(f"{source_layer}.") for name in row.source)


def _line(left: str, right: str) -> str:
    room = _WIDTH - 5
    if len(left) + 1 + len(right) > room:
        left = _shortened(left, max(room // 2, room - len(right)))
        right = _shortened(right, room - len(left))
    return f"{left} {right}"


def _shortened(text: str, width: int) -> str:
    """The text cut in the middle: the beginning and the end of a path say most."""
    if len(text) <= width:
        return text
    front = (width - 1) // 2
    return f"{text[:front]}…{text[len(text) - (width - 1 - front) :]}"
