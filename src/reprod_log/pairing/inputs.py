"""Which argument of one module is which of the other's, when two authors wrote the modules."""

from __future__ import annotations

from collections.abc import Sequence

from reprod_log.pairing.values import SAME, gap
from reprod_log.recording import Entry


def input_partner(entry: Entry, given: Sequence[Entry]) -> Entry | None:
    """The argument on the other side that is this one: by role where that fits, else by values.

    None when there is none of this shape: the other module takes other arguments.
    """
    fitting = [one for one in given if one.shape == entry.shape]
    same_role = next((one for one in fitting if one.key.role == entry.key.role), None)
    if len(fitting) == 1 and same_role is not None:
        return same_role
    by_value = [one for one in fitting if gap(entry, one) < SAME]
    if same_role is not None:
        return same_role if same_role in by_value or len(by_value) != 1 else by_value[0]
    return by_value[0] if by_value else None
