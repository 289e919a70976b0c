"""Writing is whole or not at all, and a recorder survives a disk that refuses."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reprod_log.errors import RecordingError, UsageError, WriteFailed
from reprod_log.recording import Recording
from reprod_log.recording.files import replacing
from reprod_log.recording.recorder import Recorder
from reprod_log.recording.stores import load, save


def test_old_file_survives_when_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "log.npy"
    path.write_bytes(b"old")
    with pytest.raises(WriteFailed, match="No space left.*before is unchanged"), replacing(path) as file:
        file.write(b"half of the new")
        raise OSError(28, "No space left on device")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["log.npy"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_full_device_is_reported_when_writing(tmp_path: Path) -> None:
    with pytest.raises(WriteFailed, match="No space left"), replacing("/dev/full") as file:
        file.write(b"x" * 100_000)
    assert Path("/dev/full").is_char_device()


def test_link_stays_a_link_when_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "target.npy").write_bytes(b"old")
    (tmp_path / "link.npy").symlink_to("target.npy")
    with replacing(tmp_path / "link.npy") as file:
        file.write(b"new")
    assert (tmp_path / "link.npy").is_symlink()
    assert (tmp_path / "target.npy").read_bytes() == b"new"


def test_folder_of_something_else_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("years of work")
    recording = Recording.from_arrays({"x": np.ones(1)})
    with pytest.raises(RecordingError, match="not a recording"):
        recording.save(tmp_path / "precious")
    with pytest.raises(RecordingError, match="not a recording"):
        Recorder(tmp_path / "precious")
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="not a folder"):
        recording.save(tmp_path / "file")


def test_saving_replaces_an_older_recording(tmp_path: Path) -> None:
    save(Recording.from_arrays({f"step{i}/loss/loss": np.ones(1) for i in range(5)}), tmp_path / "rec")
    save(Recording.from_arrays({"y": np.zeros(1)}), tmp_path / "rec")
    assert load(tmp_path / "rec").keys == ("y",)
    assert os.listdir(tmp_path) == ["rec"]


def test_recording_is_readable_while_it_grows(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "rec")
    for step in range(3):
        recorder.add(f"step{step}/loss/loss", np.array(float(step)))
        recorder.end_step()
        growing = load(tmp_path / "rec")
        assert len(growing) == step + 1
        assert not growing.complete
    finished = recorder.close()
    assert finished.complete
    assert [float(entry.array()) for entry in finished] == [0.0, 1.0, 2.0]


def test_equal_tensors_are_stored_once(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "rec")
    frozen = np.random.default_rng(0).normal(size=10_000)
    for step in range(5):
        recorder.add(f"step{step}/parameter/frozen", frozen)
        recorder.end_step()
    recording = recorder.close()
    assert sum(path.stat().st_size for path in (tmp_path / "rec").rglob("*.safetensors")) < 2 * frozen.nbytes
    for entry in recording:
        np.testing.assert_array_equal(entry.array(), frozen)


def test_killed_process_leaves_every_finished_step(tmp_path: Path) -> None:
    program = """
import sys, time, numpy as np
from reprod_log.recording.recorder import Recorder
recorder = Recorder(sys.argv[1])
for step in range(100000):
    recorder.add(f"step{step}/loss/loss", np.full(1000, float(step)))
    recorder.end_step()
    print(step, flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "rec")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    last = 0
    while last < 20:
        last = int(process.stdout.readline())
    process.kill()
    last = max([last, *(int(line) for line in process.stdout.read().split())])
    process.wait()
    process.stdout.close()
    left = load(tmp_path / "rec")
    assert not left.complete
    assert len(left) >= last + 1
    for step, entry in enumerate(left):
        np.testing.assert_array_equal(entry.array(), float(step))


def test_program_goes_on_when_the_disk_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reprod_log.recording import folder

    recorder = Recorder(tmp_path / "rec")
    recorder.add("step0/loss/loss", np.ones(1))
    recorder.end_step()

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(folder, "write_tensors", refuse)
        recorder.add("step1/loss/loss", np.ones(1))
        recorder.end_step()
    recorder.add("step2/loss/loss", np.ones(1))
    recording = recorder.close()
    assert recording.keys == ("step0/loss/loss",)
    assert not recording.complete
    assert "recording stopped at 'step1/loss/loss'" in str(recording.notes[0])
    assert "No space left" in str(recording.notes[0])


def test_same_key_is_refused_when_recorded_twice() -> None:
    recorder = Recorder()
    recorder.add("x", np.ones(1))
    with pytest.raises(ValueError, match="'x' was recorded twice"):
        recorder.add("x", np.ones(1))


def test_old_log_survives_when_the_disk_fills_up_while_saving(tmp_path: Path) -> None:
    program = """
import resource, sys
import numpy as np
from reprod_log import ReprodLogger
from reprod_log.errors import WriteFailed
logger = ReprodLogger()
logger.add("x", np.ones(10))
logger.save(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
logger.add("big", np.ones(1_000_000))
try:
    logger.save(sys.argv[1])
except WriteFailed as error:
    print(error)
"""
    answer = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "log.npy")], capture_output=True, text=True, check=True
    )
    assert "could not write" in answer.stdout
    assert "before is unchanged" in answer.stdout
    assert load(tmp_path / "log.npy").keys == ("x",)
    assert os.listdir(tmp_path) == ["log.npy"]
