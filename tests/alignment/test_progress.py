"""Progress: bars on a real terminal, calls of a function, lines where they were asked for, and nothing elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from reprod_log.messages import message
from reprod_log.progress import each, shown, stage

WORK = """
import time
from reprod_log.messages import message
from reprod_log.progress import each, shown, stage
with shown(language="zh"), stage(message("progress.comparing"), 4_000_000, "bytes") as report:
    for done in range(5):
        report(done * 1_000_000)
        print("printed", done, flush=True)
        time.sleep(0.5)
"""


def test_terminal_shows_amount_rate_and_time_and_output_goes_where_it_went() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", WORK], stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        assert process.stdout is not None
        printed = process.stdout.read()
    seen = b""
    # Linux reports the end of a terminal that nobody has open any more as an error.
    try:
        while more := os.read(ours, 1 << 16):
            seen += more
    except OSError:
        pass
    os.close(ours)
    text = seen.decode()
    assert "正在比较" in text
    assert "/ 4 MB" in text
    assert "MB/s" in text
    assert "0:00:0" in text
    assert printed.splitlines() == [f"printed {done}" for done in range(5)]


def test_function_is_called_with_every_stage() -> None:
    told: list[tuple[str, int, int]] = []
    with shown(lambda *now: told.append(now)), stage(message("progress.passes"), 2) as passes:
        passes(0, message("progress.transfer"))
        # Whoever shows progress by default leaves it to the caller that does already.
        with shown():
            assert list(each("progress.steps", ["a", "b"])) == ["a", "b"]
        passes(2)
    assert told == [
        ("passes", 0, 2),
        ("transferring the weights", 0, 2),
        *(("steps", done, 2) for done in (0, 1, 2)),
        ("transferring the weights", 2, 2),
    ]


@pytest.mark.parametrize(("asked", "said"), [(None, ""), (False, ""), (True, "passes\nlayers\n")])
def test_lines_are_written_where_they_were_asked_for(
    asked: bool | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with shown(asked), stage(message("progress.passes"), 2):
        list(each("progress.layers", [1, 2]))
    assert capsys.readouterr().err == said
