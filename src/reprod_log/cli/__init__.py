"""cli: the command `reprod`."""

from __future__ import annotations

import sys
import traceback
from typing import Any

from reprod_log.errors import ReprodLogError

ALIGNED, NOT_ALIGNED, WRONG_USE, INTERNAL_ERROR, NOTHING_COMPARED = 0, 1, 2, 3, 5


def main() -> None:
    """Run the command and leave with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """The exit code of `reprod` with these arguments; messages go to standard error."""
    import typer

    from reprod_log.cli.app import command

    chosen = command(arguments[0] if arguments else "")
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
    except typer.Abort:
        print("reprod: stopped", file=sys.stderr)
        return WRONG_USE
    except ReprodLogError as error:
        print(f"reprod: {error}", file=sys.stderr)
        return WRONG_USE
    except BrokenPipeError:
        # The reader of our output has gone (reprod show … | head); nothing is wrong.
        sys.stderr.close()
        return ALIGNED
    except Exception:
        traceback.print_exc()
        print("reprod: this is a bug in reprod_log; please report it with the lines above", file=sys.stderr)
        return INTERNAL_ERROR
    return answer if isinstance(answer, int) else ALIGNED


def wrong_use_error() -> Any:
    """What typer raises for wrong arguments. Newer versions carry click inside them, so it is found by inheritance."""
    import typer

    return next(one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException")
