"""`reprod` where its output cannot hold every character: never a traceback; verdict and exit code stay."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

KEY = "层_α✓"
UTF8 = {"PYTHONIOENCODING": "utf-8"}
PLACES = {
    "gbk": {"PYTHONIOENCODING": "gbk"},
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "C locale": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "hand").mkdir()
    for side, value in (("ref", 0.0), ("same_ref", 0.0), ("paddle", 1e-3)):
        np.save(tmp_path / f"{side}.npy", {KEY: np.zeros(3) + value, "x": np.zeros(2)}, allow_pickle=True)  # type: ignore[arg-type]
    for side in ("ref", "paddle"):
        np.save(tmp_path / "hand" / f"forward_{side}.npy", {KEY: np.ones(3)}, allow_pickle=True)  # type: ignore[arg-type]
    return tmp_path


def reprod(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    return python(folder, "-m", "reprod_log", *arguments, **environment)


def python(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHONIO"))}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=clean | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    encoding = environment.get("PYTHONIOENCODING", "ascii")
    return done.returncode, done.stdout.decode(encoding, "surrogateescape")


COMMANDS = (
    (["compare", "ref.npy", "same_ref.npy"], 0, "ALIGNED"),
    (["compare", "ref.npy", "paddle.npy", "--tree"], 1, "NOT ALIGNED"),
    (["compare", "ref.npy", "paddle.npy", "--language", "zh"], 1, "FAIL"),
    (["show", "ref.npy"], 0, "2 entries"),
    (["check", "hand"], 0, "PASS"),
    (["show", "nothing-α.npy"], 2, "no such file"),
)


END = "\n-- ended with"
PROGRAM = f"""
import sys
from reprod_log.cli import run
arguments = sys.argv[1:]
while arguments:
    end = arguments.index(";")
    print({END!r}, run(arguments[:end]), flush=True)
    arguments = arguments[end + 1:]
"""
"""Commands in one process, which meets its arguments and its output as `reprod` does."""


@pytest.mark.parametrize("place", PLACES)
def test_verdict_and_exit_code_stay_whatever_the_output_can_hold(logs: Path, place: str) -> None:
    all_arguments = [one for arguments, _, _ in COMMANDS for one in (*arguments, ";")]
    _, shown = python(logs, "-c", PROGRAM, *all_arguments, **PLACES[place])
    assert "Traceback" not in shown
    answers = re.split(rf"{END} (\d+)", shown)
    for (arguments, code, word), answer, found in zip(COMMANDS, answers[::2], answers[1::2], strict=False):
        assert (int(found), word in answer) == (code, True), (arguments, shown)
    assert len(answers) == 2 * len(COMMANDS) + 1


def test_marks_fall_back_to_ascii(logs: Path) -> None:
    _, shown = reprod(logs, "compare", "ref.npy", "paddle.npy", PYTHONIOENCODING="ascii")
    assert "x FAIL" in shown
    assert "+ PASS" in shown
    _, shown = reprod(logs, "compare", "ref.npy", "paddle.npy", **UTF8)
    assert "✗ FAIL" in shown


def test_script_that_is_recorded_meets_its_output_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\nprint(sys.stdout.errors, sys.stderr.errors)\n")
    _, shown = reprod(tmp_path, "run", "-o", "ref", "train.py", PYTHONIOENCODING="ascii")
    assert "strict backslashreplace" in shown
