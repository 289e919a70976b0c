"""Alignments saved packed (.json.gz): the same when read back, a fraction of the size, and no trap for readers."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from reprod_log import Recording, align
from reprod_log.alignment import Alignment
from reprod_log.errors import UnreadableFile
from reprod_log.report.serve.listing import Listing


@pytest.fixture(scope="module")
def alignment() -> Alignment:
    rows = np.random.default_rng(0).standard_normal((40, 8, 8))
    rows[3, 0, 0] = np.nan
    ours = Recording.from_arrays({f"layer{number}": row for number, row in enumerate(rows)})
    theirs = Recording.from_arrays({f"layer{number}": row + 1e-9 for number, row in enumerate(rows)})
    return align(ours, theirs)


def test_packed_is_the_same_alignment_in_a_fraction_of_the_size(alignment: Alignment, tmp_path: Path) -> None:
    plain, packed = alignment.save(tmp_path / "a.json"), alignment.save(tmp_path / "a.json.gz")
    assert Alignment.load(packed).to_json() == Alignment.load(plain).to_json() == alignment.to_json()
    assert packed.stat().st_size * 3 < plain.stat().st_size
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()


def test_equal_alignments_are_equal_files(alignment: Alignment, tmp_path: Path) -> None:
    first, second = (alignment.save(tmp_path / f"{name}.json.gz") for name in "ab")
    assert first.read_bytes() == second.read_bytes()


def test_a_file_that_was_cut_off_is_unreadable(alignment: Alignment, tmp_path: Path) -> None:
    path = alignment.save(tmp_path / "a.json.gz")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UnreadableFile, match=r"cannot read .*a\.json\.gz"):
        Alignment.load(path)


def test_a_file_with_other_bytes_inside_is_unreadable(alignment: Alignment, tmp_path: Path) -> None:
    path = alignment.save(tmp_path / "a.json.gz")
    content = bytearray(path.read_bytes())
    content[200:300] = bytes(100)
    path.write_bytes(content)
    with pytest.raises(UnreadableFile):
        Alignment.load(path)


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * (1 << 27), 9))
    with pytest.raises(UnreadableFile, match="unpacks to more than"):
        Alignment.load(path)


def test_the_server_lists_packed_alignments_and_nothing_that_only_looks_like_one(
    alignment: Alignment, tmp_path: Path
) -> None:
    alignment.save(tmp_path / "a.json.gz")
    (tmp_path / "b.json.gz").write_bytes(b"\x1f\x8b no more")
    (tmp_path / "c.json.gz").write_bytes(gzip.compress(b'{"something": "else"}'))
    found = Listing(tmp_path).items()
    assert [(one.name, one.status) for one in found] == [("a.json.gz", str(alignment.status))]
