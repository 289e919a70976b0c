"""The typer application: every command of `reprod`, one file each in cli/commands."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any

import typer

from reprod_log.cli import commands

app = typer.Typer(
    name="reprod",
    help="Prove that a ported neural network computes the same thing, or see where it first goes wrong and why.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Show the version and leave.")) -> None:
    if version:
        from reprod_log import __version__

        typer.echo(f"reprod_log {__version__}")
        raise typer.Exit


def command(first: str = "") -> Any:
    """The command, assembled from the files in cli/commands (a file's name is the command's name).

    When the `first` argument names a command, only its file is loaded: no command waits for what others need.
    """
    files = sorted(module.name for module in pkgutil.iter_modules(commands.__path__))
    for found in [first] if first in files else files:
        module = import_module(f"{commands.__name__}.{found}")
        if not any(known.name == module.NAME for known in app.registered_commands):
            app.command(module.NAME, context_settings=getattr(module, "SETTINGS", None))(module.run)
    return typer.main.get_group(app)
