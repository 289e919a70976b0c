"""Where 1.0.1 worked and a stricter reader could break: keys, kinds of arrays, modules' names, printing that fails."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reprod_log import ReprodDiffHelper, ReprodLogger
from reprod_log.errors import WriteFailed

NAMES = {
    "compare": (
        "check_data compute_diff compare_forward compare_loss_and_backward np2torch np2paddle paddle2np torch2np "
        "check_print_diff np"
    ),
    "ReprodDiffHelper": "ReprodDiffHelper init_logger check_print_diff compute_diff check_data np os sys",
    "ReprodLogger": "ReprodLogger np os",
    "utils": "init_logger np2torch np2paddle paddle2np torch2np check_print_diff np os sys logging Union",
}


@pytest.mark.parametrize("module", NAMES)
def test_every_name_of_a_module_of_1_0_1_is_there(module: str) -> None:
    import_module(f"reprod_log.{module}")
    # The package's attribute is the class, as it was in 1.0.1.
    found = vars(sys.modules[f"reprod_log.{module}"])
    assert [name for name in NAMES[module].split() if name not in found] == []


def test_module_has_the_framework_that_it_imported_only_when_it_is_asked_for() -> None:
    program = (
        "import sys, reprod_log\nassert 'paddle' not in sys.modules\n"
        "from reprod_log.compare import paddle\nfrom reprod_log.utils import paddle as same\nassert paddle is same\n"
        "try:\n    reprod_log.compare.nothing\nexcept AttributeError:\n    print('good')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "good\n", done.stderr


class Narrow(io.TextIOBase):
    """A standard output that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def write(self, text: str) -> int:
        if isinstance(self.error, UnicodeError) and text.isascii():
            return len(text)
        raise self.error


@pytest.mark.parametrize(
    "error",
    [BrokenPipeError(), UnicodeEncodeError("ascii", "层", 0, 1, "no"), ValueError("closed"), OSError(28, "full")],
)
def test_file_is_written_when_printing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    helper = ReprodDiffHelper()
    helper.compare_info({"层": np.ones(2)}, {"层": np.ones(2)})
    monkeypatch.setattr(sys, "stdout", Narrow(error))
    assert helper.report(path=tmp_path / "diff.log").passed
    assert "层" in (tmp_path / "diff.log").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("one", "two", "passed"),
    [
        ([1.0, 2], [1.0, 2], True),
        ([1.0, 2], [1.0, 2 + 1e-7], True),
        ([1.0, 2], [1.0, 3], False),
        ([2**70], [2**70 + 1], False),
        ([1 + 1j], [1 + 1j], True),
        ([1.0], [float("nan")], False),
    ],
)
def test_objects_that_are_numbers_are_subtracted(tmp_path: Path, one: list[Any], two: list[Any], passed: bool) -> None:
    helper = ReprodDiffHelper()
    helper.compare_info({"x": np.array(one, object)}, {"x": np.array(two, object)})
    assert helper.report(path=None).passed is passed


@pytest.mark.parametrize(
    "values",
    [
        (np.ones(2), np.zeros(2)), (np.ones(2, "f4"), np.zeros(2, "f4")), (np.ones(2, "f2"), np.zeros(2, "f2")),
        (np.arange(2), np.arange(2) + 1), (np.ones(2, bool), np.zeros(2, bool)), (np.ones(0), np.ones(0)),
        (np.ones(2), np.ones(3)), (np.array([2**63], "u8"), np.array([-1])),
    ],
)  # fmt: skip
def test_numbers_of_the_differences_are_those_of_numpy(values: tuple[np.ndarray, np.ndarray]) -> None:
    found = ReprodDiffHelper().compare_info({"x": values[0]}, {"x": values[1]})["x"]
    assert all(isinstance(one, np.generic) for one in found.values())


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">f4").reshape(2, 3), np.arange(3, dtype=">i8"), np.arange(3, dtype=">c16"),
        np.arange(3, dtype=np.longdouble), np.arange(4, dtype=np.clongdouble), np.array(["ab", "c"], ">U2"),
        np.asfortranarray(np.arange(6, dtype=">f8").reshape(2, 3)),
    ],
)  # fmt: skip
def test_loaded_array_is_of_this_machine_and_can_be_written_to(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", {"x": array, "list": [array]}, allow_pickle=True)  # type: ignore[arg-type]
    loaded = ReprodDiffHelper().load_info(tmp_path / "x.npy")
    for found in (loaded["x"], loaded["list"][0]):
        assert found.dtype.isnative
        assert found.flags.writeable
        assert found.flags.aligned
        np.testing.assert_array_equal(found, array)


KEYS = (np.int64(3), np.float32(0.5), (1, "a"), 0.25, None, ("x", None, 2.5), True)


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_key_of_1_0_1_is_kept(tmp_path: Path, key: Any, capsys: pytest.CaptureFixture[str]) -> None:
    logger = ReprodLogger()
    logger.add(key, np.ones(2))
    logger.save(str(tmp_path / "x.npy"))
    helper = ReprodDiffHelper()
    info = helper.load_info(tmp_path / "x.npy")
    assert list(info) == [key]
    helper.compare_info(info, {key: np.ones(2)})
    assert helper.report(path=None).passed
    assert f"{key}: " in capsys.readouterr().out


def test_memory_map_and_matrix_are_read_without_trust(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "m", dtype="f4", mode="w+", shape=(3,))
    mapped[:] = 7
    content = {"map": mapped, "matrix": np.matrix([[1, 2], [3, 4]])}
    np.save(tmp_path / "x.npy", content, allow_pickle=True)  # type: ignore[arg-type]
    info = ReprodDiffHelper().load_info(tmp_path / "x.npy")
    np.testing.assert_array_equal(info["map"], [7, 7, 7])
    np.testing.assert_array_equal(info["matrix"], [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("mask", "value", "passed"), [([0, 1, 0], 9.0, True), ([0, 0, 1], 2.0, False), ([0, 0, 0], 2.0, False)]
)
def test_masked_array_is_read_without_trust_and_hides_only_what_both_hide(
    tmp_path: Path, mask: list[int], value: float, passed: bool
) -> None:
    one = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0])
    other = np.ma.array([1.0, value, 3.0], mask=mask)
    for name, array in (("one", one), ("other", other)):
        np.save(tmp_path / f"{name}.npy", {"x": array}, allow_pickle=True)  # type: ignore[arg-type]
    helper = ReprodDiffHelper()
    ours, theirs = (helper.load_info(tmp_path / f"{name}.npy") for name in ("one", "other"))
    np.testing.assert_array_equal(np.ma.getmaskarray(theirs["x"]), np.array(mask, bool))
    helper.compare_info(ours, theirs)
    assert helper.report(path=None).passed is passed


def refused(*_: Any, **__: Any) -> Any:
    raise PermissionError(13, "Permission denied")


def test_file_in_a_folder_that_is_closed_for_writing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"old")
    # Permissions do not hold for every user who runs tests.
    monkeypatch.setattr(tempfile, "mkstemp", refused)
    logger = ReprodLogger()
    logger.add("x", np.ones(2))
    logger.save(str(path))
    assert list(ReprodDiffHelper().load_info(path)) == ["x"]
    with pytest.raises(WriteFailed):
        logger.save(str(tmp_path / "new.npy"))


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    program = (
        "import os, sys, signal\nfrom pathlib import Path\nfrom reprod_log.recording.files import replacing\n"
        "with replacing(Path(sys.argv[1])) as file:\n"
        "    file.write(b'half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "x.npy"
    subprocess.run([sys.executable, "-c", program, str(path)])
    assert [one.suffix for one in tmp_path.iterdir()] == [".part"]
    logger = ReprodLogger()
    logger.add("x", np.ones(2))
    logger.save(str(path))
    assert os.listdir(tmp_path) == ["x.npy"]
