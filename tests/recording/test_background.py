"""Shards written while the program goes on: in order, within bounds, and honest about a disk that refuses."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from reprod_log.errors import RecordingError, WriteFailed
from reprod_log.recording import folder
from reprod_log.recording.recorder import Background, Batch, Recorder
from reprod_log.recording.recording import entry_of
from reprod_log.recording.stores import load

LARGE = np.zeros(1 << 16)


def batch(name: str, array: np.ndarray = LARGE) -> Batch:
    return [(entry_of(name, array), array)]


class Disk:
    """A disk that waits until it is told to go on."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.threads: set[str] = set()
        self.gate = threading.Event()
        self.error: Exception | None = None

    def write(self, given: Batch) -> None:
        self.gate.wait(20)
        self.threads.add(threading.current_thread().name)
        if self.error is not None:
            raise self.error
        self.written.append(str(given[0][0].key))


def test_large_batches_are_written_elsewhere_in_order_and_small_ones_never_overtake() -> None:
    disk = Disk()
    writer = Background(disk.write)
    writer.put(batch("a"))
    writer.put(batch("b", np.zeros(1)))
    assert disk.written == []
    disk.gate.set()
    writer.put(batch("c"))
    writer.finish()
    assert disk.written == ["a", "b", "c"]
    assert disk.threads == {"reprod_log writer"}


def test_small_batches_are_on_disk_when_put_comes_back() -> None:
    disk = Disk()
    disk.gate.set()
    writer = Background(disk.write)
    writer.put(batch("a", np.zeros(10)))
    assert (disk.written, disk.threads) == (["a"], {threading.current_thread().name})
    writer.finish()


@pytest.mark.parametrize("bounded_by", ["steps", "bytes"])
def test_the_program_waits_when_two_steps_or_too_many_bytes_are_waiting(bounded_by: str) -> None:
    disk = Disk()
    writer, room = Background(disk.write), 2
    if bounded_by == "bytes":
        writer, room = Background(disk.write, most_bytes=LARGE.nbytes), 1
    for number in range(room):
        writer.put(batch(str(number)))
    behind = threading.Thread(target=writer.put, args=(batch("late"),))
    behind.start()
    behind.join(0.2)
    assert behind.is_alive()
    disk.gate.set()
    behind.join(20)
    assert not behind.is_alive()
    writer.finish()
    assert disk.written == [*map(str, range(room)), "late"]


def test_a_refusing_disk_drops_the_rest_and_lets_the_program_go_on() -> None:
    disk = Disk()
    disk.error = WriteFailed(28, "No space left on device")
    writer = Background(disk.write)
    writer.put(batch("a"))
    writer.put(batch("b"))
    disk.gate.set()
    for name in "cdef":
        writer.put(batch(name))
    writer.finish()
    assert writer.failure is not None
    assert str(writer.failure[0][0][0].key) == "a"
    assert disk.written == []


def test_an_error_that_is_not_the_disk_lets_the_program_go_on_too() -> None:
    disk = Disk()
    disk.error = RecordingError("not an array")
    writer = Background(disk.write)
    disk.gate.set()
    writer.put(batch("a"))
    writer.finish()
    assert writer.failure is not None
    assert str(writer.failure[1]) == "not an array"


def test_a_system_without_threads_has_large_steps_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    disk = Disk()
    disk.gate.set()
    writer = Background(disk.write)
    for name in "abc":
        writer.put(batch(name))
    assert disk.written == ["a", "b", "c"]
    writer.finish()


def test_recording_of_large_steps_is_whole_and_says_where_a_full_disk_stopped_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, shards = folder.write_tensors, []

    def fill_up(file, tensors, metadata):  # type: ignore[no-untyped-def]
        shards.append(threading.current_thread().name)
        if len(shards) > 3:
            raise OSError(28, "No space left on device")
        write(file, tensors, metadata)

    for limit in (False, True):
        if limit:
            monkeypatch.setattr(folder, "write_tensors", fill_up)
        recorder = Recorder(tmp_path / "rec")
        for step in range(6):
            recorder.add(f"step{step}/forward/x#0:output", LARGE + step)
            recorder.end_step()
        recording = recorder.close()
        assert recording.complete is not limit
        assert recording.steps == (tuple(range(3)) if limit else tuple(range(6)))
        for entry in load(tmp_path / "rec"):
            assert entry.array()[0] == entry.key.step
    assert shards[0] == "reprod_log writer"
    assert any("recording stopped at 'step3/" in note and "No space left" in note for note in map(str, recording.notes))
