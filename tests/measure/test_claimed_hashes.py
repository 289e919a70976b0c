"""What a file claims of its contents is not believed where the contents can be read."""

from dataclasses import replace

import numpy as np

from reprod_log import Recording, align


def test_equal_hashes_do_not_hide_other_values() -> None:
    values = np.linspace(0, 1, 50, dtype=np.float32)
    ours, theirs = (Recording.from_arrays({"a": values + shift}) for shift in (0, 5))
    claimed = replace(theirs, entries=tuple(replace(one, hash="same") for one in theirs.entries))
    believed = replace(ours, entries=tuple(replace(one, hash="same") for one in ours.entries))
    assert not align(believed, claimed).passed
