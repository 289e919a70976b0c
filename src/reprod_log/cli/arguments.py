"""Arguments of `reprod run`, whose script has arguments of its own: both orders that people write are understood."""

from __future__ import annotations

from typing import Any

_NEEDED = frozenset({"-o", "--output"})


def options_first(arguments: list[str], command: Any) -> list[str]:
    """The arguments of `reprod run` with our options before the script.

        reprod run -o ref train.py --lr 0.1       what follows the script is the script's
        reprod run train.py -o ref [-- --lr 0.1]  our options follow it, until the first that is not ours, or `--`

    Only a call without -o before the script is read the second way: otherwise an option of the script that is called
    like one of ours would be taken from it.
    """
    place = _ours(arguments, 1, command)
    if place >= len(arguments) or _NEEDED & {one.partition("=")[0] for one in arguments[:place]}:
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
