"""Options that several commands share, so that they read and behave the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprod_log.errors import UsageError

Limits = Annotated[
    list[str],
    typer.Option(
        "--limit",
        metavar="[KEYS=]METRIC:VALUE",
        help="Fixed limit, e.g. mean_abs:1e-6 or 'loss_*=max_rel:1e-5'; may be given several times.",
    ),
]
Renames = Annotated[
    list[str],
    typer.Option("--rename", metavar="OLD=NEW", help="The candidate calls NEW what the reference calls OLD."),
]
AllowUnmatched = Annotated[
    list[str],
    typer.Option("--allow-unmatched", metavar="PATTERN", help="Keys that may be missing on one side."),
]
Accept = Annotated[
    list[str],
    typer.Option(
        "--accept", metavar="PATTERN", help="Keys whose difference is known and accepted, e.g. '*running_var*'."
    ),
]
AllowIncomplete = Annotated[
    bool, typer.Option("--allow-incomplete", help="A recording that was cut short may pass with what it has.")
]
Dims = Annotated[
    list[str],
    typer.Option(
        "--dims",
        metavar="PATTERN=DIMS",
        help="How ranks split a tensor, e.g. 'fc.weight=o[tp] i': the marked axis lies in pieces on them. May be given "
        "several times.",
    ),
]
MeshSizes = Annotated[
    str | None,
    typer.Option(
        "--mesh",
        metavar="AXIS=SIZE,…",
        help="The axes that the ranks lie on, the outermost first, e.g. dp=2,tp=2; for ranks that were recorded "
        "without watch(mesh=…).",
    ),
]
EqualNan = Annotated[bool, typer.Option("--equal-nan", help="NaN on both sides at the same place counts as equal.")]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Let classic files run the code they contain; only for files you made yourself."),
]
Reports = Annotated[
    list[Path],
    typer.Option(
        "--report",
        metavar="FILE",
        help="Write a report; the suffix names the format: .html, .md, .json, .xml, .txt. May be given several times.",
    ),
]
Full = Annotated[
    bool, typer.Option("--full", help="Every entry in Markdown, text and JUnit reports, where they show what fails.")
]
Language = Annotated[str, typer.Option("--language", metavar="en|zh", help="The language of screen and reports.")]
ModuleTree = Annotated[bool, typer.Option("--tree", help="Show the modules as a tree with their statuses.")]
AllRows = Annotated[bool, typer.Option("--all", help="Show every entry, not only those that do not pass.")]


def rename_map(pairs: list[str]) -> dict[str, str]:
    """OLD=NEW texts as a map."""
    found: dict[str, str] = {}
    for text in pairs:
        old, equals, new = text.partition("=")
        if not equals or not old:
            raise UsageError(f"cannot read --rename {text!r}: write OLD=NEW, e.g. --rename fc=linear")
        found[old] = new
    return found
