"""A disk that refuses at any operation: the program goes on or stops as asked, what was there before survives."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from reprod_log import ReprodLogger
from reprod_log.errors import UnreadableFile, WriteFailed
from reprod_log.recording import Provenance, Recording
from reprod_log.recording.recorder import Recorder
from reprod_log.recording.stores import load, save
from trust.faulty_files import DISK_FAULTS, Layer, error_of, faulty

STEPS = 3


def record(path: Path) -> Recording:
    recorder = Recorder(path, provenance=Provenance(framework="numpy"))
    for step in range(STEPS):
        recorder.add(f"step{step}/loss/loss", np.full(3, float(step)))
        recorder.add(f"step{step}/parameter/w", np.arange(500.0) + step)
        recorder.end_step()
    return recorder.close()


def operations(folder: Path, work: object) -> int:
    """How many operations `work` needs when nothing fails."""
    with faulty(Layer(folder, 0, error_of(0))) as layer:
        work()  # type: ignore[operator]
    return layer.count


def check_prefix(found: Recording) -> int:
    """Every entry holds its own number, and steps are whole; gives back how many steps there are."""
    for entry in found:
        step = entry.key.step
        assert step is not None
        expected = np.full(3, float(step)) if entry.key.phase == "loss" else np.arange(500.0) + step
        np.testing.assert_array_equal(entry.array(), expected)
    assert [len([one for one in found if one.key.step == step]) for step in found.steps] == [2] * len(found.steps)
    assert found.steps == tuple(range(len(found.steps)))
    return len(found.steps)


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("fault", DISK_FAULTS)
def test_program_goes_on_at_whichever_operation_the_disk_fails(tmp_path: Path, fault: str, lasting: bool) -> None:
    total = operations(tmp_path, lambda: record(tmp_path / "rec"))
    assert total > 3 * STEPS
    for at in range(1, total + 1):
        path = tmp_path / "rec"
        shutil.rmtree(path, ignore_errors=True)
        with faulty(Layer(tmp_path, at, error_of(DISK_FAULTS[fault]), lasting=lasting)) as layer:
            found = record(path)
        assert layer.happened
        steps = check_prefix(found)
        if not found.complete:
            assert found.notes, f"operation {at}: what was lost is not said"
            assert os.strerror(DISK_FAULTS[fault]) in str(found.notes)
        else:
            assert steps == STEPS
        if not lasting:
            # What lies on disk says no more than what was returned.
            try:
                on_disk = load(path)
            except UnreadableFile:
                assert not found.complete
            else:
                assert check_prefix(on_disk) == steps
                assert on_disk.complete <= found.complete


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ""])
@pytest.mark.parametrize("fault", DISK_FAULTS)
def test_old_file_survives_at_whichever_operation_saving_fails(tmp_path: Path, fault: str, suffix: str) -> None:
    old = Recording.from_arrays({"x": np.ones(2), "y": np.zeros(3)})
    new = Recording.from_arrays({"x": np.full(400, 7.0)})
    path = save(old, tmp_path / f"rec{suffix}")
    total = operations(tmp_path, lambda: save(new, path))
    for at in range(1, total + 1):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        save(old, path)
        with faulty(Layer(tmp_path, at, error_of(DISK_FAULTS[fault]))) as layer:
            try:
                save(new, path)
                failed = ""
            except WriteFailed as error:
                failed = str(error)
        assert layer.happened
        found = load(path)
        if failed:
            assert "could not write" in failed
            assert found.keys == ("x", "y")
            np.testing.assert_array_equal(found["x"].array(), 1.0)
        else:
            # Only tidying up failed.
            np.testing.assert_array_equal(found["x"].array(), np.full(400, 7.0))


def test_classic_log_survives_at_whichever_operation_saving_fails(tmp_path: Path) -> None:
    path = tmp_path / "log.npy"

    def logged(value: float) -> ReprodLogger:
        logger = ReprodLogger()
        logger.add("loss_0", np.full(300, value))
        return logger

    total = operations(tmp_path, lambda: logged(1.0).save(path))
    messages = []
    for at in range(1, total + 1):
        logged(1.0).save(path)
        with faulty(Layer(tmp_path, at, error_of(DISK_FAULTS["ENOSPC"]))):
            try:
                logged(2.0).save(path)
            except WriteFailed as error:
                messages.append(str(error))
            else:
                # Making a folder that is there already may fail.
                assert at == 1
                continue
        np.testing.assert_array_equal(load(path)["loss_0"].array(), 1.0)
    assert len(messages) == total - 1 >= 3
    assert all("No space left" in message and "before is unchanged" in message for message in messages)


def test_layer_cuts_a_write_in_the_middle(tmp_path: Path) -> None:
    """The layer itself: without it the tests above would pass by doing nothing."""
    path = tmp_path / "file"
    refused = pytest.raises(OSError, match="No space")
    with faulty(Layer(tmp_path, 2, error_of(28))) as layer, refused, open(path, "wb") as file:
        file.write(b"0123456789" * 1000)
        file.flush()
    assert layer.happened
    assert path.stat().st_size == 5000
