"""Unseen: modules that took part in a step without being called, so that nothing of what they computed is recorded."""

from __future__ import annotations

from collections.abc import Collection

from reprod_log.capture.calls import Calls
from reprod_log.capture.gradients import Gradients
from reprod_log.capture.session import Session
from reprod_log.frameworks.module_tree import Node
from reprod_log.messages import Message, Names, message


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
