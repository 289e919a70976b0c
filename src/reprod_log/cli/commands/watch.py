"""reprod watch: record the port again whenever a file is saved, compare, and show the first screen."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from reprod_log.cli.options import Language, Reference
from reprod_log.errors import UsageError
from reprod_log.messages import Name, message, words
from reprod_log.report.terminal import terminal
from reprod_log.report.writing import plain

NAME = "watch"
SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
_LOOK_EVERY = 0.3


def run(
    context: typer.Context,
    reference: Reference,
    script: Annotated[
        Path, typer.Argument(metavar="SCRIPT", help="The port's script; what follows are its arguments.")
    ],
    folder: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where the recording and the last answer go.")
    ] = Path("reprod_watch"),
    float64: Annotated[bool, typer.Option("--float64/--plain", help="Record a float64 pass as well.")] = True,
    rounds: Annotated[int, typer.Option("--rounds", metavar="N", min=0, help="Stop after N rounds; 0: never.")] = 0,
    language: Language = "en",
) -> int:
    """Record SCRIPT again whenever a Python file beside it is saved, compare it with REF, and show what changed."""
    if not script.is_file():
        raise UsageError(
            f"{script} is not a file; reprod watch takes the recording that is right and the port's script"
        )
    folder.mkdir(parents=True, exist_ok=True)
    code, done = 0, 0
    while True:
        seen = _saved(script)
        code = _round(str(reference), script, context.args, folder, float64=float64, language=language)
        done += 1
        if done == rounds:
            return code
        typer.echo(plain(words(language)(message("watch.waiting", folder=Name(script.parent)))))
        while _saved(script) == seen:
            time.sleep(_LOOK_EVERY)


def _round(reference: str, script: Path, arguments: list[str], folder: Path, *, float64: bool, language: str) -> int:
    """Both commands in processes of their own, so that every module is read again; the exit code of the verdict."""
    console = terminal()
    console.clear()
    recording = str(folder / "recording")
    record = [
        "run",
        *(["--float64"] if float64 else []),
        "--language",
        language,
        "-o",
        recording,
        str(script),
        *arguments,
    ]
    failed = _reprod(record, quiet=True)
    if failed:
        return failed
    # The answer of the last round is replaced: what changed since then is shown.
    return _reprod(["compare", reference, recording, "--json", str(folder / "last.json"), "--language", language])


def _reprod(arguments: list[str], *, quiet: bool = False) -> int:
    line = [sys.executable, "-m", "reprod_log", *arguments]
    return subprocess.run(line, stdout=subprocess.DEVNULL if quiet else None, check=False).returncode


def _saved(script: Path) -> dict[Path, int]:
    """When the script and the Python files beside and below it were last saved."""
    files = [script, *script.parent.glob("*.py"), *script.parent.glob("*/*.py")]
    return {file: file.stat().st_mtime_ns for file in files if file.is_file()}
