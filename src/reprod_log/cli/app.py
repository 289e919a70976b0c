"""The typer application: every command of `reprod`, one file each in cli/commands, and what becomes of its errors."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from typing import Annotated, Any, get_origin, get_type_hints

import typer
from typer.core import TyperGroup

from reprod_log.cli import ALIGNED, INTERNAL_ERROR, INTERRUPTED, READER_GONE, WRONG_USE, commands, loading
from reprod_log.cli.ending import documented, give
from reprod_log.cli.output import printable, tolerant_output
from reprod_log.errors import ReprodLogError
from reprod_log.version import __version__

_WRONG_ARGUMENTS: Any = next(one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException")
"""What typer raises for wrong arguments. Newer versions bring their own click, so it is found by inheritance."""


def exit_code_of(arguments: list[str], *, own_process: bool = False) -> int:
    """The exit code of `reprod` with these arguments; messages go to standard error."""
    with tolerant_output(), documented(arguments) as document:
        code = INTERNAL_ERROR
        try:
            code = _exit_code_of(arguments, own_process)
        finally:
            document.end(code, next((one for one in arguments if not one.startswith("-")), ""))
        return code


def _exit_code_of(arguments: list[str], own_process: bool) -> int:
    arguments = _understood(arguments)
    try:
        with loading(own_process):
            application = command(arguments)
        answer = application.main(args=arguments, prog_name="reprod", standalone_mode=False)
    except typer.Exit as leaving:
        return int(leaving.exit_code)
    except _WRONG_ARGUMENTS as error:
        error.show()
        why = error.format_message()
        give(lambda: {"error": why})
        return WRONG_USE
    except typer.Abort as error:
        return _stopped(error)
    except ReprodLogError as error:
        return _wrong_use(printable(str(error)))
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit as leaving:
        # click leaves with 1, which means "not aligned" here, when the reader of its output has gone.
        if isinstance(leaving.__context__, BrokenPipeError):
            return _reader_gone()
        raise
    except OSError as error:
        if error.filename is None:
            return _bug()
        where = printable(str(error.filename))
        return _wrong_use(f"{error.strerror or error}: {where}. Check the path and its permissions.")
    except Exception:
        return _bug()
    return answer if isinstance(answer, int) else ALIGNED


def _understood(arguments: list[str]) -> list[str]:
    """`reprod align` is `reprod compare`, as `align` is in Python; given a plan it runs it, as it did at first."""
    if arguments[:1] != ["align"]:
        return arguments
    return ["plan" if any(one.endswith(".py") for one in arguments) else "compare", *arguments[1:]]


def _wrong_use(why: str) -> int:
    print(f"reprod: {why}", file=sys.stderr)
    give(lambda: {"error": why})
    return WRONG_USE


def _reader_gone() -> int:
    """The reader of our output has gone (reprod show … | head) before there was an answer."""
    # Not at the top: most commands never need a terminal's machinery.
    from reprod_log.report.terminal import drop_output

    drop_output(sys.__stdout__ or sys.stdout)
    return READER_GONE


def _bug() -> int:
    """Show what went wrong inside, and ask for a report."""
    traceback.print_exc()
    why = traceback.format_exc(limit=0).strip()
    give(lambda: {"error": why})
    print("reprod: this is a bug in reprod_log; please report it with the lines above", file=sys.stderr)
    return INTERNAL_ERROR


def _stopped(error: BaseException) -> int:
    """Ctrl-C, or a question that nobody is there to answer: typer makes the same of both."""
    if isinstance(error.__cause__ or error.__context__, EOFError):
        print(
            "reprod: there is no terminal to ask a question; give --yes to continue without asking",
            file=sys.stderr,
        )
        return WRONG_USE
    print("reprod: stopped", file=sys.stderr)
    return INTERRUPTED


def command(arguments: Sequence[str] | None = None) -> Any:
    """The command, assembled from the files in cli/commands (a file's name is the command's name).

    With the `arguments` that it is going to be called with, only what they name is loaded: no command waits for what
    others need. Where the first of them names none (`reprod --help`), the others are there to be listed.
    """
    app = _application()
    files = sorted(module.name for module in pkgutil.iter_modules(commands.__path__))
    chosen = files if arguments is None else [name for name in files if name in arguments]
    if arguments and arguments[0] in files:
        files = chosen = [arguments[0]]
    for name in files:
        docstring = "" if name in chosen else _docstring(name)
        if docstring:
            app.command(name)(_listed(docstring))
        else:
            module = import_module(f"{commands.__name__}.{name}")
            kind = getattr(module, "Command", None)
            app.command(module.NAME, cls=kind, context_settings=getattr(kind, "SETTINGS", None))(flattened(module.run))
    return typer.main.get_group(app)


def flattened(run: Callable[..., int]) -> Callable[..., int]:
    """The function as typer reads it: a parameter whose type is a group of options stands for the options in it."""
    hints = get_type_hints(run, include_extras=True)
    groups = {name: list(_options_of(kind)) for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(run).parameters.items():
        parameters += groups.get(name) or [parameter.replace(annotation=hints[name], kind=parameter.KEYWORD_ONLY)]

    def flat(**given: Any) -> int:
        for name, options in groups.items():
            given[name] = hints[name](**{option.name: given.pop(option.name) for option in options})
        return run(**given)

    flat.__doc__ = run.__doc__
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return flat


def _options_of(group: Any) -> Iterator[inspect.Parameter]:
    """The fields of a group that are declared as options; the others are set by commands only."""
    hints = get_type_hints(group, include_extras=True)
    for one in fields(group):
        if get_origin(hints[one.name]) is Annotated:
            usual = one.default if one.default_factory is MISSING else one.default_factory()
            yield inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=usual, annotation=hints[one.name])


_GROUPS = {
    "Record": ("run", "watch", "record", "show", "convert"),
    "Compare": ("compare", "zoom", "repro", "map", "judge"),
    "The same program over time": ("baseline", "bisect"),
    "Report": ("report", "serve", "site", "mcp"),
    "Whole reproductions and parallel runs": ("plan", "check", "ranks"),
}
_OTHERS = "This machine"
_EXAMPLES = """Examples:

\b
  reprod run --float64 -o ref train_torch.py     record a script as it is
  reprod compare ref cand --report report.html   is it the same? if not, why?
  reprod plan plan.py                            all steps of a reproduction

REF is always the side that is right; CAND is the port. Every command has --help."""


class _Commands(TyperGroup):
    """The list of commands in groups, each with its whole first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        left = dict.fromkeys(self.list_commands(ctx))
        grouped = {title: [name for name in names if name in left] for title, names in _GROUPS.items()}
        for name in (name for names in grouped.values() for name in names):
            del left[name]
        width = max((len(name) for name in self.commands), default=0)
        for title, names in {**grouped, _OTHERS: list(left)}.items():
            lines = [(name.ljust(width), _first_line(self.commands[name].help or "")) for name in names]
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)


def _first_line(text: str) -> str:
    return " ".join(text.strip().split("\n\n")[0].split())


def _application() -> typer.Typer:
    app = typer.Typer(
        cls=_Commands,
        epilog=_EXAMPLES,
        context_settings={"help_option_names": ["-h", "--help"]},
        name="reprod",
        help="Prove that a ported neural network computes the same thing, or find where it first differs and why.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback(invoke_without_command=True)(_root)
    return app


def _root(version: bool = typer.Option(False, "--version", help="Show the version and exit.")) -> None:
    if version:
        typer.echo(f"reprod_log {__version__}")
        raise typer.Exit


def _docstring(name: str) -> str:
    """The docstring of a command, read from its file without running it; empty where there is no source."""
    try:
        source = pkgutil.get_data(commands.__name__, f"{name}.py")
    except OSError:
        return ""
    functions = (node for node in ast.parse(source or "").body if isinstance(node, ast.FunctionDef))
    return next((ast.get_docstring(node) or "" for node in functions if node.name == "run"), "")


def _listed(docstring: str) -> Callable[[], None]:
    """A command that is only shown in a list of commands."""

    def run() -> None:
        raise AssertionError("a command that was not asked for is not run")

    run.__doc__ = docstring
    return run
