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
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """The exit code of `reprod` with these arguments; messages go to standard error."""
    with loading():
        # Not at the top: the application and its commands import the exit codes from here.
        from reprod_log.cli.app import exit_code_of

    return exit_code_of(arguments)


@contextmanager
def loading() -> Iterator[None]:
    """While modules are loaded nothing becomes garbage, and looking for some takes a twentieth of a short command."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
