"""Gradients: reads the parameters' gradients at their named points: raw, unscaled, clipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reprod_log.capture.session import Session
from reprod_log.capture.stage import Staged
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

    def attach_new(self) -> None:
        """Listen to every chosen parameter that takes a gradient now; more may be thawed later."""
        session = self._session
        phases = session.selection.phases
        for slot in session.tree.slots:
            if phases & {"gradient", "clip", "update"} and session.chosen(slot):
                self._attach(slot, self._attached, self._hearer(slot))
            elif "loss" in phases:
                # Nothing to record, but whether the pass that began at a loss came here.
                self._attach(slot, self._witnesses, self._witness)

    def _attach(self, slot: Slot, known: dict[Slot, Undo], hear: Callable[[Any], None]) -> None:
        if slot not in known:
            undo = self._session.hooks.on_gradient(slot.tensor, self._session.one_at_a_time(hear))
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

    def _hearer(self, slot: Slot) -> Callable[[Any], None]:
        def hear(gradient: Any) -> None:
            session = self._session
            session.passes.reached = True
            if not session.listening:
                return
            self._fresh.pop(slot, None)
            self._fresh[slot] = None
            self.touched.add(slot)
            if session.ranks > 1 and "gradient" in session.selection.phases:
                session.stage.add(session.stage_parameter("gradient", slot, gradient, role="local"))

        return hear

    def gathered(self, node: Node) -> None:
        """Listen to what stands in for the node's parameters while it is called: the wholes that a wrapper gathers of
        pieces. Their gradients are what this process contributes.
        """
        for slot in self._attached:
            stand_in = getattr(node.content, slot.name, None) if slot.node is node else None
            if stand_in is None or stand_in is slot.tensor or id(stand_in) in self._stand_ins:
                continue
            if self._session.is_tensor(stand_in):
                undo = self._session.hooks.on_gradient(
                    stand_in, self._session.one_at_a_time(self._hearer_of_part(slot))
                )
                if undo is not None and undo is not passing:
                    self._stand_ins[id(stand_in)] = stand_in, undo

    def _hearer_of_part(self, slot: Slot) -> Callable[[Any], None]:
        def hear(gradient: Any) -> None:
            session = self._session
            session.passes.reached = True
            if session.listening:
                self.touched.add(slot)
                if "gradient" in session.selection.phases:
                    session.stage.add(session.stage_parameter("gradient", slot, gradient, role="local"))

        return hear

    def _delivered(self) -> None:
        """Gradients of distributed parameters are put into their place when all is reduced; nobody hears it."""
        for slot in self._attached:
            if slot in self._fresh or self._session.tree.piece(slot) is None:
                continue
            if self._session.hooks.gradient(slot.tensor) is not None:
                self._fresh[slot] = None
                self.touched.add(slot)

    def after_backward(self) -> None:
        """Read what the pass has added to. Later passes of the same step read again: the sum counts."""
        session = self._session
        if session.listening:
            if session.tree.has_pieces:
                self._delivered()
            for slot in self._fresh:
                gradient = session.hooks.gradient(slot.tensor)
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
            # A backward pass that nobody told us about.
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
            gradient = session.hooks.gradient(slot.tensor)
            if slot in self.touched and gradient is not None:
                facts = {"scale": scale, **self._facts(slot)}
                staged = session.stage_parameter("gradient", slot, gradient, role="unscaled", meta=facts)
                session.stage.add(staged)
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
            staged = session.stage_parameter("clip", slot, gradient, role="clipped", meta=self._facts(slot))
            session.stage.add(staged)
            if staged is not None:
                self._last[slot] = staged.hash
