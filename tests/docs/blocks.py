"""The fenced blocks of a page, with the remarks that stand above them as comments.

<!-- file: train.py -->        the block is written to that file in the page's folder
<!-- output -->                the block is what the block before it prints
<!-- with: two_models -->      names and files that the page does not show come from tests/docs/prepared.py
<!-- not run: why -->          the block cannot be run here
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUN = ("python", "console")
_REMARK = re.compile(r"^<!-- (file|output|with|not run)(?:: (.+?))? -->$")
_FENCE = re.compile(r"^(`{3,})(\S*)\s*$")
_NUMBER = re.compile(
    r"[-+]?\d+(?:\.\d+)?e[-+]\d+|[-+]?\d+\.\d+(?!\.\d)"
    # How many entries fail, and by how many floors, is another number on another processor.
    r"|\b\d{3,}\b|\b\d+(?= (?:fail\b|×))|(?<=fail; )\d+|\b\d+(?= of \d+ differences| differences)"
)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: Path
    line: int
    language: str
    text: str
    remarks: dict[str, str]

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Every page of the documentation, and the two that the repository opens with."""
    return [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    remarks: dict[str, str] = {}
    fence, language, start, lines = "", "", 0, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if fence:
            if line.strip() == fence:
                yield Block(page, start, language, "\n".join(lines) + "\n", remarks)
                fence, remarks = "", {}
            else:
                lines.append(line)
        elif found := _FENCE.match(line):
            fence, language, start, lines = found.group(1), found.group(2), number, []
        elif found := _REMARK.match(line):
            remarks[found.group(1)] = found.group(2) or ""
        elif line.strip():
            remarks = {}


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each `$ command` of a console block with the output shown below it."""
    command, shown = "", []
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, "\n".join(shown)
            command, shown = line[2:].partition("  #")[0].strip(), []
        else:
            shown.append(line)
    if command:
        yield command, "\n".join(shown)


def agrees(shown: str, real: str) -> bool:
    """Whether the shown output is the real one: any measured number for another, `…` for anything."""

    def normal(text: str) -> str:
        lines = [_NUMBER.sub("0.0", line.rstrip()) for line in text.strip("\n").splitlines()]
        # How columns are spaced depends on the numbers in them.
        return "\n".join(re.sub(r"(?<=\S) {2,}", "  ", line) for line in lines)

    pattern = "".join(".*" if part == "…" else re.escape(part) for part in re.split("(…)", normal(shown)))
    return re.fullmatch(pattern, normal(real), re.DOTALL) is not None


def code(text: str) -> str:
    """A block without its comments, to compare a translation with its original."""
    return "\n".join(re.sub(r"\s*#.*$", "", line) for line in text.splitlines())
