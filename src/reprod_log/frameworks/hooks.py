"""Hooks: what is hung on a user's module or put in the place of a function, and taken off again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import wraps
from typing import Any

Undo = Callable[[], None]
"""Puts back what was changed; calling it twice does no harm."""


def passing() -> None:
    """The undo of something that passes by itself, like a hook on a tensor that dies with its graph."""


class Hook:
    """A callable that reports to one owner only.

    A model may be deep-copied (an EMA of the weights) or pickled while it is watched. The copies get a hook that does
    nothing, so they are not recorded under the original's name, and a plain closure, which cannot be pickled, is not in
    the way.
    """

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any] | None = None) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        call = self._call
        return None if call is None else call(*arguments)

    def silence(self) -> None:
        """Do nothing from now on, and let go of the owner."""
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


Before = Callable[[tuple[Any, ...], dict[str, Any]], None]
After = Callable[[Any], Any]


def hooked(
    register_before: Callable[..., Any], register_after: Callable[..., Any], before: Before, after: After
) -> Undo:
    """`before(args, kwargs)` and `after(output)` as a framework's own hooks around the calls of one module."""
    first = Hook(lambda _, args, kwargs: before(args, kwargs))
    last = Hook(lambda _, args, kwargs, output: after(output))
    handles = (
        register_before(first, with_kwargs=True),
        # Always called: after an exception too, so that nobody waits for the end of the call.
        register_after(last, with_kwargs=True, always_call=True),
    )
    return unhooked(handles, (first, last))


def unhooked(handles: Sequence[Any], hooks: Sequence[Hook]) -> Undo:
    """The undo of hooks that were registered with a framework."""

    def undo() -> None:
        for handle in handles:
            handle.remove()
        for hook in hooks:
            hook.silence()

    return undo


def around_call(call: Callable[..., Any], before: Before, after: After) -> Callable[..., Any]:
    """The function `call` with `before` and `after` around it; what `after` returns stands in for the output."""

    def instead(*args: Any, **kwargs: Any) -> Any:
        before(args, kwargs)
        output = None
        try:
            output = call(*args, **kwargs)
        finally:
            other = after(output)
        return output if other is None else other

    return instead


def before_calls_of(
    owner: type,
    before: Callable[[Any, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]] | None],
) -> Undo:
    """Have `before(module, args, kwargs)` called before any module of the class `owner`, and use what it returns."""
    call: Callable[..., Any] = owner.__call__

    def instead(self: Any, *args: Any, **kwargs: Any) -> Any:
        changed = before(self, args, kwargs)
        if changed is not None:
            args, kwargs = changed
        return call(self, *args, **kwargs)

    return replaced(owner, "__call__", instead)


def around_backward(
    owner: Any,
    names: Sequence[tuple[str, bool]],
    tensors_of: Callable[[tuple[Any, ...], dict[str, Any]], Sequence[Any]],
    before: Callable[[Sequence[Any], bool], None],
    after: Callable[[bool], None],
) -> Undo:
    """`before` and `after` around the functions of `owner` that run backward; each with whether it accumulates."""

    def around(function: Callable[..., Any], accumulates: bool) -> Callable[..., Any]:
        @wraps(function)
        def instead(*args: Any, **kwargs: Any) -> Any:
            before(tensors_of(args, kwargs), accumulates)
            well = False
            try:
                result = function(*args, **kwargs)
                well = True
            finally:
                after(well)
            return result

        return instead

    undos = ExitStack()
    for name, accumulates in names:
        undos.callback(replaced(owner, name, around(getattr(owner, name), accumulates)))
    return undos.close


@dataclass(frozen=True)
class ScalerMethods:
    """Where a framework's gradient scaler scales, unscales and steps, and how it is asked what it did."""

    scale: tuple[type, str]
    unscale: tuple[type, str]
    step: tuple[type, str]
    is_enabled: Callable[[Any], bool]
    scale_of: Callable[[Any], float]
    found_infinite: Callable[[Any, Any], bool]


def around_scaler(
    methods: ScalerMethods,
    is_tensor: Callable[[object], bool],
    scaled: Callable[[Any, Any], None],
    unscaled: Callable[[Any, float], None],
    skipped: Callable[[Any], None],
) -> Undo:
    """Report what a gradient scaler does: `scaled(loss, scaled_loss)`, `unscaled(optimizer, scale)`, `skipped`."""
    scale, unscale, step = (getattr(*place) for place in (methods.scale, methods.unscale, methods.step))

    @wraps(scale)
    def report_scale(self: Any, loss: Any) -> Any:
        result = scale(self, loss)
        if is_tensor(loss):
            scaled(loss, result)
        return result

    @wraps(unscale)
    def report_unscale(self: Any, optimizer: Any) -> Any:
        result = unscale(self, optimizer)
        if methods.is_enabled(self):
            unscaled(optimizer, methods.scale_of(self))
        return result

    @wraps(step)
    def report_step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = step(self, optimizer, *args, **kwargs)
        if methods.is_enabled(self) and methods.found_infinite(self, optimizer):
            skipped(optimizer)
        return result

    undos = ExitStack()
    for place, value in ((methods.scale, report_scale), (methods.unscale, report_unscale), (methods.step, report_step)):
        undos.callback(replaced(*place, value))
    return undos.close


def gradient_hook(tensor: Any, call: Callable[[Any], None]) -> Undo:
    """A hook on the gradient of a tensor that takes one; of a computed tensor it passes with the graph."""
    hook = Hook(call)
    handle = tensor.register_hook(hook)
    # The handle of a computed tensor may hold the tensor, so it is not kept.
    return unhooked((handle,), (hook,)) if tensor.is_leaf else passing
