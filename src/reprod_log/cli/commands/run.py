"""reprod run: record a script as it is."""

from __future__ import annotations

import tempfile
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from reprod_log.capture.script import run_script
from reprod_log.cli import INTERRUPTED, NOT_ALIGNED
from reprod_log.errors import CaptureError, ReprodLogError, UsageError, counted
from reprod_log.recording import Recording
from reprod_log.recording.stores import load, save
from reprod_log.report.plain import plain

NAME = "run"
SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


def run(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The script to run; its arguments follow.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="REC", help="Where the recording goes.")],
    dtype: Annotated[
        str | None,
        typer.Option(help="float64: run in float64 and add this pass to REC, as evidence for the calibrated verdict."),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="torch or paddle: record its models, when the script calls those of both."),
    ] = None,
    phases: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only these phases, e.g. forward,loss,gradient.")
    ] = None,
    layers: Annotated[list[str], typer.Option(metavar="PATTERN", help="Only layers of these paths.")] = [],  # noqa: B006
    steps: Annotated[int | None, typer.Option(help="Only the first N steps.")] = None,
    step: Annotated[
        list[int],
        typer.Option("--step", metavar="N", help="Only this step, counted from 0; may be given several times."),
    ] = [],  # noqa: B006
    detail: Annotated[str, typer.Option(help="full; sketch (enough to estimate differences); or summary.")] = "full",
) -> int:
    """Record what a script's models do, without changing the script.

    Models are watched from their first call, optimizers from their first step. For the calibrated verdict record both
    passes:  reprod run train.py -o ref  and  reprod run train.py -o ref --dtype float64
    """
    chosen = phases.split(",") if phases else None
    if step and steps is not None:
        raise UsageError("give --steps (how many from the first on) or --step (which), not both")
    extra = output.exists() and dtype == "float64"
    with tempfile.TemporaryDirectory(prefix=".reprod-", dir=output.resolve().parent if extra else None) as folder:
        target = Path(folder) / "pass" if extra else output
        try:
            run_script(
                script,
                context.args,
                save=target,
                phases=chosen,
                layers=layers or None,
                steps=step or steps,
                detail=detail,
                dtype=dtype,
                framework=framework,
                run="float64" if dtype == "float64" else "",
            )
        except ReprodLogError:
            raise
        except Exception as error:
            told = _told_by_script(error, script)
            if told is None:
                raise
            typer.echo(f"{told}reprod: the script failed; {_kept(target, output, extra)}", err=True)
            return NOT_ALIGNED
        except KeyboardInterrupt:
            typer.echo(f"reprod: the script was interrupted; {_kept(target, output, extra)}", err=True)
            return INTERRUPTED
        except SystemExit as leaving:
            if leaving.code:
                said = f"with {leaving.code}" if isinstance(leaving.code, int) else "with a message"
                typer.echo(f"reprod: the script left {said}; {_kept(target, output, extra)}", err=True)
                raise
        # Half a pass is no evidence, and would make a whole recording an incomplete one.
        if extra and target.exists():
            _add_pass(output, load(target))
    if not output.exists():
        raise CaptureError("nothing was recorded: the script left before it called a module of torch or paddle")
    recording = load(output)
    typer.echo(
        f"{output}: {counted(len(recording), 'entry', 'entries')}, passes: "
        f"{', '.join(run or 'plain' for run in recording.runs)}"
    )
    for note in recording.notes:
        typer.echo(f"note: {plain(note)}")
    return 0


def _kept(target: Path, output: Path, extra: bool) -> str:
    """What is left of a run that did not come to its end, and where."""
    if extra:
        return (
            f"{output} stays as it was, without this pass. Models and what they are called with are float64 here; "
            "targets and constants that the script makes keep their dtype: give them the dtype of the output"
        )
    if not target.exists():
        return "nothing was recorded"
    recording = load(target)
    steps = {entry.key.step for entry in recording if entry.key.step is not None}
    many = f"{counted(len(recording), 'entry', 'entries')} of {counted(len(steps), 'step')}"
    return f"{many} recorded until then {'is' if len(recording) == 1 else 'are'} in {output}"


def _told_by_script(error: Exception, script: Path) -> str | None:
    """The traceback from the script's own frames on; None when the script had no part in it."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).resolve() == script.resolve():
        return "".join(traceback.format_exception_only(error))
    place = error.__traceback__
    while place is not None and Path(place.tb_frame.f_code.co_filename).resolve() != script.resolve():
        place = place.tb_next
    return None if place is None else "".join(traceback.format_exception(type(error), error, place))


def _add_pass(path: Path, more: Recording) -> None:
    """Put another pass into the recording at `path`."""
    recording = load(path)
    both = set(recording.runs) & set(more.runs)
    kept = tuple(entry for entry in recording.entries if entry.key.run not in both)
    if not kept:
        raise UsageError(f"{path} holds nothing but a float64 pass; record the plain run first")
    whole = replace(
        recording,
        entries=(*kept, *more.entries),
        complete=recording.complete and more.complete,
        notes=(*recording.notes, *more.notes, *_other_call(recording, more)),
        source=str(path),
    )
    save(whole, path)


def _other_call(recording: Recording, more: Recording) -> list[str]:
    """A note when the passes come from different scripts or arguments: they may still be the same program."""
    calls = [one.provenance.extra.get("run") for one in (recording, more)]
    plain, wide = (
        " ".join(map(str, [call.get("script", ""), *call.get("args", [])])) if isinstance(call, dict) else ""
        for call in calls
    )
    return [f"the plain pass is of {plain!r}, the float64 pass of {wide!r}"] if plain and plain != wide else []
