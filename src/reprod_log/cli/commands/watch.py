"""reprod watch: record the port again whenever a file is saved, compare, and show the first screen."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from reprod_log.alignment import Alignment
from reprod_log.cli.ending import give, tell
from reprod_log.cli.options import AsJson, Language, Reference
from reprod_log.cli.scripts import BothPasses, Script, ScriptCommand, ScriptFile
from reprod_log.messages import Name, message
from reprod_log.report.answer import answer_of
from reprod_log.report.terminal import terminal

NAME = "watch"
Command = ScriptCommand
_LOOK_EVERY = 0.3
_LAST = "last.json"


def run(
    context: typer.Context,
    reference: Reference,
    script: ScriptFile,
    folder: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where the recording and the last answer go.")
    ] = Path("reprod_watch"),
    float64: BothPasses = True,
    rounds: Annotated[int, typer.Option("--rounds", metavar="N", min=0, help="Stop after N rounds; 0: never.")] = 0,
    language: Language = "en",
    json: AsJson = None,
) -> int:
    """Record SCRIPT again whenever a Python file beside it is saved, compare it with REF, and show what changed."""
    port = Script(script, tuple(context.args), float64, language=language)
    folder.mkdir(parents=True, exist_ok=True)
    code, done = 0, 0
    while True:
        seen = _saved(script)
        code = _round(str(reference), port, folder)
        done += 1
        if done == rounds:
            give(lambda: _answer(folder / _LAST))
            return code
        tell(message("watch.waiting", folder=Name(script.parent)))
        while _saved(script) == seen:
            time.sleep(_LOOK_EVERY)


def _round(reference: str, port: Script, folder: Path) -> int:
    """Record and compare; the exit code of the verdict, or of the script if it failed."""
    terminal().clear()
    recording = folder / "recording"
    failed = port.record(recording)
    if failed:
        return failed
    # The answer of the last round is replaced: what changed since then is shown.
    last = ["--json", str(folder / _LAST), "--language", port.language]
    line = [sys.executable, "-m", "reprod_log", "compare", reference, str(recording), *last]
    return subprocess.run(line, check=False).returncode


def _answer(saved: Path) -> dict[str, Any]:
    """The answer of the last round, unless the script failed in every one."""
    if not saved.exists():
        return {}
    then = ["reprod", "report", str(saved), "report.html"]
    return {**answer_of(Alignment.load(saved)), "written": [str(saved)], "next": shlex.join(then)}


def _saved(script: Path) -> dict[Path, int]:
    """When the script and the Python files beside and below it were last saved."""
    files = [script, *script.parent.glob("*.py"), *script.parent.glob("*/*.py")]
    return {file: file.stat().st_mtime_ns for file in files if file.is_file()}
