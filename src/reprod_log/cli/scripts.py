"""Scripts that commands are given: whose arguments are whose, and how one is recorded in a process of its own."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from reprod_log.errors import UsageError
from reprod_log.messages import Message, Names, message

ScriptFile = Annotated[Path, typer.Argument(metavar="SCRIPT", help="The script, followed by its own arguments.")]
BothPasses = Annotated[bool, typer.Option("--float64/--plain", help="Record a float64 pass as well.")]


@dataclass(frozen=True)
class Script:
    """A script with its arguments, and how it is recorded."""

    path: Path
    arguments: tuple[str, ...] = ()
    float64: bool = True
    detail: str = "full"
    language: str = "en"

    def __post_init__(self) -> None:
        if not self.path.is_file():
            raise UsageError(f"{self.path} is not a file; give the script to record, then its arguments")

    def record(self, output: Path, *, python: str = "", folder: Path | None = None) -> int:
        """Record in a process of its own, so that every module is read again; its exit code.

        `folder` is where it runs, if not here. What the script prints is not shown; its errors are.
        """
        options = ["--float64"] if self.float64 else []
        options += ["--detail", self.detail, "--language", self.language, "-o", str(output.resolve())]
        apart = ["--"] if any(one.startswith("-") for one in self.arguments) else []
        line = [python or sys.executable, "-m", "reprod_log", "run", *options, str(self.path), *apart, *self.arguments]
        return subprocess.run(line, cwd=folder, stdout=subprocess.DEVNULL, check=False).returncode


def arranged(arguments: list[str], command: Any) -> tuple[list[str], list[str]]:
    """The arguments of `reprod run` with our options before the script, and those after it that look like ours.

    reprod run -o ref train.py --lr 0.1           what follows the script is the script's, a first `--` apart
    reprod run train.py -o ref [-- --lr 0.1]      understood: all that follows the script up to `--` is ours
    reprod run train.py -o ref --lr 0.1           refused with the command to write: it could mean either
    """
    place = _ours(arguments, command)
    apart = arguments[place : place + 1] == ["--"]
    if apart:
        arguments = [*arguments[:place], *arguments[place + 1 :]]
    before, script, after = arguments[:place], arguments[place : place + 1], arguments[place + 1 :]
    if not script:
        return arguments, []
    if any(map(_is_output, before)):
        if after[:1] == ["--"]:
            return [*before, *script, *after[1:]], []
        alike = [] if apart else [one for one in after if _name(one) in _options(command)]
        return [*before, *script, *after], alike
    end = _ours(after, command)
    ours, rest = after[:end], after[end:]
    own = rest[: rest.index("--")] if "--" in rest else rest
    if any(map(_is_output, ours)) and not own:
        return [*before, *ours, *script, *rest[1:]], []
    if any(map(_is_output, [*ours, *own])):
        place = next((place for place, one in enumerate(own) if _is_output(one)), len(own))
        end = place + (1 if own[place:] and own[place] not in ("-o", "--output") else 2)
        theirs = [*own[:place], *own[end:], *rest[len(own) + 1 :]]
        raise UsageError(
            "options of reprod run stand before the script, and what follows the script is the script's own. Write: "
            f"{shlex.join(['reprod', 'run', *before, *ours, *own[place:end], *script, *theirs])}"
        )
    return arguments, []


class ScriptCommand(TyperCommand):
    """A command whose last argument is a script: our options stand anywhere before it, what follows is the script's."""

    SETTINGS: ClassVar = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        left = sum(str(one.param_type_name) == "argument" for one in self.params)
        options: list[str] = []
        others: list[str] = []
        while left and args and args[0] != "--":
            end = _ours(args, self)
            options, others, args = [*options, *args[:end]], [*others, *args[end : end + 1]], args[end + 1 :]
            left -= 1
        return super().parse_args(ctx, [*options, *others, *args])


def note_on(names: list[str]) -> Message:
    """What a user should know whose script is given options that reprod run has, too."""
    return message("run.options_after_script", names=Names(names))


def _ours(arguments: list[str], command: Any) -> int:
    """The place of the first argument that is neither one of the command's options nor its value."""
    options = _options(command)
    place = 0
    while place < len(arguments):
        name = _name(arguments[place])
        if name not in options:
            break
        alone = "=" in arguments[place] or arguments[place] != name or not options[name]
        place += 1 if alone else 2
    return min(place, len(arguments))


def _options(command: Any) -> dict[str, bool]:
    """Every name of an option of the command, and whether it takes a value."""
    options = [one for one in command.params if str(one.param_type_name) == "option"]
    return {name: not one.is_flag for one in options for name in (*one.opts, *one.secondary_opts)}


def _name(argument: str) -> str:
    """The option that an argument names: `-oref` and `--output=ref` have their value with them."""
    if argument.startswith("-") and not argument.startswith("--"):
        return argument[:2]
    return argument.partition("=")[0]


def _is_output(argument: str) -> bool:
    return _name(argument) in ("-o", "--output")
