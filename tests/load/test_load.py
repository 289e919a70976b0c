"""Small forms of the cases of load; `make load` runs them at full size."""

from pathlib import Path

import pytest

from load import cases


def test_thousands_of_entries_are_all_there_in_order(tmp_path: Path) -> None:
    cases.many_entries(tmp_path, 3000, steps=10)


def test_hundreds_of_steps_are_all_there_in_order(tmp_path: Path) -> None:
    cases.many_entries(tmp_path, 400, steps=200)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's memory figures")
def test_large_entry_is_compared_without_being_held_in_memory(tmp_path: Path) -> None:
    size = 1 << 29
    figures = cases.one_large_entry(tmp_path, size)
    assert figures.memory < 150, "less than a third of one side"


def test_recording_is_read_while_it_grows(tmp_path: Path) -> None:
    cases.read_while_it_grows(tmp_path, 60)


def test_threads_that_share_a_logger_lose_nothing(tmp_path: Path) -> None:
    cases.threads_on_one_logger(tmp_path, 64, 30)
