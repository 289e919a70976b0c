"""The typer application: every command of `reprod`, one file each in cli/commands."""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import typer

from reprod_log.cli import commands


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
        told = "" if name in chosen else _docstring(name)
        if told:
            app.command(name)(_listed(told))
        else:
            module = import_module(f"{commands.__name__}.{name}")
            app.command(module.NAME, context_settings=getattr(module, "SETTINGS", None))(module.run)
    return typer.main.get_group(app)


def _application() -> typer.Typer:
    app = typer.Typer(
        name="reprod",
        help="Prove that a ported neural network computes the same thing, or see where it first goes wrong and why.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback(invoke_without_command=True)(_root)
    return app


def _root(version: bool = typer.Option(False, "--version", help="Show the version and leave.")) -> None:
    if version:
        from reprod_log.version import __version__

        typer.echo(f"reprod_log {__version__}")
        raise typer.Exit


def _docstring(name: str) -> str:
    """What a command says of itself, read from its file without running it; empty where there is no source."""
    try:
        source = pkgutil.get_data(commands.__name__, f"{name}.py")
    except OSError:
        return ""
    functions = (node for node in ast.parse(source or "").body if isinstance(node, ast.FunctionDef))
    return next((ast.get_docstring(node) or "" for node in functions if node.name == "run"), "")


def _listed(told: str) -> Callable[[], None]:
    """A command that is only shown in a list of commands."""

    def run() -> None:
        raise AssertionError("a command that was not asked for is not run")

    run.__doc__ = told
    return run
