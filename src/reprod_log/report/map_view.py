"""A weight map as rows that every face shows: each weight of the candidate, what it is made of, how, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reprod_log.messages import Message, Name, Names, Parts, message
from reprod_log.pairing.links import Link, WeightMap
from reprod_log.pairing.saved_map import link_steps
from reprod_log.report.writing import plain

if TYPE_CHECKING:
    from rich.console import Console

    from reprod_log.messages import Words

PROOFS = ("values", "stated", "name", "structure", "unproven")
_WIDE = 100
"""Columns from which a weight, its sources and its transform fit side by side."""


@dataclass(frozen=True)
class MapRow:
    """One link, for a reader."""

    target: str
    shape: str
    sources: tuple[str, ...]
    steps: Message
    proof: str

    @property
    def evidence(self) -> Message:
        return message(f"proof.{self.proof}")


def map_rows(weights: WeightMap | None) -> tuple[MapRow, ...]:
    """The links in the candidate's order; none where there is no map."""
    return () if weights is None else tuple(_row(link, weights) for link in weights.links)


def _row(link: Link, weights: WeightMap) -> MapRow:
    proof = "unproven" if link.target in weights.unproven else link.proof
    return MapRow(
        link.target,
        "×".join(map(str, link.shape)) or "scalar",
        link.sources,
        message("view.done", steps=link_steps(link)),
        proof if proof in PROOFS else "values",
    )


def map_headline(weights: WeightMap) -> Message:
    """What the map proves, in one sentence."""
    if not weights.agrees:
        return message("map.differs", count=len(weights.links))
    return message("map.crossed" if weights.crossings else "map.proven", count=len(weights.links))


def map_remarks(weights: WeightMap) -> tuple[Message, ...]:
    """On what evidence the map rests, what goes against names, and what is left on either side."""
    counts = Counter(row.proof for row in map_rows(weights))
    grounds = Parts(
        message("map.ground", count=counts[proof], proof=message(f"proof.{proof}")) for proof in PROOFS if counts[proof]
    )
    found = [message("map.grounds", grounds=grounds)] if grounds else []
    if weights.bounded and not weights.agrees:
        found.append(message("map.bounded"))
    found += [
        message("cause.crossed", one=Name(x.one), other=Name(x.other), two=Name(x.two), another=Name(x.another))
        for x in weights.crossings
    ]
    if weights.left_in_reference:
        found.append(message("map.left.reference", names=Names(weights.left_in_reference)))
    if weights.left_in_candidate:
        found.append(message("map.left.candidate", names=Names(weights.left_in_candidate)))
    return tuple(found)


def print_map(weights: WeightMap, console: Console, phrase: Words) -> None:
    """Print the map: a table where there is room, else each weight with what it is made of below it."""
    # Not at the top: reports that are files need no terminal.
    from rich.table import Table
    from rich.text import Text

    from reprod_log.report.terminal import folded, print_indented

    style = "green" if weights.agrees and not weights.crossings else "bold yellow"
    console.print(Text(plain(phrase(map_headline(weights))), style=style))
    for one in map_remarks(weights):
        print_indented(plain(phrase(one)), 2, console)
    rows = map_rows(weights)
    if console.width < _WIDE:
        for row in rows:
            # What most weights rest on stands above; here is what differs.
            proof = "" if row.proof == "values" else f"  [{phrase(row.evidence)}]"
            console.print(Text(f"{folded(plain(row.target), console.width - 12)}  {row.shape}"), soft_wrap=True)
            for source in row.sources:
                console.print(Text(f"  ← {folded(plain(source), console.width - 4)}"), soft_wrap=True)
            print_indented(f"{phrase(row.steps)}{proof}", 4, console, "dim")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("candidate", "shape", "reference", "map.transform", "map.evidence"):
        table.add_column(phrase.get(name), overflow="fold")
    for row in rows:
        sources = Text("\n".join(map(plain, row.sources)))
        table.add_row(Text(plain(row.target)), row.shape, sources, phrase(row.steps), phrase(row.evidence))
    console.print(table)
