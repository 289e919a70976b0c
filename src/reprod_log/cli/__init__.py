"""cli: the command `reprod`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

ALIGNED, NOT_ALIGNED, WRONG_USE, INTERNAL_ERROR, NOT_PROVEN, NOTHING_COMPARED, INCOMPLETE = 0, 1, 2, 3, 4, 5, 6
INTERRUPTED, READER_GONE = 130, 141
"""What shells report of a program that was ended by Ctrl-C (128 + SIGINT), or by writing to nobody (128 + SIGPIPE)."""


def main() -> None:
    """Run the command and leave with its exit code."""
    sys.exit(run(sys.argv[1:], own_process=True))


def run(arguments: list[str], *, own_process: bool = False) -> int:
    """The exit code of `reprod` with these arguments; messages go to standard error."""
    with loading(own_process):
        # Not at the top: the application and its commands import the exit codes from here.
        from reprod_log.cli.app import exit_code_of

    return exit_code_of(arguments, own_process=own_process)


@contextmanager
def loading(own_process: bool) -> Iterator[None]:
    """While modules are loaded nothing becomes garbage, and looking for some takes a tenth of a short command.

    In a process of our own, nothing that is loaded by then is looked at later either.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if own_process:
            gc.freeze()
        if collects:
            gc.enable()
