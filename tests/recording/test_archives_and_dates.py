"""Archives of many entries, and arrays of dates."""

from __future__ import annotations

import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import ml_dtypes
import numpy as np
import pytest

from reprod_log import Recording, align, load
from reprod_log.errors import UnreadableFile

DAYS = np.array(["2020-01-01", "2020-01-02"], "datetime64[D]")


@pytest.mark.parametrize("ours", [True, False])
def test_directory_of_an_archive_is_read_once_however_many_entries_are_read(tmp_path: Path, ours: bool) -> None:
    arrays = {f"x{i}": np.full(3, i) for i in range(50)}
    path = tmp_path / "many.npz"
    if ours:
        Recording.from_arrays(arrays).save(path)
    else:
        np.savez(path, **arrays)
    recording = load(path)
    with (
        mock.patch.object(zipfile.ZipFile, "__init__", autospec=True, side_effect=zipfile.ZipFile.__init__) as opened,
        ThreadPoolExecutor(8) as pool,
    ):
        values = list(pool.map(lambda entry: entry.array(), recording.entries))
    assert opened.call_count == 1
    for entry, value in zip(recording.entries, values, strict=True):
        assert np.array_equal(value, arrays[str(entry.key)])


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_dates_keep_what_they_count_and_are_compared(tmp_path: Path, suffix: str) -> None:
    later = {"x": DAYS + np.timedelta64(1, "D"), "y": DAYS - DAYS[0]}
    for name, arrays in (("a", {"x": DAYS, "y": DAYS - DAYS[0]}), ("b", later)):
        if suffix == ".npy":
            np.save(tmp_path / "plain.npy", arrays, allow_pickle=True)
            (tmp_path / "plain.npy").rename(tmp_path / f"{name}.npy")
        else:
            np.savez(tmp_path / f"{name}.npz", **arrays)
    first = load(tmp_path / f"a{suffix}")
    assert first["x"].array().dtype == DAYS.dtype
    found = align(first, tmp_path / f"b{suffix}")
    assert {one.key: str(one.status) for one in found.verdict.judgements} == {"x": "FAIL", "y": "PASS"}


def test_dates_of_no_unit_are_told_apart_without_an_error() -> None:
    bare = np.array([1, 2]).view("M8")
    found = align(Recording.from_arrays({"x": bare}), Recording.from_arrays({"x": bare + 1}))
    assert not found.passed
    assert "reference 1, candidate 2" in str(found.verdict.judgements[0].reason)


def test_raw_bytes_in_an_archive_are_refused_with_what_to_do(tmp_path: Path) -> None:
    np.savez(tmp_path / "raw.npz", x=np.ones(3, ml_dtypes.bfloat16))
    with pytest.raises(UnreadableFile, match=r"raw\.npz: 'x\.npy' holds .*raw bytes.*bfloat16 as float32"):
        load(tmp_path / "raw.npz")
