"""Large logs stay in their files: the same dict, the same numbers to the bit, an error where the file has changed."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from reprod_log import ReprodDiffHelper, ReprodLogger
from reprod_log.errors import UnreadableFile

_SHAPES = [(1 << 24,), (3, 5, 100_003), (70_001, 7), (1 << 17, 2), (65_537,), (300, 300), (9,)]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two logs of over 64 MB each."""
    folder = tmp_path_factory.mktemp("large")
    rng = np.random.default_rng(0)
    ours, theirs = ReprodLogger(), ReprodLogger()
    for number, shape in enumerate(_SHAPES):
        dtype = np.float64 if number % 3 == 1 else np.float32
        array = rng.standard_normal(shape).astype(dtype)
        ours.add(f"x{number}", array)
        theirs.add(f"x{number}", array * dtype(1 + 1e-6) if number % 2 else array + dtype(1e-7))
    bad = rng.standard_normal(100_000).astype(np.float32)
    ours.add("nan", bad)
    bad[77_777] = np.nan
    theirs.add("nan", bad)
    for name, logger in (("ours", ours), ("theirs", theirs)):
        logger.save(folder / f"{name}.npy")
    return folder / "ours.npy", folder / "theirs.npy"


def _as_1_0_1_loads(path: Path) -> dict[str, np.ndarray]:
    return np.load(path, allow_pickle=True).tolist()


def test_numbers_of_large_logs_are_numpy_s_to_the_bit(logs: tuple[Path, Path]) -> None:
    helper = ReprodDiffHelper()
    found = helper.compare_info(*(helper.load_info(path) for path in logs))
    ours, theirs = map(_as_1_0_1_loads, logs)
    for key in ours.keys() - {"nan"}:
        own = np.abs(ours[key] - theirs[key])
        for name in ("mean", "max", "min"):
            wanted = getattr(own, name)()
            assert found[key][name] == wanted
            assert found[key][name].dtype == wanted.dtype
    assert np.isnan(found["nan"]["mean"])


def test_array_that_was_looked_at_and_changed_is_compared_as_changed(logs: tuple[Path, Path]) -> None:
    helper = ReprodDiffHelper()
    info = helper.load_info(logs[0])
    info["x1"][0, 0, 0] += 1
    found = helper.compare_info(info, helper.load_info(logs[0]))
    assert found["x1"]["max"] == pytest.approx(1)
    assert found["x0"]["max"] == 0


@pytest.mark.parametrize(
    "as_plain",
    [
        lambda info: dict(info),
        lambda info: {**info},
        lambda info: dict(info.items()),
        lambda info: dict(zip(info.keys(), info.values(), strict=True)),
        lambda info: info.copy(),
        lambda info: info | {},
        lambda info: {} | info,
        lambda info: copy.deepcopy(info),
        lambda info: pickle.loads(pickle.dumps(info)),
        lambda info: {key: info.get(key) for key in info},
        lambda info: {key: info.pop(key) for key in list(info)},
        lambda info: dict(info.popitem() for _ in range(len(info))),
        lambda info: {key: info.setdefault(key) for key in list(info)},
    ],
)
def test_large_log_gives_its_arrays_however_it_is_read(logs: tuple[Path, Path], as_plain: object) -> None:
    read = as_plain(ReprodDiffHelper().load_info(logs[0]))  # type: ignore[operator]
    wanted = _as_1_0_1_loads(logs[0])
    assert read.keys() == wanted.keys()
    assert type(read) is dict
    for key, array in wanted.items():
        assert type(read[key]) is np.ndarray
        assert read[key].flags.writeable
        assert np.array_equal(read[key], array, equal_nan=True)


def test_repr_and_equality_of_a_large_log_see_arrays(logs: tuple[Path, Path]) -> None:
    info = ReprodDiffHelper().load_info(logs[0])
    assert "array(" in repr(info)
    assert "Stored" not in repr(info)
    assert info != {}


@pytest.mark.parametrize("size", [1 << 20, 1 << 26])
def test_log_that_is_cut_or_written_over_after_loading_is_an_error(
    logs: tuple[Path, Path], tmp_path: Path, size: int
) -> None:
    path = tmp_path / "log.npy"
    path.write_bytes(logs[0].read_bytes())
    helper = ReprodDiffHelper()
    info, other = helper.load_info(path), helper.load_info(logs[1])
    with open(path, "r+b") as file:
        file.truncate(size)
    with pytest.raises(UnreadableFile, match="Load it again"):
        helper.compare_info(info, other)
    with pytest.raises(UnreadableFile, match="Load it again"):
        info["x0"]


def test_log_whose_name_another_one_took_keeps_its_arrays(logs: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "log.npy"
    path.write_bytes(logs[0].read_bytes())
    info = ReprodDiffHelper().load_info(path)
    (tmp_path / "new").write_bytes(b"something else")
    os.replace(tmp_path / "new", path)
    assert np.array_equal(info["x0"], _as_1_0_1_loads(logs[0])["x0"])


def test_array_that_stands_twice_is_one(tmp_path: Path) -> None:
    array = np.zeros(1 << 24, np.float32)
    np.save(tmp_path / "x.npy", {"a": array, "b": {"c": array}, "d": [array]}, allow_pickle=True)
    info = ReprodDiffHelper().load_info(tmp_path / "x.npy")
    assert info["a"] is info["b"]["c"] is info["d"][0]
