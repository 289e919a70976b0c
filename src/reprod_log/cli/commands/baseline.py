"""reprod baseline: what a program computed when it was right, kept in the repository and checked elsewhere."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from reprod_log.alignment import Alignment, align_with
from reprod_log.cli import ALIGNED
from reprod_log.cli.answer import answered
from reprod_log.cli.ending import tell_next, tell_written
from reprod_log.cli.groups import Judging, Output
from reprod_log.cli.scripts import BothPasses, Script, ScriptCommand, ScriptFile
from reprod_log.errors import UsageError
from reprod_log.recording.stores import load

NAME = "baseline"
Command = ScriptCommand


def run(
    context: typer.Context,
    action: Annotated[Literal["record", "check"], typer.Argument(help="Record the baseline, or check against it.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the baseline is kept.")],
    script: ScriptFile,
    *,
    float64: BothPasses = True,
    detail: Annotated[
        Literal["sketch", "full"], typer.Option(help="How much of each tensor to keep; sketches are small.")
    ] = "sketch",
    judging: Judging,
    output: Output,
) -> int:
    """Keep what SCRIPT computes as a small recording, and check it in another environment, version or commit.

    Put options before SCRIPT. A check records the same passes, in the same detail, as the baseline.
    """
    program = Script(script, tuple(context.args), float64, detail, output.language)
    if action == "record":
        code = program.record(folder)
        if code == ALIGNED:
            tell_written(folder)
            tell_next("reprod", "baseline", "check", folder, script, *context.args)
        return code
    if not folder.exists():
        raise UsageError(
            f"there is no baseline {folder}; reprod baseline record {folder} {script} makes one where the program "
            "is known to be right"
        )
    baseline = load(folder)
    kept = "sketch" if any(entry.detail == "sketch" for entry in baseline) else "full"
    with tempfile.TemporaryDirectory(prefix="reprod-baseline-") as place:
        now = Path(place) / "now"
        failed = replace(program, float64="float64" in baseline.runs, detail=kept).record(now)

        def checked() -> Alignment:
            found = align_with(folder, now, judging.options())
            # The recording is gone when this ends; what it was made from is not.
            return replace(found, candidate=replace(found.candidate, source=str(script)))

        return failed or answered(checked, output)
