"""Causes with what they account for: the entries that do not pass because of each, and both programs' lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from reprod_log.alignment import Alignment
from reprod_log.diagnose import Finding
from reprod_log.messages import Code, Message, message
from reprod_log.recording import OF_TENSORS, Key
from reprod_log.report.view import ReportRow
from reprod_log.verdict import Status

_OF_LAYERS = ("forward", "backward")
_OF_TRAINING = ("gradient", "clip", "update", "optimizer")
"""Phases in which a mistake shows that no layer makes: what its layers compute in later steps is a consequence."""
_LINE = re.compile(r"(?P<file>[^:]+):(?P<line>[0-9]+)")
Place = tuple[str, str]
"""Where an entry belongs: ("layer", its path), or the phase and the name of what belongs to no layer."""


@dataclass(frozen=True)
class Cause:
    """One mistake, and the entries that do not pass because of it."""

    finding: Finding
    at: tuple[ReportRow, ...]
    """Entries of the layers that it names."""
    inherited: tuple[ReportRow, ...]
    """Later entries whose layer is not wrong by itself, as far as it ran alone; modules around its layers."""
    lines: tuple[tuple[str, str], ...]
    """`file:line` of the reference and of the candidate, for each layer; '' where one is not known."""

    @property
    def explained(self) -> int:
        return len(self.at) + len(self.inherited)

    @property
    def account(self) -> Message:
        """How many entries do not pass because of it: in its own layers, and after them."""
        return message("cause.explains", count=self.explained, at=len(self.at), inherited=len(self.inherited))

    @property
    def places(self) -> tuple[Message, ...]:
        """Where both programs have it: bert_torch.py:19 ↔ bert_paddle.py:23."""
        return tuple(
            message("cause.at", lines=Code(" ↔ ".join(filter(None, dict.fromkeys(pair))))) for pair in self.lines
        )

    @property
    def place(self) -> tuple[str, int] | None:
        """The file and line to change: of what the cause names, else where the candidate makes the layer."""
        made = ((file, int(line)) for _, theirs in self.lines for file, _, line in [theirs.rpartition(":")] if file)
        return next(iter((*source_lines(self.finding), *made)), None)

    @property
    def copied(self) -> str:
        """What to paste: the patch, else the code that its advice has in it; '' when it has none."""
        codes = (code for one in self.finding.advice for code in _codes(one))
        return self.finding.patch or "\n".join(dict.fromkeys(codes))


@dataclass(frozen=True)
class Causes:
    """All mistakes of an alignment, the surest first, and what none of them accounts for."""

    causes: tuple[Cause, ...]
    differences: int
    """Entries that do not pass."""
    ran_alone: bool
    """Whether layers ran alone, so that own errors are known from inherited ones."""

    @cached_property
    def explained(self) -> int:
        return sum(one.explained for one in self.causes)

    @cached_property
    def inherited(self) -> frozenset[Key]:
        return frozenset(row.key for one in self.causes for row in one.inherited)


def causes_of(alignment: Alignment, rows: Sequence[ReportRow], findings: Sequence[Finding]) -> Causes:
    """The mistakes of `findings` with the failing rows of each: at its layers, or later and not wrong alone.

    A row is inherited from the first cause that begins before it, unless its own layer fails when it runs alone.
    """
    failing = [row for row in rows if not row.status.passed]
    mistakes: dict[tuple[str, Message], Finding] = {}
    for one in findings:
        mistakes.setdefault(one.mistake, one)
    named = [_places(one) for one in mistakes.values()]
    begins = [_begin(places, one, failing) for places, one in zip(named, mistakes.values(), strict=True)]
    at: list[list[ReportRow]] = [[] for _ in mistakes]
    later: list[list[ReportRow]] = [[] for _ in mistakes]
    keys = [one.keys for one in mistakes.values()]
    here_of = [
        [number for number, one in enumerate(mistakes.values()) if _is_at(row, one, named[number], begins[number])]
        for row in failing
    ]
    alone = {_place(row.key) for row, here in zip(failing, here_of, strict=True) if row.key.run and not here}
    for row, here in zip(failing, here_of, strict=True):
        before = [number for number, begin in enumerate(begins) if not row.key.run and begin < row.place]
        if here:
            own = row.key in keys[here[0]] or _is_in(row.key, named[here[0]])
            (at if own else later)[here[0]].append(row)
        elif before and _place(row.key) not in alone and row.status not in (Status.UNMATCHED, Status.INCOMPARABLE):
            later[min(before, key=begins.__getitem__)].append(row)
    found = tuple(
        Cause(one, tuple(ours), tuple(theirs), _lines(alignment, one, places, rows))
        for one, places, ours, theirs in zip(mistakes.values(), named, at, later, strict=True)
    )
    return Causes(found, len(failing), any(row.key.run for row in rows))


def source_lines(found: Finding) -> tuple[tuple[str, int], ...]:
    """The files and lines that a finding names, in its order."""
    lines = (_LINE.match(line) for one in (found.cause, *found.evidence, *found.advice) for line in _named(one))
    return tuple(dict.fromkeys((line["file"], int(line["line"])) for line in lines if line))


def _places(found: Finding) -> set[Place]:
    # A key without a phase is the name of a layer, or of an entry of a plain log, which has no layers.
    layers = [fix.layer for fix in found.fixes] + [key.path for key in found.keys if not key.phase]
    return {_narrow_place(key) for key in found.keys} | {("layer", path) for path in layers}


def _is_in(key: Key, places: set[Place]) -> bool:
    """Whether the entry belongs to one of the places: to a layer with all its phases, or to one phase of it."""
    return not places.isdisjoint((_place(key), _narrow_place(key)))


def _narrow_place(key: Key) -> Place:
    kind, path = _place(key)
    return (key.phase if key.phase in _OF_TRAINING else kind), path


def _place(key: Key) -> Place:
    if key.region is not None:
        return "layer", key.region
    if key.phase in _OF_LAYERS:
        return "layer", key.path
    if key.phase in OF_TENSORS:
        return "layer", key.path.rpartition(".")[0]
    return key.phase, key.path


def _begin(places: set[Place], found: Finding, failing: Sequence[ReportRow]) -> float:
    """Where the cause first shows in the program as it runs: at an entry that it names, else at one of its layers."""
    keys = {key.in_run("") for key in found.keys}
    plain = [row for row in failing if not row.key.run]
    exact = (row.place for row in plain if row.key in keys)
    return min(exact, default=min((row.place for row in plain if _is_in(row.key, places)), default=float("inf")))


def _is_at(row: ReportRow, found: Finding, places: set[Place], begin: float) -> bool:
    """Whether it is an entry that the cause names, or one of its layers from there on."""
    if row.key in found.keys:
        return True
    if row.status in (Status.UNMATCHED, Status.INCOMPARABLE) or (not row.key.run and row.place < begin):
        return False
    kind, path = _place(row.key)
    inside = f"{path}." if path else ""
    # A module is wrong alone, too, when a layer inside it is.
    around = row.key.run and kind == "layer" and any(of == kind and name.startswith(inside) for of, name in places)
    return _is_in(row.key, places) or bool(around)


def _lines(
    alignment: Alignment, found: Finding, places: set[Place], rows: Sequence[ReportRow]
) -> tuple[tuple[str, str], ...]:
    named = [fix.layer for fix in found.fixes] + [key.path for key in found.keys if key.phase in _OF_LAYERS]
    layers = dict.fromkeys(path for path in named if ("layer", path) in places)
    partners = {_place(row.key)[1]: _place(row.partner)[1] for row in rows if row.partner is not None}
    ours, theirs = alignment.reference.lines, alignment.candidate.lines
    pairs = [(ours.get(path, ""), theirs.get(partners.get(path, path), "")) for path in layers]
    return tuple(dict.fromkeys(pair for pair in pairs if any(pair)))


def _codes(what: object) -> Iterator[str]:
    """The pieces of code in a message and in the messages inside it."""
    values = what.arguments.values() if isinstance(what, Message) else what if isinstance(what, tuple) else ()
    for value in values:
        if isinstance(value, Code):
            yield value
        else:
            yield from _codes(value)


def _named(what: object) -> Iterator[str]:
    """The arguments called `line` of a message and of the messages inside it."""
    if isinstance(what, Message):
        for name, value in what.arguments.items():
            if name == "line" and isinstance(value, Code):
                yield value
            yield from _named(value)
    elif isinstance(what, tuple):
        for one in what:
            yield from _named(one)
