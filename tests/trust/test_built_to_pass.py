"""Every pair of the table is refused: none passes, in memory and through a file and a saved alignment."""

from pathlib import Path

import pytest

from reprod_log import Alignment, align
from reprod_log.errors import ReprodLogError
from reprod_log.recording.stores import load, save
from trust.built_to_pass import Row, rows

ROWS = rows()


def passes(row: Row) -> bool:
    try:
        return align(row.reference, row.candidate, **row.options).passed
    except ReprodLogError:
        # Refused with a reason, which is not a pass.
        return False


def test_table_is_large_and_its_names_are_different() -> None:
    assert len(ROWS) >= 100
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(row.why for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name.replace(" ", "_"))
def test_pair_built_to_pass_does_not(row: Row) -> None:
    assert not passes(row), row.why


@pytest.mark.parametrize("suffix", ["", ".safetensors", ".npz"])
def test_no_pair_passes_after_it_was_saved(tmp_path: Path, suffix: str) -> None:
    kept = 0
    for number, row in enumerate(ROWS):
        places = [tmp_path / f"{number}_{side}{suffix}" for side in ("ref", "port")]
        try:
            ours, theirs = (
                load(save(one, place)) for one, place in zip((row.reference, row.candidate), places, strict=True)
            )
        except ReprodLogError:
            continue
        kept += 1
        assert not passes(Row(row.name, row.why, ours, theirs, row.options)), (row.name, row.why)
    assert kept > 100


def test_no_pair_passes_when_its_alignment_is_read_again(tmp_path: Path) -> None:
    for row in ROWS:
        try:
            found = align(row.reference, row.candidate, **row.options)
        except ReprodLogError:
            continue
        assert not Alignment.load(found.save(tmp_path / "a.json")).passed, (row.name, row.why)
