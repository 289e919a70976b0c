"""Losses: found where a backward pass starts, or given by the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reprod_log.capture.session import Session
from reprod_log.capture.stage import Staged
from reprod_log.errors import CaptureError

_BEFORE_A_LOSS = ("data", "forward", "loss")


class Losses:
    """Records each loss once, in its place before the backward pass, even when it is logged after the update."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._scaled: list[tuple[Any, Any]] = []
        self._found: list[Staged] = []
        self._place = 0

    def reset(self) -> None:
        self._scaled.clear()
        self._found.clear()

    def scaled(self, loss: Any, scaled_loss: Any) -> None:
        """A gradient scaler has multiplied `loss`; what is backpropagated is not the loss itself."""
        self._scaled.append((scaled_loss, loss))

    def found(self, tensors: Sequence[Any]) -> None:
        """A backward pass starts at these tensors; when it is over, `settle` tells whether they are losses of ours."""
        session = self._session
        self._found.clear()
        self._place = len(session.stage.waiting)
        for tensor in tensors:
            known = next((pair for pair in self._scaled if pair[0] is tensor), None)
            if known is not None:
                self._scaled = [pair for pair in self._scaled if pair is not known]
            loss = tensor if known is None else known[1]
            # Anything but one number is a gradient handed in from outside, not a loss.
            if session.wants("loss") and _count(loss) == 1:
                staged = session.stage.make("loss", loss, step=session.steps.number, root=None, inside="loss")
                if staged is not None:
                    self._found.append(staged)

    def settle(self, *, are_ours: bool) -> None:
        """Record what was found, in its place before the pass, if the pass was one of the watched models'."""
        for staged in self._found if are_ours else ():
            if self._same(staged, found=False) is None:
                staged.found = True
                self._session.stage.add(staged, position=self._place)
                self._place += 1
        self._found.clear()

    def given(self, staged: Staged) -> None:
        """The user says that this is a loss."""
        same = self._same(staged, found=True)
        if same is not None:
            # It is the one that the backward pass started from; now its name is known.
            same.inside, same.role, same.found = staged.inside, staged.role, False
            return
        self._session.stage.add(staged, position=self._position())

    def _same(self, staged: Staged, *, found: bool) -> Staged | None:
        """The waiting loss with the same value that was found (or given) before."""
        for other in self._session.stage.waiting:
            if other.phase == "loss" and other.found is found and _equal(other, staged):
                return other
        return None

    def _position(self) -> int:
        waiting = self._session.stage.waiting
        for place in range(len(waiting) - 1, -1, -1):
            if waiting[place].phase in _BEFORE_A_LOSS:
                return place + 1
        return 0


def check_scalar(name: str, value: Any) -> None:
    """Raise CaptureError unless `value` is one number."""
    shape = tuple(getattr(value, "shape", ()))
    if _count(value) != 1:
        raise CaptureError(
            f"the loss {name!r} has shape {list(shape)}, so it is not one number. Reduce it first (loss.mean()), or "
            f"record it as it is with run.log({name!r}, value)."
        )


def _count(value: Any) -> int:
    size = 1
    for length in getattr(value, "shape", ()):
        size *= int(length)
    return size


def _equal(one: Staged, other: Staged) -> bool:
    if one.array is None or other.array is None or one.array.size != 1 or other.array.size != 1:
        return False
    # `loss.item()` is the same number as the tensor; NaN is the same as NaN here.
    first, second = complex(one.array.reshape(-1)[0]), complex(other.array.reshape(-1)[0])
    return first == second or (first != first and second != second)
