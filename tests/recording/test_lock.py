"""Two processes never write the same recording; what a killed one leaves behind is recognised."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reprod_log.errors import RecordingError
from reprod_log.recording import Recording
from reprod_log.recording.recorder import Recorder
from reprod_log.recording.stores import load

NAME = ".writing"
WRITER = """
import sys, numpy as np
from reprod_log.recording.recorder import Recorder
recorder = Recorder(sys.argv[1])
recorder.add("step0/loss/loss", np.ones(1))
recorder.end_step()
print("ready", flush=True)
sys.stdin.readline()
recorder.close()
"""


def writer(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_recording_that_another_process_writes_is_refused_and_left_alone(tmp_path: Path) -> None:
    process = writer(tmp_path / "rec")
    try:
        for attempt in (
            lambda: Recorder(tmp_path / "rec"),
            lambda: Recording.from_arrays({"x": np.ones(2)}).save(tmp_path / "rec"),
        ):
            with pytest.raises(RecordingError, match=f"being written by process {process.pid} on"):
                attempt()
        assert len(load(tmp_path / "rec")) == 1
    finally:
        process.communicate("\n")
    assert load(tmp_path / "rec").complete
    assert not (tmp_path / "rec" / NAME).exists()
    Recorder(tmp_path / "rec").close()


def test_the_lock_of_a_killed_process_is_stale(tmp_path: Path) -> None:
    process = writer(tmp_path / "rec")
    process.kill()
    process.communicate()
    assert (tmp_path / "rec" / NAME).exists()
    recorder = Recorder(tmp_path / "rec")
    recorder.add("new", np.ones(1))
    assert recorder.close().keys == ("new",)
    assert sorted(os.listdir(tmp_path / "rec")) == ["manifest.json", "shards"]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="finds the lock among the open files of the process")
def test_the_lock_is_free_when_only_a_worker_of_a_killed_process_has_it(tmp_path: Path) -> None:
    script = """
import os, subprocess, sys
from reprod_log.recording.recorder import Recorder
recorder = Recorder(sys.argv[1])
(number,) = [int(one) for one in os.listdir("/proc/self/fd") if one.isdigit() and os.path.exists(f"/proc/self/fd/{one}")
             and os.readlink(f"/proc/self/fd/{one}").endswith(".writing")]
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=[number])
print(worker.pid, flush=True)
sys.stdin.readline()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "rec")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    try:
        with pytest.raises(RecordingError, match=f"process {process.pid} on"):
            Recorder(tmp_path / "rec")
        process.kill()
        process.wait()
        Recorder(tmp_path / "rec").close()
        assert not (tmp_path / "rec" / NAME).exists()
    finally:
        process.kill()
        os.kill(worker, signal.SIGKILL)
        process.communicate()


def test_the_same_process_cannot_write_it_twice_unless_the_first_is_forgotten(tmp_path: Path) -> None:
    first = Recorder(tmp_path / "rec")
    with pytest.raises(RecordingError, match=f"process {os.getpid()}"):
        Recorder(tmp_path / "rec")
    del first
    gc.collect()
    Recorder(tmp_path / "rec").close()


def test_a_lock_file_that_nobody_holds_is_no_obstacle_whatever_is_in_it(tmp_path: Path) -> None:
    for content in ("", "nonsense", json.dumps({"pid": os.getpid(), "host": socket.gethostname()})):
        Recorder(tmp_path / "rec").close()
        (tmp_path / "rec" / NAME).write_text(content)
        Recorder(tmp_path / "rec").close()
