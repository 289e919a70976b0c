"""The report of a transfer: what went where by which rule, how it was paired and checked, and what was left."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from reprod_log.errors import TransferError, counted, listed
from reprod_log.messages import Message, words
from reprod_log.pairing.weight_map import TransferPlan
from reprod_log.transfer.verification import Status

_WIDTH = 80


@dataclass(frozen=True)
class TransferRow:
    """One tensor of the target: which source tensors fill it, by which rule, how paired and how checked.

    `layer` is the target's layer and `source_layer` its partner. `check` says what the check rests on or why there is
    none; `notes` state what was done to the values (transposed, cast).
    """

    target: str
    source: tuple[str, ...]
    rule: str
    how: str
    verified: Status
    check: str = ""
    notes: tuple[Message, ...] = ()
    layer: str = ""
    source_layer: str = ""

    @property
    def note(self) -> str:
        """The notes in English."""
        return words()(self.notes)


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
    context: str = ""
    doubts: tuple[Message, ...] = ()
    """What was taken for granted and may be why the models differ."""
    plan: TransferPlan | None = field(default=None, repr=False, compare=False)
    model: Any = field(default=None, repr=False, compare=False)
    """The target with its new weights: the very model that was given, unless models of its framework are values."""

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
            parts.append(
                f"{_tensors(self.left_in_target)} of the target cannot be filled: {listed(self.left_in_target)}."
            )
        if self.left_in_source:
            parts.append(f"{_tensors(self.left_in_source)} of the source find no place: {listed(self.left_in_source)}.")
        why = dict.fromkeys(f"{reason}." for name in left if (reason := self.reasons.get(name)))
        advice = "Pass rename={...}, inputs=... to go by execution order, or allow_left=(...) to leave them on purpose."
        return " ".join([*parts, *list(why)[:5], advice])

    def _what_differs(self) -> str:
        layers = dict.fromkeys((row.layer, row.rule, row.check) for row in self.differing)
        parts = [f"{rule} '{path}' ({check})" for path, rule, check in list(layers)[:5]]
        more = f" and {len(layers) - 5} more" if len(layers) > 5 else ""
        return (
            f"With the same weights {len(layers)} of the layers compute something else: {', '.join(parts)}{more}. "
            "Fix the layer, or pass on_difference='report' to move the weights all the same."
        )

    def __str__(self) -> str:
        lines = [self._head(), *self._table(), *self._tail()]
        return "\n".join(_shortened(line, _WIDTH) for line in lines)

    def _head(self) -> str:
        counts = {status: sum(row.verified == status for row in self.rows) for status in _STATUSES}
        parts = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        state = "complete" if self.complete else "INCOMPLETE"
        return (
            f"{self.source_framework} -> {self.target_framework}: {counted(len(self.rows), 'tensor')}, "
            f"{parts or 'none'}; {state}"
        )

    def _table(self) -> Iterator[str]:
        for (layer, source_layer), group in groupby(self.rows, key=lambda row: (row.layer, row.source_layer)):
            rows = list(group)
            yield _line(layer or rows[0].target, f"<- {source_layer or rows[0].source[0]}")
            first = rows[0]
            yield "    " + " · ".join(part for part in (first.rule, first.how, first.verified, first.check) if part)
            for row in rows:
                if row.note:
                    yield "    " + _line(
                        row.target.removeprefix(f"{layer}."), f"<- {_names(row, source_layer)}: {row.note}"
                    )

    def _tail(self) -> Iterator[str]:
        yield from (f"left in the target: {name}" for name in self.left_in_target)
        yield from (f"left in the source: {name}" for name in self.left_in_source)
        yield from (f"left on purpose: {name}" for name in self.allowed)
        if self.context:
            yield self.context


_STATUSES: tuple[Status, ...] = ("verified", "unverified", "differs")


def _tensors(names: tuple[str, ...]) -> str:
    return f"{len(names)} tensor{'s' if len(names) > 1 else ''}"


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
