"""Groups of entries: per step and phase, per layer and step, per module of the model. Each shows its worst member."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reprod_log.recording.key import OF_MODULES, OF_TENSORS, PHASES
from reprod_log.report.view import WHOLE, ReportRow, worst_status
from reprod_log.verdict import Status

_MODULE_PHASES = (*OF_MODULES, *OF_TENSORS)


@dataclass(frozen=True)
class Group:
    """The entries of one phase of one step (of one pass of the program)."""

    run: str
    step: int | None
    phase: str
    """'' for classic names."""
    rows: tuple[ReportRow, ...] = field(repr=False)

    @property
    def status(self) -> Status:
        return worst_status(row.status for row in self.rows)

    @property
    def counts(self) -> Counter[Status]:
        return Counter(row.status for row in self.rows)

    @property
    def worst(self) -> ReportRow:
        """The entry that is furthest beyond, or nearest to, its limit."""
        return max(self.rows, key=_badness)


def share(counts: Counter[Status]) -> str:
    """How many do not pass, of how many: 3/12; only how many there are where all pass."""
    bad = sum(count for status, count in counts.items() if not status.passed)
    return f"{bad}/{counts.total()}" if bad else str(counts.total())


def groups(rows: Iterable[ReportRow]) -> tuple[Group, ...]:
    """The entries by pass, step and phase, in the order in which they first occur."""
    found: dict[tuple[str, int | None, str], list[ReportRow]] = {}
    for row in rows:
        key = row.key
        found.setdefault((key.run, key.step, key.phase), []).append(row)
    return tuple(Group(*name, tuple(members)) for name, members in found.items())


@dataclass(frozen=True)
class HeatMap:
    """One phase, every layer at every step."""

    phase: str
    layers: tuple[str, ...]
    steps: tuple[int, ...]
    cells: Mapping[tuple[str, int], ReportRow] = field(repr=False)


def heat_maps(rows: Iterable[ReportRow]) -> tuple[HeatMap, ...]:
    """Layer × step for each phase of the program as it runs, all in one order: that in which the layers run.

    A phase with one step is worth a map too, if it has two layers.
    """
    cells: dict[str, dict[tuple[str, int], ReportRow]] = {}
    order: dict[str, int] = {}
    for row in rows:
        key = row.key
        if key.run or key.step is None or key.phase not in _MODULE_PHASES:
            continue
        role = key.printed_role
        if key.phase in OF_MODULES:
            if not role.startswith("output"):
                continue
            order.setdefault(key.path, len(order))
        name = (key.path or WHOLE) + (f":{role}" if role not in ("", "raw", "output") else "")
        cells.setdefault(key.phase, {})[name + (f" · {key.call + 1}" if key.call else ""), key.step] = row

    def place(row: ReportRow) -> tuple[int, int, str]:
        key = row.key
        module = key.path if key.phase in OF_MODULES else key.path.rpartition(".")[0]
        return order.get(module, len(order)), key.call or 0, key.path

    maps = []
    for phase, found in cells.items():
        layers = {layer: place(row) for (layer, _), row in found.items()}
        if len(found) > 1:
            maps.append(HeatMap(phase, tuple(sorted(layers, key=layers.__getitem__)), _steps(found), found))
    return tuple(sorted(maps, key=lambda one: PHASES.index(one.phase)))


@dataclass(frozen=True)
class ModuleGroup:
    """A module (or parameter, or other name) with everything below it."""

    name: str
    path: str
    status: Status
    counts: Counter[Status]
    worst: ReportRow
    layer_type: str
    partner: str
    """The candidate's path, where its name is not what the name of the module around it makes one expect."""
    rows: tuple[ReportRow, ...] = field(repr=False)
    """The entries of this very path."""
    children: tuple[ModuleGroup, ...] = field(repr=False)


def module_tree(rows: Iterable[ReportRow]) -> tuple[ModuleGroup, ...]:
    """The entries as a tree of their dotted paths; what belongs to no module stands under its phase: `(loss)`."""
    root: dict[str, _Branch] = {}
    for row in rows:
        level, branch = root, None
        for part in _parts(row):
            branch = level.setdefault(part, _Branch())
            level = branch.children
        if branch is not None:
            branch.rows.append(row)
    return tuple(_node(name, name, branch, name) for name, branch in root.items())


@dataclass
class _Branch:
    rows: list[ReportRow] = field(default_factory=list)
    children: dict[str, _Branch] = field(default_factory=dict)


def _parts(row: ReportRow) -> list[str]:
    key = row.key
    if key.phase and key.phase not in _MODULE_PHASES:
        return [f"({key.phase})", *filter(None, [key.path])]
    return key.path.split(".") if key.path else [WHOLE]


def _node(name: str, path: str, branch: _Branch, expected: str) -> ModuleGroup:
    partner = next((row.partner.path or WHOLE for row in branch.rows if row.partner is not None), expected)
    children = tuple(
        _node(part, f"{path}.{part}", child, f"{partner}.{part}") for part, child in branch.children.items()
    )
    counts = Counter(row.status for row in branch.rows)
    for child in children:
        counts += child.counts
    rows = tuple(branch.rows)
    return ModuleGroup(
        name=name,
        path=path,
        status=worst_status(counts),
        counts=counts,
        worst=max([*rows, *(child.worst for child in children)], key=_badness),
        layer_type=next((kind for row in rows if (kind := _layer_type(row))), ""),
        partner="" if partner == expected else partner,
        rows=rows,
        children=children,
    )


def _layer_type(row: ReportRow) -> str:
    """The class of the module itself; a parameter has its module's, which adds nothing."""
    known = row.compared is not None and row.key.phase in ("forward", "backward")
    return row.compared.layer_type if known and row.compared is not None else ""


def _badness(row: ReportRow) -> tuple[int, float, float]:
    times, relative = row.times_limit, row.number("rel_l2")
    return (
        int(not row.status.passed),
        -1.0 if times is None else times,
        math.inf if relative is not None and math.isnan(relative) else -1.0 if relative is None else relative,
    )


def _steps(cells: Iterable[tuple[str, int]]) -> tuple[int, ...]:
    return tuple(sorted({step for _, step in cells}))
