"""Calls: records the calls of modules, and the gradients that reach their outputs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

from reprod_log.capture.session import Session
from reprod_log.capture.staging import Staged
from reprod_log.frameworks.hooks import Undo, passing
from reprod_log.frameworks.module_tree import Node
from reprod_log.frameworks.nests import flatten
from reprod_log.layers.arrangement import canonical_output


class Tap:
    """Receives the gradient of one tensor, for every layer whose output that tensor is."""

    def __init__(self, session: Session, *, of_data: bool = False) -> None:
        self._session = session
        self._of_data = of_data
        self._places: list[tuple[Node, int, int, str]] = []
        self._times = 0

    def serve(self, node: Node, step: int, call: int, role: str) -> None:
        self._places.append((node, step, call, role))

    @property
    def is_spent(self) -> bool:
        """Whether a gradient has come."""
        return self._times > 0

    def receive(self, gradient: Any) -> None:
        session = self._session
        session.passes.reached = session.passes.recorded = True
        if session.over or session.paused:
            return
        if not self._of_data or session.passes.accumulates:
            self.record(gradient)

    def record(self, gradient: Any) -> None:
        session = self._session
        again = f"~{self._times}" if self._times else ""
        self._times += 1
        for node, step, call, role in self._places:
            session.stage.add(session.stage_activation("backward", node, call, role + again, gradient, step=step))


class Calls:
    """Records inputs and outputs of the modules in the order of their calls.

    A call made inside a backward pass is a checkpoint recomputing what was recorded already. Its values are not
    recorded again, but its gradients are listened to when the first call had none.
    """

    def __init__(
        self, session: Session, before_outermost: Callable[[Node], None], gathered: Callable[[Node], None]
    ) -> None:
        self._session = session
        self._before_outermost = before_outermost
        self._gathered = gathered
        self._stacks: dict[int, list[tuple[Node, int | None]]] = {}
        self._outer: list[Tap] = []
        self._counts: dict[Node, int] = {}
        self._sizes: dict[Node, int] = {}
        self._without_gradient: dict[Node, list[tuple[int, str, str]]] = {}
        self._recent: list[tuple[Any, int, Tap]] = []
        self._of_data: list[tuple[Any, Tap]] = []
        self._attached: dict[Node, Undo] = {}
        self._undos: list[Undo] = []
        self.called: set[Node] = set()
        self.converted: list[Any] = []
        """What comes from outside and was converted for the outermost call that begins."""

    def attach(self, node: Node) -> None:
        """Listen to the node's module, and no longer to the one that it had before."""

        is_tracing, guard = self._session.eager.is_tracing, self._session.guard
        enter, leave = guard(self._before), guard(self._after)

        # Whether a compiler looks on is asked first: it should see nothing of the rest.
        def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if not is_tracing():
                enter(node, args, kwargs)

        def after(output: Any) -> None:
            if not is_tracing():
                leave(node, output)

        earlier = self._attached.pop(node, None)
        if earlier is not None:
            earlier()
        self._attached[node] = self._session.eager.on_call(node.module, before, after)

    def terms(self, node: Node, size: int) -> int | None:
        """How many output values were summed into each of `size` numbers of a bias or statistic in this step."""
        total = self._sizes.get(node, 0)
        return total // size if size and total >= size else None

    def reset(self) -> None:
        """A new step begins."""
        self._stacks.clear()
        self._outer.clear()
        self._counts.clear()
        self._sizes.clear()
        self._without_gradient.clear()
        self._recent.clear()
        self._of_data.clear()

    def given_back(self, gradients: Sequence[tuple[Any, Any]]) -> None:
        """Record what a pass returned for data. Frameworks differ in whether they call the hooks of these tensors."""
        for tensor, gradient in gradients:
            for known, tap in self._of_data if gradient is not None else ():
                if known is tensor and not self._session.paused:
                    tap.record(gradient)

    def detach(self) -> None:
        self.reset()
        for undo in (*self._attached.values(), *self._undos):
            undo()
        self.converted = []
        self._attached.clear()
        self._undos.clear()

    @property
    def busy(self) -> bool:
        """Whether a watched module is running."""
        return any(self._stacks.values())

    @property
    def without_trace(self) -> bool:
        """Whether models were called in this step, but nothing that they gave can carry a gradient back."""
        return bool(self._counts) and not self._outer

    @property
    def is_spent(self) -> bool:
        """Whether a gradient has come through everything that models gave in this step, if they gave anything."""
        return not self._counts or (bool(self._outer) and all(tap.is_spent for tap in self._outer))

    def is_called(self, node: Node) -> bool:
        """Whether the node was called in this step."""
        return node in self._counts

    def settle(self) -> None:
        """Nothing can be running in this thread now; what an exception left behind is forgotten."""
        alive = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        self._stacks = {thread: stack for thread, stack in self._stacks.items() if thread in alive}

    def _before(self, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        session = self._session
        if session.over or session.paused:
            return
        if session.passes.inside:
            self._stack().append((node, None))
            return
        session.passes.join()
        outermost = not self.busy
        if outermost:
            self._before_outermost(node)
            if session.over:
                # The last step to record has ended: nothing will tell when this call does.
                return
        call = self._counts.get(node, 0)
        self._counts[node] = call + 1
        self._stack().append((node, call))
        self.called.add(node)
        if not session.listening:
            return
        if session.tree.has_pieces and node.has_parameters:
            self._gathered(node)
        phases = session.selection.phases
        if outermost and "data" in phases:
            self._record_data(node, call, args, kwargs)
        if outermost and "backward" in phases:
            self._listen_to_data(node, call, args, kwargs)
        if "forward" in phases and session.selection.has_inputs(session.steps.number) and session.chosen(node):
            self._record_inputs(node, call, args, kwargs)

    def _inputs(self, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        yield from self._session.tensors(args, "input", node)
        yield from self._session.tensors(kwargs, "input", node)

    def _record_data(self, node: Node, call: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record what comes from outside. What another model gave (a generator's image, logits) is not data."""
        session = self._session
        for role, tensor in self._inputs(node, args, kwargs):
            if session.is_tensor(tensor) and not self._is_given(tensor):
                continue
            staged = self._make("data", node, call, role, tensor)
            if staged is not None and not session.stage.was_output(staged.hash):
                if self._asks_for_gradient(tensor):
                    staged.meta["asks_for_gradient"] = True
                session.stage.add(staged)

    def _listen_to_data(self, node: Node, call: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record the gradient of what comes from outside where the program asks for it, as one that attacks its input
        does."""
        for role, tensor in self._inputs(node, args, kwargs):
            if self._asks_for_gradient(tensor):
                tap = Tap(self._session, of_data=True)
                tap.serve(node, self._session.steps.number, call, role)
                self._connect(tap, tensor)
                self._of_data.append((tensor, tap))

    def _asks_for_gradient(self, tensor: Any) -> bool:
        session = self._session
        return session.is_tensor(tensor) and self._is_given(tensor) and session.eager.takes_gradient(tensor)

    def _is_given(self, tensor: Any) -> bool:
        return not self._session.eager.is_computed(tensor) or any(tensor is one for one in self.converted)

    def _record_inputs(self, node: Node, call: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for role, tensor in self._inputs(node, args, kwargs):
            staged = self._make("forward", node, call, role, tensor)
            if staged is not None:
                staged.source = self._session.stage.producer(staged.hash)
                self._session.stage.add(staged)

    def _make(self, phase: str, node: Node, call: int, role: str, tensor: Any) -> Staged | None:
        session = self._session
        meta = {"training": session.eager.is_training(node.module)}
        return session.stage_activation(phase, node, call, role, tensor, step=session.steps.number, meta=meta)

    def _after(self, node: Node, output: Any) -> None:
        session = self._session
        if session.over or session.paused:
            return
        call, found = self._leave(node)
        if not found or output is None or not session.listening:
            return
        if not self._stack() and call is not None:
            self._tap_outermost(output)
        if not session.chosen(node):
            return
        rows = list(session.tensors(canonical_output(node.kind, output), "output", node))
        if call is None:
            self._listen_again(node, rows)
            return
        if rows:
            self._sizes[node] = self._sizes.get(node, 0) + prod(map(int, rows[0][1].shape))
        if "forward" in session.selection.phases:
            for role, tensor in rows:
                session.stage.add(self._make("forward", node, call, role, tensor))
        if "backward" in session.selection.phases:
            self._recent = [row for role, tensor in rows for row in self._listen(node, call, role, tensor)]

    def _leave(self, node: Node) -> tuple[int | None, bool]:
        running = self._stack()
        for place in range(len(running) - 1, -1, -1):
            if running[place][0] is node:
                call = running[place][1]
                del running[place:]
                return call, True
        return None, False

    def _stack(self) -> list[tuple[Node, int | None]]:
        """The modules that are running in this thread."""
        return self._stacks.setdefault(threading.get_ident(), [])

    def _tap_outermost(self, output: Any) -> None:
        """Have it known whether a backward pass comes through what a model gave, recorded or not."""
        session = self._session
        if "loss" not in session.selection.phases:
            return
        for _, leaf in flatten(output):
            tap = Tap(session)
            if session.is_tensor(leaf) and self._connect(tap, leaf):
                self._outer.append(tap)

    def _listen(self, node: Node, call: int, role: str, tensor: Any) -> list[tuple[Any, int, Tap]]:
        session = self._session
        if not session.is_tensor(tensor):
            return []
        version = session.eager.in_place_version(tensor)
        for known in self._recent:
            if known[0] is tensor and known[1] == version:
                # A block returns what its last layer returned: one tap serves both.
                known[2].serve(node, session.steps.number, call, role)
                return [known]
        tap = Tap(session)
        if not self._connect(tap, tensor):
            self._without_gradient.setdefault(node, []).append((call, role, session.stage.digest(tensor)))
            return []
        tap.serve(node, session.steps.number, call, role)
        return [(tensor, version, tap)]

    def _connect(self, tap: Tap, tensor: Any) -> bool:
        undo = self._session.eager.on_gradient(tensor, self._session.guard(tap.receive))
        if undo is None:
            return False
        if undo is not passing:
            self._undos.append(undo)
        return True

    def _listen_again(self, node: Node, rows: list[tuple[str, Any]]) -> None:
        """Tap what a checkpoint computes again. Segments come back in reverse, so values identify the calls."""
        silent = self._without_gradient.get(node)
        if not silent or "backward" not in self._session.selection.phases:
            return
        for role, tensor in rows:
            same_role = [one for one in silent if one[1] == role]
            if len(same_role) > 1:
                digest = self._session.stage.digest(tensor)
                same_role = [one for one in same_role if one[2] == digest] or same_role[-1:]
            tap = Tap(self._session)
            if same_role and self._session.is_tensor(tensor) and self._connect(tap, tensor):
                call = same_role[0][0]
                tap.serve(node, self._session.steps.number, call, role)
                silent.remove(same_role[0])
