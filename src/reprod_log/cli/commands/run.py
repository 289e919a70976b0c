"""reprod run: record a script as it is."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from reprod_log.capture.provenance import file_digest
from reprod_log.capture.script import run_script
from reprod_log.cli import ALIGNED, INCOMPLETE, INTERRUPTED, NOT_ALIGNED
from reprod_log.cli.ending import give, tell, tell_compare, tell_next, tell_note
from reprod_log.cli.options import AsJson, Language
from reprod_log.cli.output import program_output
from reprod_log.cli.scripts import ScriptCommand, ScriptFile, arranged, note_on
from reprod_log.errors import CaptureError, ReprodLogError, UsageError
from reprod_log.messages import Message, Name, message
from reprod_log.recording import Recording, join_passes
from reprod_log.recording.program import ONE_PRECISION, Program, known_program
from reprod_log.recording.stores import load, save, store_for
from reprod_log.report.facts import passes_of
from reprod_log.report.terminal import drop_output

NAME = "run"
_MOST = 5
"""Differences of two programs that a refusal names."""


class Command(ScriptCommand):
    """The script has arguments of its own: ours stand before it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ours, alike = arranged(args, self)
        rest = super().parse_args(ctx, ours)
        if alike:
            tell_note(note_on(alike), err=True)
        return rest


@dataclass(frozen=True)
class Scope:
    """What of a script is recorded."""

    framework: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which framework's models to record, if the script calls models of several."),
    ] = None
    phases: Annotated[
        str | None, typer.Option(metavar="A,B", help="Record only these phases, e.g. forward,loss,gradient.")
    ] = None
    layers: Annotated[list[str], typer.Option(metavar="PATTERN", help="Record only layers with these paths.")] = field(
        default_factory=list
    )
    steps: Annotated[int | None, typer.Option(metavar="N", help="Record only the first N steps.")] = None
    step: Annotated[
        list[int],
        typer.Option("--step", metavar="N", help="Record only this step, counted from 0; may be given several times."),
    ] = field(default_factory=list)
    detail: Annotated[
        Literal["full", "sketch", "summary"],
        typer.Option(help="How much of each tensor to keep; a sketch is enough to estimate differences."),
    ] = "full"

    def __post_init__(self) -> None:
        if self.step and self.steps is not None:
            raise UsageError("give --steps (how many from the first on) or --step (which), not both")

    @property
    def options(self) -> dict[str, Any]:
        """The same as `run_script` takes it."""
        return {
            "framework": self.framework,
            "phases": self.phases.split(",") if self.phases else None,
            "layers": self.layers or None,
            "steps": self.step or self.steps,
            "detail": self.detail,
        }


def run(
    context: typer.Context,
    script: ScriptFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="REC", help="Where the recording goes.")],
    *,
    float64: Annotated[
        bool, typer.Option("--float64", help="Run the script twice: as it is, then in float64.")
    ] = False,
    dtype: Annotated[
        Literal["float32", "float64"] | None,
        typer.Option(help="Record only the float64 pass and add it to REC, which has the plain one."),
    ] = None,
    scope: Scope,
    language: Language = "en",
    json: AsJson = None,
    another: Annotated[bool, typer.Option("--another-follows", hidden=True)] = False,
) -> int:
    """Record what a script's models do, without changing the script.

    Put options before SCRIPT; everything after it is passed to the script. Models are watched from their first call,
    optimizers from their first step. The calibrated verdict requires both passes: reprod run --float64 -o ref SCRIPT
    """
    # A suffix that no store knows should not come out after the script has run.
    store_for(output)
    if float64:
        if dtype is not None:
            raise UsageError("--float64 records both passes, --dtype one of them: give one of the two")
        code = _plain_pass_first(context)
        if code:
            return code
        dtype = "float64"
    wide = dtype == "float64"
    replaced = _replaced(output, wide)
    record = partial(run_script, script, context.args, dtype=dtype, run="float64" if wide else "", **scope.options)
    failed = _record_pass(record, context, wide=wide)
    if failed is not None:
        return failed
    if not output.exists():
        raise CaptureError("nothing was recorded: the script ended before it called a module of a known framework")
    recording = load(output)
    give(lambda: {"recording": str(output), "entries": len(recording), "complete": recording.complete})
    try:
        _print_recorded(recording, output, replaced)
        # Some frameworks run a script in its own precision only.
        alone = bool(recording.provenance.extra.get(ONE_PRECISION))
        if not wide and not another and not alone:
            tell_next(*_command(context, "--dtype", "float64"))
        elif wide or alone:
            tell_compare(output)
    except ValueError:
        pass  # the script has closed its output
    except OSError:
        drop_output(sys.__stdout__ or sys.stdout)
    return ALIGNED if recording.complete else INCOMPLETE


def _record_pass(record: partial[Recording], context: typer.Context, *, wide: bool) -> int | None:
    """Record one pass; a float64 pass joins the plain one that is there. The exit code if the script failed."""
    script, output = Path(context.params["script"]), Path(context.params["output"])
    extra = wide and output.exists()
    if extra:
        _refuse_other(output, Program(script=file_digest(script), arguments=tuple(context.args)), context)
    with tempfile.TemporaryDirectory(prefix=".reprod-", dir=output.resolve().parent if extra else None) as folder:
        target = Path(folder) / "pass" if extra else output
        failed = _failed(partial(record, save=target), script, lambda: _kept(target, output, extra))
        # Half a pass is not evidence, and would make a complete recording an incomplete one.
        if failed is None and extra and target.exists():
            _add_pass(output, load(target), context)
    return failed


def _plain_pass_first(context: typer.Context) -> int:
    """Record the plain pass in a process of its own, so that nothing of it is left for the float64 pass."""
    command = [sys.executable, "-m", "reprod_log", "run", "--another-follows", *_options(context), *_script(context)]
    process = subprocess.Popen(command)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            # It was interrupted, too, and has to write what it has.
            continue


def _command(context: typer.Context, *more: str) -> list[str]:
    """The command to type for another pass of the same program."""
    return ["reprod", "run", *more, *_options(context), *_script(context)]


def _script(context: typer.Context) -> list[str]:
    """The script with its own arguments; a `--` keeps those apart that are called like ours."""
    apart = ["--"] if any(one.startswith("-") for one in context.args) else []
    return [str(context.params["script"]), *apart, *context.args]


def _options(context: typer.Context) -> list[str]:
    """Our options as they were given, without those that choose the pass."""
    found: list[str] = []
    for option in context.command.params:
        given = context.params.get(str(option.name))
        if option.param_type_name != "option" or option.name in ("float64", "dtype", "another", "json") or not given:
            continue
        if given != option.default:
            values = given if isinstance(given, (list, tuple)) else [given]
            found += [part for one in values for part in (option.opts[-1], str(one))]
    return found


def _replaced(output: Path, wide: bool) -> Message | None:
    """What a new pass replaces; None when there is nothing."""
    if not output.exists():
        return None
    try:
        before = load(output)
    except ReprodLogError:
        return None
    if wide:
        return message("run.replaces.float64") if "float64" in before.runs else None
    made = (message("recording.made", time=before.provenance.time),) if before.provenance.time else ()
    return message("run.replaces", facts=(message("entries.count", count=len(before)), passes_of(before), *made))


def _print_recorded(recording: Recording, output: Path, replaced: Message | None) -> None:
    facts = message("entries.count", count=len(recording)), passes_of(recording)
    tell(message("recording.title", path=Name(output), facts=facts))
    if replaced is not None:
        tell(replaced)
    for note in recording.notes:
        tell_note(note)
    if not recording.complete:
        tell(message("run.incomplete"))


def _failed(record: Callable[[], object], script: Path, kept: Callable[[], Message]) -> int | None:
    """Record the script; the exit code if it did not run to its end, and None if it did."""
    try:
        with program_output():
            record()
    except ReprodLogError:
        raise
    except Exception as error:
        shown = _script_traceback(error, script)
        if shown is None:
            raise
        tell(message("run.failed", kept=kept()), before=f"{shown}reprod: ", err=True)
        return NOT_ALIGNED
    except KeyboardInterrupt:
        tell(message("run.interrupted", kept=kept()), before="reprod: ", err=True)
        return INTERRUPTED
    except SystemExit as leaving:
        if leaving.code:
            told = "run.exited" if isinstance(leaving.code, int) else "run.exited.message"
            tell(message(told, code=leaving.code, kept=kept()), before="reprod: ", err=True)
            raise
    return None


def _kept(target: Path, output: Path, extra: bool) -> Message:
    """What is kept of a run that did not finish, and where."""
    if extra:
        return message("run.kept.unchanged", path=Name(output))
    if not target.exists():
        return message("run.kept.nothing")
    recording = load(target)
    steps = {entry.key.step for entry in recording if entry.key.step is not None}
    return message("run.kept", entries=len(recording), steps=len(steps), path=Name(output))


def _script_traceback(error: Exception, script: Path) -> str | None:
    """The traceback from the script's own frames on; None when none of them is in it."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).resolve() == script.resolve():
        return "".join(traceback.format_exception_only(error))
    place = error.__traceback__
    while place is not None and Path(place.tb_frame.f_code.co_filename).resolve() != script.resolve():
        place = place.tb_next
    return None if place is None else "".join(traceback.format_exception(type(error), error, place))


def _add_pass(path: Path, more: Recording, context: typer.Context) -> None:
    """Put another pass into the recording at `path`, if it is of the same program."""
    recording = load(path)
    if not recording.of_run(""):
        raise UsageError(
            f"{path} has only a float64 pass. Record both with one command: "
            f"{shlex.join(_command(context, '--float64'))}"
        )
    for run in more.runs:
        program = known_program(more, run)
        if program is not None:
            _refuse_other(path, program, context)
    save(replace(join_passes(recording, more), source=str(path)), path)


def _refuse_other(path: Path, program: Program, context: typer.Context) -> None:
    """Refuse a pass of another program than the plain pass at `path`: their difference would count as rounding."""
    known = known_program(load(path), "")
    if known is None:
        return
    other = [_differing(name, *values) for name, values in known.differences(program).items()]
    if other:
        raise UsageError(
            f"the float64 pass is not of the same program as the plain pass in {path}: "
            f"{'; '.join(other[:_MOST])}. A difference of two programs would count as rounding. "
            f"Record both again with one command: {shlex.join(_command(context, '--float64'))}"
        )


def _differing(name: str, ours: Any, theirs: Any) -> str:
    kind, _, rest = name.partition(" ")
    if kind in ("script", "module"):
        return f"the {name} has changed"
    if kind == "environment":
        return f"the environment variable {rest} has a different value"
    return f"{rest or kind}: {ours!r} there, {theirs!r} now"
