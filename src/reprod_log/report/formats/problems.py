"""Problems: `path:line: error: cause`, one per line, as editors and problem matchers read them."""

from __future__ import annotations

from reprod_log.alignment import Alignment
from reprod_log.messages import words
from reprod_log.report import USUAL, Options
from reprod_log.report.first_screen import FirstScreen
from reprod_log.report.writing import plain

SUFFIXES = (".problems",)


def render(alignment: Alignment, options: Options = USUAL) -> str:
    """Each cause at the line to change, with what to do; the verdict at the candidate where no line is known."""
    phrase, screen = words(options.language), FirstScreen(alignment)
    if screen.passed:
        return ""
    whole = plain(alignment.candidate.source) or "candidate", 1
    texts = [
        (one.place or whole, "; ".join(map(phrase, (one.finding.cause, *one.finding.advice))))
        for one in screen.shown_causes
    ]
    lines = texts or [(whole, phrase(screen.headline))]
    return "".join(f"{plain(file)}:{line}: error: {plain(text)}\n" for (file, line), text in lines)
