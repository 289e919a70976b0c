"""Hook: what is hung on a user's module, and taken off again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Undo = Callable[[], None]
"""Puts back what was changed; calling it twice does no harm."""


def passing() -> None:
    """The undo of something that passes by itself, like a hook on a tensor that dies with its graph."""


class Hook:
    """A callable that hears for one owner only.

    A model may be deep-copied (an EMA of the weights) or pickled while it is watched. The copies get a deaf hook, so
    they are not recorded under the original's name, and a plain closure, which cannot be pickled, is not in the way.
    """

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any] | None = None) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        call = self._call
        return None if call is None else call(*arguments)

    def silence(self) -> None:
        """Hear nothing from now on, and let go of the owner."""
        self._call = None

    def __copy__(self) -> Hook:
        return Hook()

    def __deepcopy__(self, memo: dict[int, Any]) -> Hook:
        return Hook()

    def __reduce__(self) -> tuple[type[Hook], tuple[()]]:
        return (Hook, ())


_MARK = "_reprod_log_replacement"


@dataclass(eq=False)
class _Replacement:
    had: bool
    before: Any
    value: Any
    is_over: bool = False


def replaced(owner: Any, name: str, value: Any) -> Undo:
    """Put `value` in the place of the attribute `name`, and give back how to undo it.

    What was only inherited is removed again rather than set, so that the owner is left as it was found.
    """
    own = vars(owner)
    place = _Replacement(name in own, own.get(name), value)
    setattr(value, _MARK, place)
    setattr(owner, name, value)

    def undo() -> None:
        place.is_over = True
        if vars(owner).get(name) is not value:
            # Undone already, or somebody else put theirs on top; theirs stays.
            return
        below = place
        # Those that were undone while others lay on top of them go now.
        while isinstance(next_one := getattr(below.before, _MARK, None), _Replacement):
            if not next_one.is_over or next_one.value is not below.before:
                break
            below = next_one
        if below.had:
            setattr(owner, name, below.before)
        else:
            delattr(owner, name)

    return undo
