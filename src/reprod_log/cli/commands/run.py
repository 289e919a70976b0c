"""reprod run: record a script as it is."""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from reprod_log.capture.script import run_script
from reprod_log.cli import ALIGNED, INCOMPLETE, INTERRUPTED, NOT_ALIGNED
from reprod_log.cli.output import program_output
from reprod_log.errors import CaptureError, ReprodLogError, UsageError, counted
from reprod_log.messages import Code, Message, message
from reprod_log.recording import Recording
from reprod_log.recording.stores import load, save
from reprod_log.report.terminal import drop_output
from reprod_log.report.writing import plain

NAME = "run"
SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
_OUTPUT = frozenset({"-o", "--output"})


class Command(TyperCommand):
    """The script has arguments of its own; both orders that people write are understood."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, options_first(args, self))


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
        typer.Option(
            metavar="NAME", help="Record the models of this framework, when the script calls those of several."
        ),
    ] = None,
    phases: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only these phases, e.g. forward,loss,gradient.")
    ] = None,
    layers: Annotated[list[str], typer.Option(metavar="PATTERN", help="Only layers with these paths.")] = [],  # noqa: B006
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
        record = partial(
            run_script,
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
        failed = _failed(record, script, lambda: _kept(target, output, extra))
        if failed is not None:
            return failed
        # Half a pass is not evidence, and would make a complete recording an incomplete one.
        if extra and target.exists():
            _add_pass(output, load(target))
    if not output.exists():
        raise CaptureError("nothing was recorded: the script ended before it called a module of a known framework")
    recording = load(output)
    try:
        _print_recorded(recording, output)
    except ValueError:
        pass  # the script has closed its output
    except OSError:
        drop_output(sys.__stdout__ or sys.stdout)
    return ALIGNED if recording.complete else INCOMPLETE


def _print_recorded(recording: Recording, output: Path) -> None:
    passes = ", ".join(run or "plain" for run in recording.runs)
    typer.echo(f"{plain(str(output))}: {counted(len(recording), 'entry', 'entries')}, passes: {passes}")
    for note in recording.notes:
        typer.echo(f"note: {plain(str(note))}")
    if not recording.complete:
        typer.echo("INCOMPLETE: the script came to its end, but its recording did not; the notes say why")


def _failed(record: Callable[[], object], script: Path, kept: Callable[[], str]) -> int | None:
    """Record the script; the exit code if it did not come to its end, and None if it did."""
    try:
        with program_output():
            record()
    except ReprodLogError:
        raise
    except Exception as error:
        shown = _script_traceback(error, script)
        if shown is None:
            raise
        typer.echo(f"{shown}reprod: the script failed; {kept()}", err=True)
        return NOT_ALIGNED
    except KeyboardInterrupt:
        typer.echo(f"reprod: the script was interrupted; {kept()}", err=True)
        return INTERRUPTED
    except SystemExit as leaving:
        if leaving.code:
            code = f"with {leaving.code}" if isinstance(leaving.code, int) else "with a message"
            typer.echo(f"reprod: the script exited {code}; {kept()}", err=True)
            raise
    return None


def _kept(target: Path, output: Path, extra: bool) -> str:
    """What is kept of a run that did not finish, and where."""
    if extra:
        return (
            f"{output} is unchanged and does not have this pass. Models and their inputs are float64 in this pass; "
            "targets and constants that the script creates keep their dtype: give them the dtype of the output"
        )
    if not target.exists():
        return "nothing was recorded"
    recording = load(target)
    steps = {entry.key.step for entry in recording if entry.key.step is not None}
    many = f"{counted(len(recording), 'entry', 'entries')} of {counted(len(steps), 'step')}"
    return f"{many} recorded until then {'is' if len(recording) == 1 else 'are'} in {output}"


def _script_traceback(error: Exception, script: Path) -> str | None:
    """The traceback from the script's own frames on; None when none of them is in it."""
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
        raise UsageError(f"{path} has only a float64 pass; record the plain run first")
    whole = replace(
        recording,
        entries=(*kept, *more.entries),
        complete=recording.complete and more.complete,
        notes=(*recording.notes, *more.notes, *_other_call(recording, more)),
        source=str(path),
    )
    save(whole, path)


def _other_call(recording: Recording, more: Recording) -> list[Message]:
    """A note when the passes come from different scripts or arguments: they may still be the same program."""
    calls = [one.provenance.extra.get("run") for one in (recording, more)]
    plain, wide = (
        " ".join(map(str, [call.get("script", ""), *call.get("args", [])])) if isinstance(call, dict) else ""
        for call in calls
    )
    if not plain or plain == wide:
        return []
    return [message("note.recording.other_call", plain=Code(repr(plain)), wide=Code(repr(wide)))]


def options_first(arguments: list[str], command: Any) -> list[str]:
    """The arguments of `reprod run` with our options before the script.

        reprod run -o ref train.py --lr 0.1       what follows the script is the script's
        reprod run train.py -o ref [-- --lr 0.1]  our options follow it, until the first that is not ours, or `--`

    Only a call without -o before the script is read the second way: otherwise an option of the script that is called
    like one of ours would be taken from it.
    """
    place = _ours(arguments, 0, command)
    if place >= len(arguments) or _OUTPUT & {one.partition("=")[0] for one in arguments[:place]}:
        return arguments
    end = _ours(arguments, place + 1, command)
    rest = arguments[end + 1 :] if arguments[end : end + 1] == ["--"] else arguments[end:]
    return [*arguments[:place], *arguments[place + 1 : end], arguments[place], *rest]


def _ours(arguments: list[str], start: int, command: Any) -> int:
    """The place of the first argument from `start` on that is neither one of the command's options nor its value."""
    takes_value = {name: not option.is_flag for option in command.params if _is_option(option) for name in option.opts}
    place = start
    while place < len(arguments):
        name, equals, _ = arguments[place].partition("=")
        if name not in takes_value:
            break
        place += 2 if takes_value[name] and not equals else 1
    return min(place, len(arguments))


def _is_option(parameter: Any) -> bool:
    return str(parameter.param_type_name) == "option"
