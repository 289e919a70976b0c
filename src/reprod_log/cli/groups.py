"""Groups of options, for commands that have a verdict; apart from the others, because those need no engine to start.

A command whose parameter has one of these as its type offers all options in it (cli/app.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reprod_log.alignment import AlignOptions
from reprod_log.cli.options import (
    Accept,
    AllowIncomplete,
    AllowUnmatched,
    AllowUnproven,
    AllRows,
    EqualNan,
    Language,
    Limits,
    ModuleTree,
    Reports,
    SaveAs,
    SinceFile,
)
from reprod_log.messages import words
from reprod_log.report import format_of


@dataclass(frozen=True)
class Judging:
    """What is allowed to differ, and by how much."""

    limit: Limits = field(default_factory=list)
    allow_unmatched: AllowUnmatched = field(default_factory=list)
    accept: Accept = field(default_factory=list)
    allow_incomplete: AllowIncomplete = False
    allow_unproven: AllowUnproven = False
    equal_nan: EqualNan = False

    def options(self, **others: Any) -> AlignOptions:
        """The options of a comparison that is judged like this."""
        return AlignOptions.of(
            limits=self.limit,
            allow_unmatched=self.allow_unmatched,
            accept=self.accept,
            allow_incomplete=self.allow_incomplete,
            allow_unproven=self.allow_unproven,
            equal_nan=self.equal_nan,
            **others,
        )


@dataclass(frozen=True)
class Output:
    """Where the answer of a command goes besides the screen, and how much of it is shown."""

    json: SaveAs = None
    since: SinceFile = None
    report: Reports = field(default_factory=list)
    language: Language = "en"
    tree: ModuleTree = False
    all_rows: AllRows = False

    def __post_init__(self) -> None:
        # A suffix or a language that there is not is refused before any long work begins.
        words(self.language)
        for path in self.report:
            format_of(path)
