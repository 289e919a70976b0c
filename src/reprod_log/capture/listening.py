"""Listening: all listeners of a run, put on and taken off together, and what they do when a step ends."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from math import prod
from typing import Any

from reprod_log.capture.calls import Calls
from reprod_log.capture.gradients import Gradients, Losses
from reprod_log.capture.provenance import DataHash
from reprod_log.capture.session import Session
from reprod_log.capture.unseen import Unseen
from reprod_log.capture.updates import Updates
from reprod_log.frameworks.hooks import around_scaler
from reprod_log.frameworks.module_tree import Node, Root, Slot
from reprod_log.messages import Code, message

# What is replaced in a framework is read and written in two steps, which threads must not mix.
_REPLACING = threading.RLock()


class Listening:
    """Follows modules, backward passes, gradient scalers and optimizers, and closes a step when it is over."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.gradients = Gradients(session, self._terms)
        self.calls = Calls(session, self._before_outermost, self.gradients.gathered)
        self.unseen = Unseen(session, self.calls, self.gradients)
        self.updates = Updates(session, self.gradients, self.unseen)
        self.losses = Losses(session)
        self.data_hash = DataHash()
        self._undo = ExitStack()

    def to_process(self) -> None:
        """Listen to what belongs to no model: backward passes and gradient scalers."""
        eager, guard = self.session.eager, self.session.guard
        with _REPLACING:
            self._undo.callback(eager.on_backward(guard(self._before_backward), guard(self._after_backward)))
            scaler = eager.scaler()
            if scaler is not None:
                listeners = guard(self.losses.scaled), guard(self.updates.unscaled), guard(self._skipped)
                self._undo.callback(around_scaler(scaler, self.session.is_tensor, *listeners))

    def to_model(self, root: Root) -> None:
        for node in self.session.tree.add(root):
            if node.can_record:
                self.calls.attach(node)
        self.gradients.attach_new()

    def to_optimizer(self, name: str, optimizer: Any) -> None:
        self.session.steps.has_optimizers = True
        with _REPLACING:
            self._undo.callback(self.updates.attach(name, optimizer))

    @property
    def is_busy(self) -> bool:
        """Whether a watched module or a backward pass is running, or nothing is to be recorded."""
        return self.is_inside or self.session.paused or self.session.over

    @property
    def is_inside(self) -> bool:
        """Whether a watched module or a backward pass is running."""
        return self.calls.busy or self.session.passes.inside

    def stop(self) -> None:
        """Take everything off."""
        self.session.over = True
        with _REPLACING, ExitStack() as undo:
            # All of them, even if one fails.
            undo.callback(self.calls.detach)
            undo.callback(self.gradients.detach)
            undo.callback(self._undo.close)
            undo.callback(self.losses.reset)

    def forget(self) -> None:
        """Release models and optimizers."""
        self.stop()
        self.updates.detach()
        self.session.tree.forget()

    def close_step(self, *, whole: bool = True) -> None:
        """The step is over: record what stands at its end (if it came to it), hand all to the recorder, count on."""
        session = self.session
        if session.listening:
            self.gradients.flush()
            self.unseen.look()
        if session.listening and whole:
            self._record_parameters()
            self._record_buffers()
            self.updates.record_state()
        self.data_hash.update(staged.hash for staged in session.stage.waiting if staged.phase == "data")
        session.stage.flush()
        self.calls.reset()
        self.gradients.reset()
        self.updates.reset()
        self.losses.reset()
        if session.steps.number == 0:
            # Lazy layers have made their parameters by now.
            session.tree.refresh()
        session.steps.advance()
        if session.selection.is_over(session.steps.number) or session.stage.recorder.failed:
            self.stop()
        else:
            self.gradients.attach_new()

    def _record_parameters(self) -> None:
        session = self.session
        if session.wants("parameter"):
            for slot in session.tree.slots:
                if session.chosen(slot):
                    session.stage.add(session.stage_parameter("parameter", slot, slot.tensor))

    def _record_buffers(self) -> None:
        session = self.session
        if not session.wants("buffer"):
            return
        for node, name, tensor in session.tree.buffers():
            slot = Slot(node, name, tensor)
            if session.chosen(node) or session.selection.has_layer(slot.path, slot.inside):
                terms = self._terms(slot) if len(tensor.shape) == 1 else None
                facts = {} if terms is None else {"terms": terms}
                session.stage.add(session.stage_parameter("buffer", slot, tensor, meta=facts))

    def _terms(self, slot: Slot) -> int | None:
        return self.calls.terms(slot.node, prod(map(int, slot.tensor.shape)))

    def _before_outermost(self, node: Node) -> None:
        if node.root.counts:
            if self.session.steps.ends_before_call(node):
                self.close_step()
            self.session.steps.called(node)

    def _before_backward(self, tensors: Any, accumulates: bool) -> None:
        session = self.session
        if session.passes.begin() and accumulates:
            self.calls.settle()
            if session.steps.ends_before_backward(self.calls.is_spent) and not session.paused:
                self.close_step()
            if not session.over:
                self.losses.found(tensors)

    def _after_backward(self, well: bool) -> None:
        session = self.session
        if not session.passes.end() or session.over:
            return
        # A model that is frozen, or called without gradients, cannot tell what its outputs were used for.
        self.losses.settle(are_ours=session.passes.reached or self.calls.without_trace)
        if well:
            self.gradients.after_backward()

    def _skipped(self, optimizer: Any) -> None:
        session = self.session
        name = self.updates.name_of(optimizer)
        if name is None or session.over or session.paused:
            return
        session.stage.recorder.note(
            message("note.capture.scaler_skipped", step=session.steps.number, name=Code(repr(name)))
        )
        session.steps.updated(name)
