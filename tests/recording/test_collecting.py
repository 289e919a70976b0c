"""The search for cycles that is put off: it goes on afterwards, and what was made meanwhile is not searched at once."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from reprod_log.recording.entry import gc_paused


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    gc.enable()
    gc.collect()
    yield
    gc.unfreeze()
    gc.enable()


class Circle:
    def __init__(self) -> None:
        self.itself = self


def test_collecting_goes_on_after_the_block() -> None:
    with gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collecting_stays_off_where_it_was_off() -> None:
    gc.disable()
    with gc_paused():
        pass
    assert not gc.isenabled()


def test_what_was_made_meanwhile_is_old_and_still_found_when_it_is_garbage() -> None:
    with gc_paused():
        kept = [Circle() for _ in range(5000)]
    assert gc.get_count()[0] < 1000
    assert gc.get_freeze_count() == 0
    seen = weakref.ref(kept[0])
    del kept
    gc.collect()
    assert seen() is None


def test_what_a_program_has_frozen_stays_frozen() -> None:
    gc.freeze()
    before = gc.get_freeze_count()
    with gc_paused():
        pass
    assert gc.get_freeze_count() == before > 0
