"""Parts of Markdown: text and names that stay text, and tables that can be cut to a length."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from reprod_log.recording import Key
from reprod_log.report.plain import plain, shortened

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$])")
_LONGEST_NAME = 120
_LONGEST_TEXT = 1000


def code(name: str | Key) -> str:
    """A name as a code span inside a table cell: nothing in it is a link, a mention, HTML or the end of the cell."""
    text = shortened(plain(name), _LONGEST_NAME).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    return f"{fence}{space}{text}{space}{fence}"


def text(value: str) -> str:
    """Running text inside a table cell with every sign that Markdown or GitHub would act on made harmless."""
    safe = _SPECIAL.sub(r"\\\1", shortened(plain(value), _LONGEST_TEXT).replace("&", "&amp;"))
    # Mentions, issue numbers and bare addresses are made from the finished text, which an escape does not change.
    safe = safe.replace("@", "@\u200b").replace("#", "#\u200b").replace("://", "&#58;//")
    return re.sub(r"(?i)\bwww\.", "www&#46;", safe)


@dataclass(frozen=True)
class Section:
    """A heading and a table below it, whose last rows may be cut."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: int = 0
    """How many of the last columns hold numbers."""
    short: int = 20
    """How many rows the short form shows."""
    long: bool = False
    """Whether it takes only the space that the others leave."""

    def cut(self, rows: int) -> Section:
        return replace(self, rows=self.rows[:rows])

    def render(self, note: str = "") -> str:
        sides = ["---"] * (len(self.columns) - self.right) + ["---:"] * self.right
        lines = [f"### {self.title}", ""] if self.title else []
        lines += [_row(self.columns), _row(sides), *map(_row, self.rows), ""]
        return "\n".join([*lines, note, ""] if note else lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
