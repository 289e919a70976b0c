"""Gradients of parameters at their named points (raw, unscaled, clipped), and the losses that passes begin at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from reprod_log.capture.session import Session, StepSession
from reprod_log.capture.staging import Place, Staged
from reprod_log.errors import CaptureError
from reprod_log.frameworks.hooks import Undo, passing
from reprod_log.frameworks.module_tree import Node, Slot


class Gradients:
    """Knows which parameters got a gradient in this step, and what it was when it was last read.

    raw        after the (last) backward pass of the step, as it stands in the parameter
    local      with several processes: what this one contributed, before the reduction
    unscaled   after a gradient scaler divided by its scale
    clipped    what the optimizer uses, recorded only when it is no longer what was read before
    """

    def __init__(self, session: Session, terms: Callable[[Slot], int | None]) -> None:
        self._session = session
        self._terms = terms
        self._attached: dict[Slot, Undo] = {}
        self._witnesses: dict[Slot, Undo] = {}
        self._fresh: dict[Slot, None] = {}
        self._waiting: dict[Slot, Staged] = {}
        self._last: dict[Slot, str] = {}
        self._stand_ins: dict[int, tuple[Any, Undo]] = {}
        self.touched: set[Slot] = set()
        """Those that got a gradient in this step."""
        self.new: dict[Slot, None] = {}
        """Those that got one since an optimizer last stepped."""

    def attach_new(self) -> None:
        """Listen to every chosen parameter that takes a gradient now; more may be thawed later."""
        session = self._session
        phases = session.selection.phases
        for slot in session.tree.slots:
            if phases & {"gradient", "clip", "update"} and session.chosen(slot):
                self._attach(slot, self._attached, self._on_gradient_of(slot))
            elif "loss" in phases:
                # Nothing to record, but whether the pass that began at a loss came here.
                self._attach(slot, self._witnesses, self._witness)

    def _attach(self, slot: Slot, known: dict[Slot, Undo], receive: Callable[[Any], None]) -> None:
        if slot not in known:
            undo = self._session.eager.on_gradient(slot.tensor, self._session.guard(receive))
            if undo is not None:
                known[slot] = undo

    def _witness(self, gradient: Any) -> None:
        self._session.passes.reached = True

    def detach(self) -> None:
        for undo in (*self._attached.values(), *self._witnesses.values()):
            undo()
        self._attached.clear()
        self._witnesses.clear()
        for _, undo in self._stand_ins.values():
            undo()
        self._stand_ins.clear()
        self.reset()

    def reset(self) -> None:
        """A new step begins."""
        self._fresh.clear()
        self._waiting.clear()
        self._last.clear()
        self.touched.clear()
        self.new.clear()

    def _on_gradient_of(self, slot: Slot, *, gathered: bool = False) -> Callable[[Any], None]:
        """What receives the gradient of a parameter, or of the whole that was `gathered` of its pieces."""

        def receive(gradient: Any) -> None:
            session = self._session
            session.passes.reached = True
            if not session.listening:
                return
            if not gathered:
                self._fresh.pop(slot, None)
                self._fresh[slot] = None
            self._touch(slot)
            if (gathered or session.ranks > 1) and "gradient" in session.selection.phases:
                session.stage.add(session.stage_parameter("gradient", slot, gradient, role="local"))

        return receive

    def _touch(self, slot: Slot) -> None:
        self.touched.add(slot)
        self.new[slot] = None

    def gathered(self, node: Node) -> None:
        """Listen to what stands in for the node's parameters while it is called: the wholes that a wrapper gathers of
        pieces. Their gradients are what this process contributes.
        """
        for slot in self._attached:
            stand_in = getattr(node.content, slot.name, None) if slot.node is node else None
            if stand_in is None or stand_in is slot.tensor or id(stand_in) in self._stand_ins:
                continue
            if self._session.is_tensor(stand_in):
                undo = self._session.eager.on_gradient(
                    stand_in, self._session.guard(self._on_gradient_of(slot, gathered=True))
                )
                if undo is not None and undo is not passing:
                    self._stand_ins[id(stand_in)] = stand_in, undo

    def _delivered(self) -> None:
        """Gradients of distributed parameters are put into their place when all is reduced; no hook is called."""
        for slot in self._attached:
            if slot in self._fresh or self._session.tree.piece(slot) is None:
                continue
            if self._session.eager.gradient(slot.tensor) is not None:
                self._fresh[slot] = None
                self._touch(slot)

    def after_backward(self) -> None:
        """Read what the pass has added to. Later passes of the same step read again: the sum counts."""
        session = self._session
        if session.listening:
            if session.tree.has_pieces:
                self._delivered()
            for slot in self._fresh:
                gradient = session.eager.gradient(slot.tensor)
                if gradient is not None:
                    self._waiting.pop(slot, None)
                    self._read(slot, gradient)
        self._fresh.clear()

    def _read(self, slot: Slot, gradient: Any) -> None:
        session = self._session
        if "gradient" not in session.selection.phases:
            self._last[slot] = session.stage.digest(gradient)
            return
        staged = session.stage_parameter("gradient", slot, gradient, role="raw", meta=self._facts(slot))
        if staged is not None:
            self._waiting[slot] = staged
            self._last[slot] = staged.hash

    def _facts(self, slot: Slot) -> dict[str, Any]:
        if len(slot.tensor.shape) > 1:
            return {}
        terms = self._terms(slot)
        return {} if terms is None else {"terms": terms}

    def flush(self) -> None:
        """Put what was read in its place; those that no optimizer asks for too, for they came at the same time."""
        if self._fresh:
            # A backward pass that no hook reported.
            self.after_backward()
        for staged in self._waiting.values():
            self._session.stage.add(staged)
        self._waiting.clear()

    def unscaled(self, slots: Sequence[Slot], scale: float) -> None:
        """A gradient scaler has divided the gradients by `scale`."""
        session = self._session
        self.flush()
        if not session.wants("gradient"):
            return
        for slot in slots:
            gradient = session.eager.gradient(slot.tensor)
            if slot in self.touched and gradient is not None:
                self._put("gradient", "unscaled", slot, gradient, {"scale": scale})

    def _put(self, phase: str, role: str, slot: Slot, gradient: Any, facts: Mapping[str, Any]) -> None:
        """Record a gradient in its place, as what was last read."""
        facts = {**facts, **self._facts(slot)}
        staged = self._session.stage_parameter(phase, slot, gradient, role=role, meta=facts)
        self._session.stage.add(staged)
        if staged is not None:
            self._last[slot] = staged.hash

    def used(self, gradients: Sequence[tuple[Slot, Any]]) -> None:
        """These are what the optimizer is about to use."""
        session = self._session
        if not session.wants("clip"):
            return
        read = [(slot, gradient) for slot, gradient in gradients if slot in self._last and gradient is not None]
        if all(session.stage.digest(gradient) == self._last[slot] for slot, gradient in read):
            return
        for slot, gradient in read:
            self._put("clip", "clipped", slot, gradient, {})


_BEFORE_A_LOSS = ("data", "forward", "loss")


class Losses:
    """Records each loss once, in its place before the backward pass, even when it is logged after the update."""

    def __init__(self, session: StepSession) -> None:
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
                staged = session.stage.make(Place("loss", session.steps.number, "loss"), loss)
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
            same.place, same.found = same.place._replace(inside=staged.place.inside, role=staged.place.role), False
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
    return prod(map(int, getattr(value, "shape", ())))


def _equal(one: Staged, other: Staged) -> bool:
    if one.array is None or other.array is None or one.array.size != 1 or other.array.size != 1:
        return False
    # `loss.item()` is the same number as the tensor; NaN is the same as NaN here.
    first, second = complex(one.array.reshape(-1)[0]), complex(other.array.reshape(-1)[0])
    return first == second or (first != first and second != second)
