"""Long tables of slow rows: the usual run takes a sample, `make test WHOLE=1` every row and what is marked `whole`."""

import os
from collections.abc import Iterable

WHOLE = bool(os.environ.get("WHOLE"))


def sampled(names: Iterable[str], every: int) -> list[str]:
    """Every so manyth row. Tables are ordered by theme, so each theme is among them."""
    return list(names)[:: 1 if WHOLE else every]
