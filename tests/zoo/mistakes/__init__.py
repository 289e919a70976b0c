"""Planted mistakes, a table of rows for each theme: `MISTAKES`.

No file here has a name that holds one of the expected words: reports name files.
"""

from zoo.mistakes import architectures, graphs, loops, losses, optimizers, programs, schedules, settings, weights
from zoo.trial import Mistake

TABLES = (settings, graphs, weights, optimizers, schedules, losses, loops, programs, architectures)


def all_mistakes() -> dict[str, Mistake]:
    """Every mistake by its name, in alphabetical order."""
    rows = [row for table in TABLES for row in table.MISTAKES]
    found = {row.name: row for row in sorted(rows, key=lambda row: row.name)}
    assert len(found) == len(rows), "two mistakes of one name"
    return found
