"""Long tables of slow rows: the usual run takes a sample, `make test WHOLE=1` every row and what is marked `whole`."""

import os
from collections.abc import Iterable
from typing import TypeVar

WHOLE = bool(os.environ.get("WHOLE"))
Row = TypeVar("Row")


def sampled(rows: Iterable[Row], every: int, first: int = 0) -> list[Row]:
    """Every so manyth row, from the first on. Tables are ordered by theme, so each theme is among them."""
    return list(rows) if WHOLE else list(rows)[first::every]
