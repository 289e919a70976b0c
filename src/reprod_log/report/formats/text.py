"""Plain text: the first screen, for failure messages, pipes and notebooks."""

from __future__ import annotations

from reprod_log.alignment import Alignment
from reprod_log.report.view import Row, divergence_lines, headline, remarks, rows

SUFFIXES = (".txt", ".log")

_MOST_ROWS = 20


def render(alignment: Alignment) -> str:
    lines = [plain(headline(alignment))]
    lines += [f"  {plain(line)}" for line in divergence_lines(alignment)]
    everything = rows(alignment)
    failed = [row for row in everything if not row.status.passed]
    if failed:
        lines.append("")
        lines += [_line(row) for row in failed[:_MOST_ROWS]]
        if len(failed) > _MOST_ROWS:
            lines.append(f"  … and {len(failed) - _MOST_ROWS} more")
    notes = [*remarks(alignment), *(f"{found.cause} ({found.evidence})" for found in alignment.findings)]
    if notes:
        lines += ["", *(f"note: {plain(note)}" for note in notes)]
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """The text with control characters made visible, so that a key cannot write on the reader's screen."""
    return "".join(c if c.isprintable() or c == " " else f"\\x{ord(c):02x}" for c in text)


def _line(row: Row) -> str:
    return f"  {row.status.value:<12} {plain(row.key)}: {plain(row.judgement.reason)}"
