"""Every reader on mutated files: refused with an error of reprod_log or read, and never more than the file is worth."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.seeds import seeds
from fuzz.targets import PART, TARGETS, check_size

CORPUS = Path(__file__).with_name("corpus")
WORDS = (b"[]", b"{}", b"null", b"-1", b"1e999", b"\xff" * 8, b"\0" * 4, b"99999999999", PART, b'"x"', b"[[[[", b"Ob.")

mutation = st.tuples(
    st.integers(0, 4000), st.integers(0, 12), st.one_of(st.binary(max_size=8), st.sampled_from(WORDS), st.none())
)


def mutated(content: bytes, changes: list[tuple[int, int, bytes | None]]) -> bytes:
    """At each place so many bytes are replaced; None repeats the following ones instead."""
    for place, length, new in changes:
        place %= len(content) + 1
        part = content[place : place + 40] * 2 if new is None else new
        content = content[:place] + part + content[place + length :]
    return content


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_files_that_once_broke_a_reader_are_refused_or_read(name: str) -> None:
    kept = sorted((CORPUS / name).iterdir())
    assert kept
    for path in kept:
        TARGETS[name](path.read_bytes())


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_reader_lets_no_other_error_out_when_a_file_is_mutated(name: str) -> None:
    starts = list(seeds()[name].values())

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(starts), st.lists(mutation, min_size=1, max_size=6))
    def holds(start: bytes, changes: list[tuple[int, int, bytes | None]]) -> None:
        TARGETS[name](mutated(start, changes))

    holds()


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_honest_seed_is_the_one_in_the_corpus(name: str) -> None:
    """The corpora are small and made by seeds.py; what is not in there is a file that once broke the reader."""
    for seed in seeds()[name]:
        assert (CORPUS / name / seed).is_file()
    assert sum(path.stat().st_size for path in (CORPUS / name).iterdir()) < 40_000


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_target_notices_a_foreign_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that catches everything would find nothing."""

    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    readers = ("load", "read_pickle", "read_weights", "Alignment", "Key", "exit_code_of")
    for reader in readers:
        replaced: object = fails
        if reader in ("Alignment", "Key"):
            replaced = type(reader, (), {"load": staticmethod(fails), "parse": staticmethod(fails)})
        monkeypatch.setattr(f"fuzz.targets.{reader}", replaced)
    with pytest.raises(ZeroDivisionError):
        TARGETS[name](next(iter(seeds()[name].values())))


def test_array_far_larger_than_its_file_is_noticed() -> None:
    check_size(np.zeros(1000), 500)
    with pytest.raises(MemoryError):
        check_size(np.broadcast_to(np.zeros(1), 1 << 20), 100)


def test_every_target_has_its_seeds() -> None:
    targets: dict[str, Callable[[bytes], None]] = TARGETS
    assert set(targets) == set(seeds()) == {path.name for path in CORPUS.iterdir()}
