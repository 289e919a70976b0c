"""Hooks: what is hung on a user's module or put in the place of a function, and taken off again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

Undo = Callable[[], None]
"""Puts back what was changed; calling it twice does no harm."""


def passing() -> None:
    """The undo of something that passes by itself, like a hook on a tensor that dies with its graph."""


class Hook:
    """A callable that reports to one owner only.

    What it hangs on may be copied or pickled while it is watched. Copies get a hook that does nothing, so they are not
    recorded under the original's name.
    """

    __slots__ = ("_call",)
    __torch_unserializable__ = True  # torch need not warn that it does not save the hooks of tensors

    def __init__(self, call: Callable[..., Any] | None = None) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        call = self._call
        return None if call is None else call(*arguments)

    def silence(self) -> None:
        """Do nothing from now on, and release the owner."""
        self._call = None

    def __copy__(self) -> Hook:
        return Hook()

    def __deepcopy__(self, memo: dict[int, Any]) -> Hook:
        return Hook()

    def __reduce__(self) -> tuple[type[Hook], tuple[()]]:
        return (Hook, ())


@contextmanager
def temporarily(write: Callable[[Any], Any], value: Any, before: Any) -> Iterator[None]:
    """While it lasts, a setting of a framework has this value; afterwards the one from before."""
    write(value)
    try:
        yield
    finally:
        write(before)


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
            # Undone already, or another replacement lies on top, which stays.
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
BeforeBackward = Callable[[Sequence[Any], bool], None]
AfterBackward = Callable[[Sequence[tuple[Any, Any]] | None], None]
Clipped = Callable[[list[tuple[Any, Any]]], None]
AnyBefore = Callable[[Any, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]] | None]

_CHANGING = threading.RLock()
"""Held while listeners come and go: the function of a class is looked up and replaced in two steps."""


class ModuleCalls:
    """The listeners to calls of modules, selected where the class is called.

    Nothing is hung on a module itself, so one that is saved, copied or scripted while it is watched has nothing of
    ours, and compiled and scripted modules, which refuse hooks, are not a special case.
    """

    def __init__(self, owner: type, is_tracing: Callable[[], bool]) -> None:
        self._of_any: list[AnyBefore] = []
        # With the module itself, so that no other object gets its id meanwhile.
        self._of_one: dict[int, list[tuple[Any, Before, After]]] = {}
        call: Callable[..., Any] = owner.__call__

        def instead(module: Any, /, *args: Any, **kwargs: Any) -> Any:
            # Asked first: a compiler should see nothing of the rest.
            return call(module, *args, **kwargs) if is_tracing() else self._call(call, module, args, kwargs)

        instead.calls = self  # type: ignore[attr-defined]
        self._undo = replaced(owner, "__call__", instead)

    @classmethod
    def of(cls, owner: type, is_tracing: Callable[[], bool]) -> ModuleCalls:
        """The listeners of a class: the existing ones, unless another function was put on top of them."""
        known = getattr(vars(owner).get("__call__"), "calls", None)
        return known if isinstance(known, cls) else cls(owner, is_tracing)

    def _call(self, call: Callable[..., Any], module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for any_before in tuple(self._of_any):
            changed = any_before(module, args, kwargs)
            if changed is not None:
                args, kwargs = changed
        listeners = tuple(self._of_one.get(id(module), ()))
        if not listeners:
            return call(module, *args, **kwargs)
        output = None
        try:
            for _, before, _ in listeners:
                before(args, kwargs)
            output = call(module, *args, **kwargs)
        finally:
            # After an exception too, so that every listener sees the end of the call.
            for _, _, after in listeners:
                other = after(output)
                output = output if other is None else other
        return output

    def listen(self, module: Any, before: Before, after: After) -> Undo:
        listener = (module, before, after)
        self._of_one.setdefault(id(module), []).append(listener)
        return self._leaving(lambda: self._forget(listener))

    def listen_to_any(self, before: AnyBefore) -> Undo:
        self._of_any.append(before)
        return self._leaving(lambda: self._of_any.remove(before))

    def _forget(self, listener: tuple[Any, Before, After]) -> None:
        listeners = self._of_one[id(listener[0])]
        # By identity: a module may be compared in a way of its own.
        listeners[:] = [one for one in listeners if one is not listener]
        if not listeners:
            del self._of_one[id(listener[0])]

    def _leaving(self, leave: Undo) -> Undo:
        left = False

        def undo() -> None:
            nonlocal left
            with _CHANGING:
                if not left:
                    left = True
                    leave()
                    if not self._of_one and not self._of_any:
                        self._undo()

        return undo


def around_module(owner: type, is_tracing: Callable[[], bool], module: Any, before: Before, after: After) -> Undo:
    """`before(args, kwargs)` and `after(output)` around the calls of one module of the class `owner`."""
    with _CHANGING:
        return ModuleCalls.of(owner, is_tracing).listen(module, before, after)


def before_any_module(owner: type, is_tracing: Callable[[], bool], before: AnyBefore) -> Undo:
    """Have `before(module, args, kwargs)` called before any module of the class `owner`, and use what it returns."""
    with _CHANGING:
        return ModuleCalls.of(owner, is_tracing).listen_to_any(before)


def unhooked(handles: Sequence[Any], hooks: Sequence[Hook]) -> Undo:
    """The undo of hooks that were registered with a framework."""

    def undo() -> None:
        for handle in handles:
            handle.remove()
        for hook in hooks:
            hook.silence()

    return undo


def around_backward(
    owner: Any,
    names: Sequence[tuple[str, bool]],
    tensors_of: Callable[[tuple[Any, ...], dict[str, Any]], Sequence[Any]],
    before: BeforeBackward,
    after: AfterBackward,
) -> Undo:
    """`before` and `after` around the functions of `owner` that run backward; each with whether it accumulates.

    One that does not is given the tensors to differentiate by as its second argument, and returns their gradients.
    """

    def around(function: Callable[..., Any], accumulates: bool) -> Callable[..., Any]:
        @wraps(function)
        def instead(*args: Any, **kwargs: Any) -> Any:
            before(tensors_of(args, kwargs), accumulates)
            returned: Sequence[tuple[Any, Any]] | None = None
            try:
                result = function(*args, **kwargs)
                asked = () if accumulates else args[1] if len(args) > 1 else kwargs.get("inputs", ())
                asked = asked if isinstance(asked, (list, tuple)) else [asked]
                returned = list(zip(asked, result or (), strict=False))
            finally:
                after(returned)
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


def subclasses(owner: Any) -> Iterator[Any]:
    """Every class below another."""
    for below in owner.__subclasses__():
        yield below
        yield from subclasses(below)
