"""Updates: records the steps of optimizers: rates, what changed, the state they keep; and modules that ran unseen."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from reprod_log.capture.calls import Calls
from reprod_log.capture.gradients import Gradients
from reprod_log.capture.session import Session
from reprod_log.capture.staging import Place, Staged
from reprod_log.frameworks.hooks import Undo
from reprod_log.frameworks.module_tree import Node, Slot
from reprod_log.messages import Message, Names, message
from reprod_log.recording import Array


class Unseen:
    """Compares who got gradients with who was called.

    A model that is compiled or scripted inside the block runs without any call that could be listened to. Its
    gradients come all the same, either to modules that were not called in the step, or through no recorded output.
    """

    def __init__(self, session: Session, calls: Calls, gradients: Gradients) -> None:
        self._session, self._calls, self._gradients = session, calls, gradients
        self._steps: dict[Node, dict[int, None]] = {}

    def look(self) -> None:
        """An optimizer has stepped, or the step is over: see where the gradients since the last look came from."""
        session, new = self._session, self._gradients.new
        # Outputs have taps only where losses are looked for.
        through_nothing = "loss" in session.selection.phases and not session.passes.recorded
        for slot in new:
            # What lies inside a wrapper that hides it has a note of its own.
            if slot.node.can_record and (through_nothing or not self._is_covered(slot.node)):
                self._steps.setdefault(slot.node, {})[session.steps.number] = None
        new.clear()
        session.passes.recorded = False

    def _is_covered(self, node: Node) -> bool:
        """Whether the node was called, or a layer of a known kind that may use its weights directly."""
        if node.parent is not None and node.is_list:
            return self._calls.is_called(node.parent) or self._is_covered(node.parent)
        above: Node | None = node
        while above is not None:
            if self._calls.is_called(above):
                return above is node or bool(above.kind)
            above = above.parent
        return False

    @property
    def nodes(self) -> Collection[Node]:
        return self._steps.keys()

    def notes(self) -> list[Message]:
        """What is missing, for all modules that were unseen in the same steps in one note."""
        together: dict[tuple[int, ...], list[Node]] = {}
        for node, steps in self._steps.items():
            together.setdefault(tuple(steps), []).append(node)
        return [
            message("note.capture.unseen", paths=Names(self._with_neighbours(nodes)), first=steps[0], count=len(steps))
            for steps, nodes in together.items()
        ]

    def _with_neighbours(self, nodes: list[Node]) -> list[str]:
        """The nodes, and the modules without parameters that ran unseen beside them, in the order of the model."""
        called = self._calls.called
        ends = {self._nearest_called(node) for node in nodes}
        return [
            node.path
            for node in self._session.tree.nodes
            if node in nodes or (node not in called and not node.has_parameters and self._nearest_called(node) in ends)
        ]

    def _nearest_called(self, node: Node) -> Node | None:
        above = node.parent
        while above is not None and above not in self._calls.called:
            above = above.parent
        return above


class Updates:
    """Records around each optimizer step."""

    def __init__(self, session: Session, gradients: Gradients, unseen: Unseen) -> None:
        self._session = session
        self._gradients = gradients
        self._unseen = unseen
        self.optimizers: dict[str, Any] = {}
        self._before: dict[str, dict[Slot, Array]] = {}
        self._rates: dict[str, list[Staged | None]] = {}
        self._stepped: dict[str, None] = {}

    def attach(self, name: str, optimizer: Any) -> Undo:
        self.optimizers[name] = optimizer

        def before(has_closure: bool) -> None:
            self._before_step(name, has_closure)

        def clipped(gradients: list[tuple[Any, Any]]) -> None:
            slots = [(self._session.tree.slot_of(parameter), gradient) for parameter, gradient in gradients]
            self._gradients.used([(slot, gradient) for slot, gradient in slots if slot is not None])

        def after() -> None:
            self._after_step(name)

        guard = self._session.guard
        return self._session.eager.on_step(optimizer, guard(before), guard(clipped), guard(after))

    def detach(self) -> None:
        self.optimizers.clear()
        self.reset()

    def reset(self) -> None:
        """A new step begins."""
        self._before.clear()
        self._rates.clear()
        self._stepped.clear()

    def name_of(self, optimizer: Any) -> str | None:
        return next((name for name, known in self.optimizers.items() if known is optimizer), None)

    def slots(self, optimizer: Any) -> list[Slot]:
        """The chosen parameters that the optimizer updates."""
        tree = self._session.tree
        found = (tree.slot_of(parameter) for parameter in self._session.eager.parameters_of(optimizer))
        return [slot for slot in found if slot is not None and self._session.chosen(slot)]

    def unscaled(self, optimizer: Any, scale: float) -> None:
        slots = self.slots(optimizer) if self._session.listening else []
        if slots:
            self._gradients.unscaled(slots, scale)

    def _before_step(self, name: str, has_closure: bool) -> None:
        session = self._session
        if not session.listening:
            return
        optimizer = self.optimizers[name]
        slots = self.slots(optimizer)
        if not has_closure:
            # With a closure the gradients are computed inside the step.
            self._gradients.flush()
            self._gradients.used([(slot, session.eager.gradient(slot.tensor)) for slot in slots])
        if session.wants("lr"):
            step = session.steps.number
            self._rates[name] = [
                session.stage.make(Place("lr", step, name, role=f"group{group}"), float(rate))
                for group, rate in enumerate(session.eager.rates(optimizer))
            ]
        if session.wants("update"):
            self._before[name] = {slot: session.stage.copy(slot.tensor) for slot in slots}

    def _after_step(self, name: str) -> None:
        session = self._session
        if session.over or session.paused:
            return
        self._stepped[name] = None
        self._unseen.look()
        if session.listening:
            slots = self.slots(self.optimizers[name])
            self._gradients.flush()
            # Read before the step, placed here: some optimizers clip inside the step, and that comes first.
            for rate in self._rates.pop(name, []):
                session.stage.add(rate)
            before = self._before.pop(name, {})
            for slot in slots:
                if slot in before:
                    self._record_update(slot, before[slot])
        session.steps.updated(name)

    def _record_update(self, slot: Slot, before: Array) -> None:
        session = self._session
        now, _ = session.framework.tensors.view(slot.tensor)
        if now.dtype.itemsize <= 2:
            # The difference of two half precision numbers is exact in float32, but not in themselves.
            now, before = now.astype(np.float32), before.astype(np.float32)
        difference = now - before
        if slot in self._gradients.touched or difference.any():
            session.stage.add(session.stage_parameter("update", slot, difference))

    def record_state(self) -> None:
        """What the optimizers that stepped in this step keep for their parameters."""
        session = self._session
        if not session.wants("optimizer"):
            return
        for name in self._stepped:
            optimizer = self.optimizers[name]
            for slot in self.slots(optimizer):
                for role, value, facts in session.eager.recorded_state(optimizer, slot.tensor):
                    session.stage.add(session.stage_parameter("optimizer", slot, value, role=role, meta=facts))
