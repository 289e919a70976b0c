"""The spool: arrays in temporary files, each content once, gone with the last array; refusals."""

from __future__ import annotations

import errno
import gc
import sys
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from reprod_log.errors import UsageError, WriteFailed
from reprod_log.recording import spool as spools
from reprod_log.recording.entry import content_hash
from reprod_log.recording.spool import Spool, open_spool

VALUES = np.random.default_rng(0).standard_normal((50, 100)).astype(np.float32)
ON_LINUX = sys.platform == "linux"


def mapped_files() -> int:
    return sum(
        "reprod_log-" in line or "(deleted)" in line for line in Path("/proc/self/maps").read_text().splitlines()
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "complex64", ml_dtypes.bfloat16])
def test_kept_values_are_those_of_the_moment(tmp_path: Path, dtype: str) -> None:
    given = VALUES.astype(dtype)
    before = given.copy()
    kept = Spool(tmp_path).keep(given)
    given[:] = 0
    assert kept.dtype == before.dtype
    assert kept.tobytes() == before.tobytes()
    assert not kept.flags.writeable


def test_transposed_arrays_are_straightened(tmp_path: Path) -> None:
    kept = Spool(tmp_path).keep(VALUES.T)
    assert kept.flags.c_contiguous
    assert np.array_equal(kept, VALUES.T)


def test_equal_content_is_written_once(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    kept = [spool.keep(one, content_hash(one)) for one in (VALUES, VALUES.copy(), VALUES + 1)]
    assert kept[0] is kept[1]
    assert spool.written == 2 * VALUES.nbytes


def test_small_arrays_stay_in_memory(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    given = np.ones(3)
    kept = spool.keep(given)
    given[:] = 2
    assert spool.written == 0
    assert kept.tolist() == [1, 1, 1]


def test_arrays_beyond_a_file_begin_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "_FIRST_FILE", 25_000)
    monkeypatch.setattr(spools, "_LARGEST_FILE", 50_000)
    spool = Spool(tmp_path)
    wanted = [VALUES + number for number in range(8)]
    kept = [spool.keep(one) for one in wanted]
    assert all(np.array_equal(one, other) for one, other in zip(kept, wanted, strict=True))


def test_nothing_is_seen_in_the_folder(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    kept = spool.keep(VALUES)
    assert list(tmp_path.iterdir()) == []
    assert kept.size


def test_a_file_goes_with_its_last_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ON_LINUX
    monkeypatch.setattr(spools, "_FIRST_FILE", 20_000)
    spool, before = Spool(tmp_path), mapped_files()
    kept = spool.keep(VALUES)
    part = kept[3]
    spool.close()
    del kept
    gc.collect()
    assert mapped_files() == before + 1
    assert np.array_equal(part, VALUES[3])
    del part
    gc.collect()
    assert mapped_files() == before


def test_pages_that_were_given_back_are_read_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    kept = spool.keep(VALUES)
    spool.settle()
    assert np.array_equal(kept, VALUES)


class Full:
    """A disk that takes so many bytes and then no more."""

    def __init__(self, room: int) -> None:
        self.room, self.make = room, tempfile.TemporaryFile

    def __call__(self, **options: object) -> object:
        file, disk = self.make(**options), self  # type: ignore[call-overload]

        class File:
            fileno, truncate, seek, close = file.fileno, file.truncate, file.seek, file.close

            def write(self, data: memoryview) -> int:
                if disk.room <= 0:
                    raise OSError(errno.ENOSPC, "No space left on device")
                written: int = file.write(data[: disk.room])
                disk.room -= written
                return written

        return File()


def test_a_full_disk_is_a_clear_error_and_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", Full(VALUES.nbytes + 100))
    spool = Spool(tmp_path)
    first = spool.keep(VALUES)
    with pytest.raises(WriteFailed, match=r"No space left on device.* after 20 KB.*quick=True"):
        spool.keep(VALUES + 1)
    with pytest.raises(WriteFailed, match="No space left"):
        spool.check()
    assert np.array_equal(first, VALUES)


def test_a_folder_in_memory_is_refused() -> None:
    assert ON_LINUX
    with pytest.raises(UsageError, match=r"in memory \(tmpfs\)"):
        open_spool("/dev/shm", 1)


def test_a_folder_without_room_is_refused_with_the_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "free_bytes", lambda place: 5_000_000_000)
    with pytest.raises(UsageError, match=r"has 5\.0 GB free, and the runs need about 12\.3 GB"):
        open_spool(tmp_path, 12_300_000_000)


def test_what_is_not_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        open_spool(tmp_path / "nowhere", 1)


def test_without_a_folder_the_first_usual_one_with_room_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(first))
    monkeypatch.chdir(second)
    monkeypatch.setattr(spools, "free_bytes", lambda place: 100 if place == first else 1000)
    monkeypatch.setattr(spools, "_is_usable", lambda place: place in (first, second))
    found = open_spool(None, 500)
    assert found is not None
    assert found.directory == second
    assert open_spool(None, 5000) is None
