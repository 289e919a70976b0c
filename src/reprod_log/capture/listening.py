"""ModelRun: modules of an eager framework are listened to: their calls, gradients, losses and optimizers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import prod
from typing import Any

from reprod_log.capture.calls import Calls
from reprod_log.capture.gradients import Gradients, Losses
from reprod_log.capture.guard import Guard
from reprod_log.capture.provenance import caveat_notes, extra_facts, idle_notes, provenance_of, silence_notes
from reprod_log.capture.run import Run
from reprod_log.capture.session import Session, Steps, names_of
from reprod_log.capture.staging import Stage
from reprod_log.capture.unseen import Unseen
from reprod_log.capture.updates import Updates
from reprod_log.errors import UsageError, listed
from reprod_log.frameworks.hooks import around_scaler
from reprod_log.frameworks.module_tree import Node, Root, Slot
from reprod_log.messages import Code, Message, message

# What is replaced in a framework is read and written in two steps, which threads must not mix.
_REPLACING = threading.RLock()


class ModelRun(Run):
    """Follows modules, backward passes, gradient scalers and optimizers."""

    session: Session

    def _listen(self, stage: Stage, steps: Steps, guard: Guard) -> None:
        selection = self._options.selection
        self.session = session = Session(
            self._framework, selection, stage=stage, steps=steps, guard=guard, ranks=self._ranks
        )
        self._gradients = Gradients(session, self._terms)
        self._calls = Calls(session, self._before_outermost, self._gradients.gathered)
        self._unseen = Unseen(session, self._calls, self._gradients)
        self._updates = Updates(session, self._gradients, self._unseen)
        self._losses = Losses(session)

    def _begin(self) -> None:
        for name, model in self._models.items():
            self.add_model(Root(name, model))
        for name, optimizer in self._optimizers.items():
            self.add_optimizer(name, optimizer)
        self._check_layers()
        self._listen_to_process()
        self.describe()

    def _listen_to_process(self) -> None:
        """Listen to what belongs to no model: backward passes and gradient scalers."""
        eager, guard = self.session.eager, self.session.guard
        with _REPLACING:
            self._undo.callback(eager.on_backward(guard(self._before_backward), guard(self._after_backward)))
            scaler = eager.scaler()
            if scaler is not None:
                listeners = guard(self._losses.scaled), guard(self._updates.unscaled), guard(self._skipped)
                self._undo.callback(around_scaler(scaler, self.session.is_tensor, *listeners))

    def add_model(self, root: Root) -> None:
        """Listen to one more model."""
        for node in self.session.tree.add(root):
            if node.can_record:
                self._calls.attach(node)
        self._gradients.attach_new()

    def add_optimizer(self, name: str, optimizer: Any) -> None:
        """Listen to one more optimizer."""
        self.session.steps.has_optimizers = True
        with _REPLACING:
            self._undo.callback(self._updates.attach(name, optimizer))

    def replace_module(self, node: Node, module: Any) -> None:
        """Listen to `module` under the name of a node whose own module is no longer used."""
        self.session.tree.replace_module(node, module)
        self._calls.attach(node)

    def node_of(self, module: Any) -> Node | None:
        return self.session.tree.node_of(module)

    def begin_with(self, converted: list[Any]) -> None:
        """An outermost call begins with what was converted from what comes from outside."""
        self._calls.converted = converted

    @property
    def is_busy(self) -> bool:
        """Whether a watched module or a backward pass is running, or nothing is to be recorded."""
        return self.is_inside or self.session.paused or self.session.over

    @property
    def is_inside(self) -> bool:
        """Whether a watched module or a backward pass is running."""
        return self._calls.busy or self.session.passes.inside

    @property
    def _any_called(self) -> bool:
        return bool(self._calls.called)

    def _stop(self) -> None:
        self.session.over = True
        with _REPLACING, ExitStack() as undo:
            # All of them, even if one fails.
            undo.callback(self._calls.detach)
            undo.callback(self._gradients.detach)
            undo.callback(self._undo.close)
            undo.callback(self._losses.reset)

    def _forget(self) -> None:
        self._stop()
        self._updates.detach()
        self.session.tree.forget()

    def describe(self) -> None:
        """Put into the recording where it comes from, as far as it is known now."""
        session = self.session
        origin = provenance_of(
            session.framework, session.tree, self._updates.optimizers, session.stage, self._options.mesh
        )
        self._recorder.describe(replace(origin, extra={**origin.extra, **self._facts}), session.tree.infos())

    def _check_layers(self) -> None:
        tree = self.session.tree
        things: list[Node | Slot] = [*tree.nodes, *tree.slots]
        if not things or any(self.session.chosen(thing) for thing in things):
            return
        paths = [node.path for node in tree.nodes if node.path]
        raise UsageError(f"{'; '.join(map(str, self._idle_patterns()))}; the model has {listed(paths)}")

    def _idle_patterns(self) -> list[Message]:
        """What to say of the patterns of layers that fit nothing."""
        tree = self.session.tree
        things: list[Node | Slot] = [*tree.nodes, *tree.slots]
        names = {name for thing in things for name in names_of(thing)}
        return idle_notes(self._options.selection.layers, names)

    def _finish(self) -> None:
        session, recorder = self.session, self._recorder
        session.stage.close()
        tree, called = session.tree, self._calls.called
        if called:
            for note in self._idle_patterns():
                recorder.note(note)
        unseen = self._unseen
        silence = silence_notes(tree, called, unseen.nodes)
        for note in (*tree.notes, *silence, *unseen.notes(), *caveat_notes(tree, called, session.eager.caveat)):
            recorder.note(note)
        self._describe_again()

    def _describe_again(self) -> None:
        """Add what was not known at the start: parameters and optimizers made since, the data."""
        session, recorder = self.session, self._recorder
        known = extra_facts(session.framework, session.tree, self._updates.optimizers, self._options.mesh)
        recorder.modules = session.tree.infos()
        recorder.provenance = replace(
            recorder.provenance, data_hash=str(self._data_hash), extra={**known, **self._facts}
        )

    # steps

    def _record_standing(self, *, whole: bool) -> None:
        session = self.session
        if session.listening:
            self._gradients.flush()
            self._unseen.look()
        if session.listening and whole:
            self._record_parameters()
            self._record_buffers()
            self._updates.record_state()

    def _forget_step(self) -> None:
        self._calls.reset()
        self._gradients.reset()
        self._updates.reset()
        if self.session.steps.number == 0:
            # Lazy layers have made their parameters by now.
            self.session.tree.refresh()
        self._gradients.attach_new()

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
        return self._calls.terms(slot.node, prod(map(int, slot.tensor.shape)))

    def _before_outermost(self, node: Node) -> None:
        if node.root.counts:
            if self.session.steps.ends_before_call(node):
                self._step_is_over()
            self.session.steps.called(node)

    def _before_backward(self, tensors: Any, accumulates: bool) -> None:
        session = self.session
        begins = session.passes.begin()
        if begins:
            session.passes.accumulates = accumulates
        if begins and accumulates:
            self._calls.settle()
            if session.steps.ends_before_backward(self._calls.is_spent) and not session.paused:
                self._step_is_over()
            if not session.over:
                self._losses.found(tensors)

    def _after_backward(self, returned: Sequence[tuple[Any, Any]] | None) -> None:
        session = self.session
        if not session.passes.end():
            return
        session.passes.accumulates = False
        if session.over:
            return
        # A model that is frozen, or called without gradients, cannot tell what its outputs were used for.
        self._losses.settle(are_ours=session.passes.reached or self._calls.without_trace)
        if returned is not None:
            self._calls.given_back(returned)
            self._gradients.after_backward()

    def _skipped(self, optimizer: Any) -> None:
        session = self.session
        name = self._updates.name_of(optimizer)
        if name is None or session.over or session.paused:
            return
        session.stage.recorder.note(
            message("note.capture.scaler_skipped", step=session.steps.number, name=Code(repr(name)))
        )
        session.steps.updated(name)
