"""The search for cycles, which reading and comparing put off, is afterwards as the program had it."""

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from reprod_log import Recording, align


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    # The suite has frozen what it had loaded.
    gc.unfreeze()
    gc.enable()
    yield
    gc.enable()
    gc.freeze()


def compare(folder: Path) -> None:
    for name in ("reference", "candidate"):
        # So many that they are not searched at once.
        Recording.from_arrays({f"x{i}": np.ones(3) for i in range(3000)}).save(folder / name)
    assert align(folder / "reference", folder / "candidate").passed


def test_collecting_goes_on_afterwards(tmp_path: Path) -> None:
    compare(tmp_path)
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_collecting_stays_off_where_it_was_off(tmp_path: Path) -> None:
    gc.disable()
    compare(tmp_path)
    assert not gc.isenabled()


def test_what_a_program_has_frozen_stays_frozen(tmp_path: Path) -> None:
    gc.freeze()
    before = gc.get_freeze_count()
    compare(tmp_path)
    # What is frozen may still end by itself; thawed, all of it would be gone from the count.
    assert gc.get_freeze_count() > 0.9 * before > 0
