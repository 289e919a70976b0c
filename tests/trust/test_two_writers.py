"""Two processes that write the same recording: the second is refused, and the first goes on unharmed."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reprod_log.errors import RecordingError
from reprod_log.recording import Recording
from reprod_log.recording.recorder import Recorder
from reprod_log.recording.stores import load, save

PROGRAM = """
import sys, numpy as np
from reprod_log.errors import RecordingError
from reprod_log.recording.recorder import Recorder
try:
    Recorder(sys.argv[1])
except RecordingError as error:
    print(error)
"""


def other_process(path: Path) -> str:
    return subprocess.run([sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=True).stdout


def test_second_process_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "rec"
    recorder = Recorder(path)
    recorder.add("step0/loss/loss", np.ones(2))
    recorder.end_step()
    assert "is being written by process" in other_process(path)
    with pytest.raises(RecordingError, match="is being written"):
        Recorder(path)
    with pytest.raises(RecordingError, match="is being written"):
        save(Recording.from_arrays({"x": np.ones(1)}), path)
    recorder.add("step1/loss/loss", np.zeros(2))
    assert recorder.close().complete
    assert load(path).keys == ("step0/loss/loss", "step1/loss/loss")
    assert other_process(path) == ""
