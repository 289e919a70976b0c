"""cli: the command `reprod`."""

from __future__ import annotations

import sys
import traceback
from typing import Any

from reprod_log.errors import ReprodLogError

ALIGNED, NOT_ALIGNED, WRONG_USE, INTERNAL_ERROR, NOTHING_COMPARED = 0, 1, 2, 3, 5
INTERRUPTED, READER_GONE = 130, 141
"""What shells say of a program that was ended by Ctrl-C (128 + SIGINT), or by writing to nobody (128 + SIGPIPE)."""


def main() -> None:
    """Run the command and leave with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """The exit code of `reprod` with these arguments; messages go to standard error."""
    import typer

    from reprod_log.cli.app import command

    chosen = command(arguments)
    if arguments[:1] == ["run"]:
        from reprod_log.cli.arguments import options_first

        arguments = options_first(arguments, chosen.commands["run"])
    try:
        answer = chosen.main(args=arguments, prog_name="reprod", standalone_mode=False)
    except typer.Exit as leaving:
        return int(leaving.exit_code)
    except wrong_use_error() as error:
        error.show()
        return WRONG_USE
    except typer.Abort as error:
        return _stopped(error)
    except ReprodLogError as error:
        print(f"reprod: {error}", file=sys.stderr)
        return WRONG_USE
    except BrokenPipeError:
        return _unheard()
    except SystemExit as leaving:
        # click leaves with 1, which is our word for "not aligned", when the reader of its output has gone.
        if isinstance(leaving.__context__, BrokenPipeError):
            return _unheard()
        raise
    except OSError as error:
        if error.filename is None:
            return _bug()
        print(f"reprod: {error.strerror or error}: {error.filename}. Look at the path and its rights.", file=sys.stderr)
        return WRONG_USE
    except Exception:
        return _bug()
    return answer if isinstance(answer, int) else ALIGNED


def _unheard() -> int:
    """The reader of our output has gone (reprod show … | head) before there was an answer."""
    from reprod_log.report.terminal import drop_output

    drop_output(sys.__stdout__ or sys.stdout)
    return READER_GONE


def _bug() -> int:
    """Show what went wrong inside, and ask for it to be told."""
    traceback.print_exc()
    print("reprod: this is a bug in reprod_log; please report it with the lines above", file=sys.stderr)
    return INTERNAL_ERROR


def _stopped(error: BaseException) -> int:
    """Ctrl-C, or a question that nobody is there to answer: typer makes the same of both."""
    if isinstance(error.__cause__ or error.__context__, EOFError):
        print("reprod: a question was asked and nobody answered; give --yes to go on without", file=sys.stderr)
        return WRONG_USE
    print("reprod: stopped", file=sys.stderr)
    return INTERRUPTED


def wrong_use_error() -> Any:
    """What typer raises for wrong arguments. Newer versions carry click inside them, so it is found by inheritance."""
    import typer

    return next(one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException")
