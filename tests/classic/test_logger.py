"""ReprodLogger: what scripts do with it."""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import reprod_log
from reprod_log import ReprodLogger
from reprod_log.errors import ReprodLogError, UsageError


def test_names_of_1_0_1_import() -> None:
    from reprod_log.compare import check_data, compare_forward, compare_loss_and_backward, compute_diff
    from reprod_log.ReprodDiffHelper import ReprodDiffHelper as Helper
    from reprod_log.ReprodLogger import ReprodLogger as Logger
    from reprod_log.utils import check_print_diff, init_logger, np2paddle, np2torch, paddle2np, torch2np

    assert Logger is ReprodLogger
    assert Helper is reprod_log.ReprodDiffHelper
    named = (check_data, compute_diff, compare_forward, compare_loss_and_backward)
    also = (check_print_diff, init_logger, np2paddle, np2torch, paddle2np, torch2np)
    assert all(callable(one) for one in (*named, *also))
    assert reprod_log.utils.np2torch is np2torch
    assert reprod_log.compare.compute_diff is compute_diff


def test_data_is_the_live_dict() -> None:
    logger = ReprodLogger()
    data = logger.data
    logger.add("x", np.ones(2))
    assert list(data) == ["x"]
    assert logger._data is data
    data["y"] = np.zeros(1)
    assert list(logger.data) == ["x", "y"]


def test_value_is_replaced_when_added_again() -> None:
    logger = ReprodLogger()
    logger.add("x", np.ones(2))
    logger.add("y", np.ones(1))
    logger.add("x", np.zeros(3))
    assert list(logger.data) == ["x", "y"]
    np.testing.assert_array_equal(logger.data["x"], np.zeros(3))


def test_missing_key_is_only_mentioned_when_removed(capsys: pytest.CaptureFixture[str]) -> None:
    logger = ReprodLogger()
    logger.add("x", np.ones(1))
    logger.remove("y")
    assert capsys.readouterr().out == "y is not in dict_keys(['x'])\n"
    logger.remove("x")
    assert logger.data == {}
    logger.add("z", np.ones(1))
    logger.clear()
    assert logger.data == {}


def test_array_is_copied_when_added() -> None:
    logger = ReprodLogger()
    gradient = np.ones(4, np.float32)
    logger.add("gradient", gradient)
    gradient[:] = 0
    np.testing.assert_array_equal(logger.data["gradient"], 1)


@pytest.mark.parametrize(
    ("value", "shape", "kind"),
    [
        (3, (), "i"),
        (2.5, (), "f"),
        (True, (), "b"),
        ([1.0, 2.0], (2,), "f"),
        (np.float32(1.5), (), "f"),
        ([[1], [2]], (2, 1), "i"),
    ],
)
def test_numbers_and_lists_are_taken(value: object, shape: tuple[int, ...], kind: str) -> None:
    logger = ReprodLogger()
    logger.add("x", value)
    assert logger.data["x"].shape == shape
    assert logger.data["x"].dtype.kind == kind


def test_object_array_of_none_is_kept(tmp_path: Path) -> None:
    logger = ReprodLogger()
    logger.add("x", np.array([None]))
    logger.save(tmp_path / "x.npy")
    loaded = reprod_log.ReprodDiffHelper().load_info(tmp_path / "x.npy")
    assert loaded["x"].tolist() == [None]


def test_what_is_not_a_tensor_is_refused_by_name() -> None:
    logger = ReprodLogger()
    with pytest.raises(ReprodLogError, match="cannot add 'x'.*object"):
        logger.add("x", object())
    with pytest.raises(ReprodLogError, match=r"must be a string, not frozenset: use add"):
        logger.add(frozenset({1}), np.ones(1))
    assert logger.data == {}


def test_saving_makes_folders_and_adds_the_suffix(tmp_path: Path) -> None:
    logger = ReprodLogger()
    logger.add("x", np.ones(1))
    logger.save(str(tmp_path / "a" / "b" / "log"))
    logger.save(tmp_path / "a" / "c.v1")
    assert (tmp_path / "a" / "b" / "log.npy").is_file()
    assert (tmp_path / "a" / "c.v1.npy").is_file()


def test_program_logging_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = (list(logging.getLogger().handlers), logging.getLogger().level)
    helper = reprod_log.ReprodDiffHelper()
    helper.compare_info({"x": np.ones(1)}, {"x": np.ones(1)})
    helper.report()
    logger = reprod_log.utils.init_logger(str(tmp_path / "own.log"))
    logger.info("hello")
    for handler in logger.handlers:
        handler.close()
    assert (list(logging.getLogger().handlers), logging.getLogger().level) == before
    assert (tmp_path / "diff.txt").is_file()
    assert (tmp_path / "own.log").read_text().endswith("root INFO: hello\n")


@pytest.mark.parametrize("path", [".", "..", "/"])
def test_folder_instead_of_a_file_is_refused(path: str) -> None:
    logger = ReprodLogger()
    logger.add("x", np.ones(1))
    with pytest.raises(UsageError, match="is a folder: give a file in it"):
        logger.save(path)


def test_whole_numbers_are_keys_as_in_1_0_1(tmp_path: Path) -> None:
    logger = ReprodLogger()
    for step in range(2):
        logger.add(step, np.full(2, step, "float32"))
    logger.save(tmp_path / "losses.npy")
    helper = reprod_log.ReprodDiffHelper()
    loaded = helper.load_info(tmp_path / "losses.npy")
    assert list(loaded) == [0, 1]
    helper.compare_info(loaded, logger.data)
    assert "root INFO: 1: \n" in helper.report(path=None).text
    assert [str(entry.key) for entry in reprod_log.load(tmp_path / "losses.npy")] == ["0", "1"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: reprod_log.ReprodDiffHelper().load_info("no_such_folder/x.npy"),
        lambda: reprod_log.ReprodDiffHelper().compare_info([], []),  # type: ignore[arg-type]
        lambda: reprod_log.utils.check_print_diff({}, diff_method="median"),
        lambda: ReprodLogger().add("x", None),
        lambda: ReprodLogger().add("x", {"a": np.ones(1)}),
        lambda: ReprodLogger().add("x", np.zeros(2, dtype=[("score", "f4"), ("label", "i4")])),
    ],
    ids=["missing file", "no dicts", "method", "nothing", "dict", "records"],
)
def test_what_1_0_1_asserted_is_an_assertion_error(wrong: Callable[[], object]) -> None:
    with pytest.raises(AssertionError) as caught:
        wrong()
    assert isinstance(caught.value, ReprodLogError)


def test_missing_file_is_what_numpy_raises_for_it() -> None:
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        reprod_log.load("no_such_folder/x.npy")
