"""Session: what the listeners of one run share: which step and which backward passes are its own, and what counts."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

import numpy as np

from reprod_log.capture.guard import Guard
from reprod_log.capture.selection import Selection
from reprod_log.capture.staging import Forms, Place, Stage, Staged
from reprod_log.frameworks.contract import Framework
from reprod_log.frameworks.module_tree import Node, Slot, Tree
from reprod_log.frameworks.nests import flatten
from reprod_log.messages import Code, Name, message
from reprod_log.recording.shards import SHARD_FACT

# Of the running thread (or task), not of the process: while one probes, another may train.
_DEPTH: ContextVar[int] = ContextVar("reprod_log.suppressed", default=0)


@contextmanager
def suppress_recording() -> Iterator[None]:
    """Recordings that were begun outside get nothing of what is run inside; those begun inside do.

    For everything that calls models on our own account: the check of a transfer, a layer run on its own. Serves as a
    decorator too.
    """
    before = _DEPTH.set(_DEPTH.get() + 1)
    try:
        yield
    finally:
        _DEPTH.reset(before)


class RecordingLevel:
    """Knows how deep in our own doings a recording was begun."""

    def __init__(self) -> None:
        self._depth = _DEPTH.get()

    @property
    def is_recorded(self) -> bool:
        """Whether what runs now is to be recorded."""
        return _DEPTH.get() <= self._depth


class Passes:
    """Follows the backward passes begun in the run's own threads, and knows whether one has reached its models.

    Backward passes are followed for the whole process: other models may be trained beside the watched ones, in the same
    loop or in other threads. The run's own threads are the one in which it began and those in which its models are
    called. A framework may carry out a pass in further threads, which begin none.
    """

    def __init__(self) -> None:
        self._threads: WeakSet[threading.Thread] = WeakSet([threading.current_thread()])
        self._depths: dict[int, int] = {}
        self.reached = False
        """Whether a gradient has reached one of the models since the pass began."""
        self.recorded = False
        """Whether a gradient has reached a recorded output since an optimizer last stepped."""
        self.accumulates = False
        """Whether there is a pass that adds to the gradients that tensors keep, and does not only give some back."""

    def join(self) -> None:
        """A model is called in this thread, so its passes are the run's too."""
        self._threads.add(threading.current_thread())

    @property
    def inside(self) -> bool:
        """Whether what happens now is a part of a pass: in the thread that began it, or in one of the framework's."""
        if self._depths.get(threading.get_ident()):
            return True
        return bool(self._depths) and threading.current_thread() not in self._threads

    def begin(self) -> bool:
        """A pass begins in this thread; whether it is one to follow, and no part of another."""
        if threading.current_thread() not in self._threads:
            return False
        here = threading.get_ident()
        depth = self._depths[here] = self._depths.get(here, 0) + 1
        if depth == 1:
            self.reached = False
        return depth == 1

    def end(self) -> bool:
        """A pass has ended in this thread; whether it was one that `begin` accepted."""
        here = threading.get_ident()
        depth = self._depths.pop(here, 0)
        if depth > 1:
            self._depths[here] = depth - 1
        return depth == 1


class Steps:
    """Counts steps by what the program does.

    With optimizers, a step is everything up to an update: it ends when an optimizer has stepped, and the next one
    begins with the next call of a model or the next logged batch. So a loss logged after `optimizer.step()` still
    belongs to the step it was computed in; several batches accumulated into one update are one step; two optimizers
    that step one right after the other are one step; and a GAN that updates its discriminator and then its generator
    has two, as it has when the two take turns. `after` names the one optimizer whose update ends a step instead.

    Without optimizers every call of a model is a step of its own; several models, or several parts of one, that are
    called in turn share a step, until one of them is called again.

    Inside `hold` … `release` only these two count.
    """

    def __init__(self, *, has_optimizers: bool, after: str | None = None) -> None:
        self.number = 0
        self.has_optimizers = has_optimizers or after is not None
        self.after = after
        self._updated = False
        self._held = False
        self._called: set[Hashable] = set()
        self._busy = False

    @property
    def busy(self) -> bool:
        """Whether anything has happened in this step."""
        return self._busy

    def ends_before_call(self, module: Hashable) -> bool:
        """Whether the step is over now that `module` is about to be called from outside."""
        if self._held:
            return False
        return self._updated if self.has_optimizers else module in self._called

    def ends_before_backward(self, is_spent: bool) -> bool:
        """Whether the step is over now that a pass begins and no output of a model waits for one.

        A model that runs unseen, compiled for example, is not called, so its steps begin with their passes.
        """
        return not self._held and self._updated and is_spent

    def ends_before_data(self) -> bool:
        """Whether the step is over now that a new batch is logged."""
        return not self._held and self._updated

    def called(self, module: Hashable) -> None:
        self._called.add(module)
        self._busy = True

    def touched(self) -> None:
        """Something was recorded."""
        self._busy = True

    def updated(self, optimizer: str) -> None:
        """The optimizer has stepped (or would have, had its gradients been finite)."""
        self._busy = True
        if self.after is None or optimizer == self.after:
            self._updated = True

    def advance(self) -> None:
        self.number += 1
        self._updated = self._busy = False
        self._called.clear()

    def hold(self) -> None:
        self._held = True

    def release(self) -> None:
        self._held = False


class StepSession:
    """What counts now: the framework, the selection, the stage, the steps, and whether anything is to be recorded."""

    def __init__(self, framework: Framework, selection: Selection, *, stage: Stage, steps: Steps, guard: Guard) -> None:
        self.framework, self.selection = framework, selection
        self.stage, self.steps, self.guard = stage, steps, guard
        self.is_tensor = framework.tensors.is_tensor
        self.on_hold = False
        """Whether the user wants nothing recorded now."""
        self.over = False
        """Nothing more will be recorded."""
        self._level = RecordingLevel()

    @property
    def paused(self) -> bool:
        """Whether what happens now is to be skipped: the user asked for it, or it is our own doing."""
        return self.on_hold or not self._level.is_recorded

    @property
    def listening(self) -> bool:
        """Whether this step is one to record."""
        return not (self.over or self.paused) and self.selection.has_step(self.steps.number)

    def wants(self, phase: str) -> bool:
        return phase in self.selection.phases and self.listening


class Session(StepSession):
    """A session that listens to the modules of an eager framework."""

    def __init__(
        self,
        framework: Framework,
        selection: Selection,
        *,
        stage: Stage,
        steps: Steps,
        guard: Guard,
        ranks: int = 1,
    ) -> None:
        super().__init__(framework, selection, stage=stage, steps=steps, guard=guard)
        self.eager = framework.eager
        self.tree = tree = Tree(framework)
        self.ranks = ranks
        self.passes = Passes()
        self.forms = Forms(tree)
        self._others: set[str] = set()
        self._chosen: dict[Node | Slot, bool] = {}

    def chosen(self, thing: Node | Slot) -> bool:
        """Whether the layer, or the layer of the parameter, is among those asked for."""
        answer = self._chosen.get(thing)
        if answer is None:
            answer = self._chosen[thing] = self.selection.has_layer(*names_of(thing))
        return answer

    def tensors(self, structure: Any, name: str, node: Node) -> Iterator[tuple[str, Any]]:
        """The tensors in an input or output with their roles; objects that cannot be looked into are noted once."""
        for role, leaf in flatten(structure, name):
            if self.is_tensor(leaf) or isinstance(leaf, np.ndarray):
                yield role, leaf
            elif not isinstance(leaf, (bool, int, float, complex, str, bytes, np.generic, type, slice)):
                self._note_unknown(role, leaf, node)

    def _note_unknown(self, role: str, leaf: object, node: Node) -> None:
        kind = f"{type(leaf).__module__}.{type(leaf).__qualname__}"
        if type(leaf).__module__.partition(".")[0] == "builtins" or kind in self._others or callable(leaf):
            return
        self._others.add(kind)
        self.stage.recorder.note(
            message("note.capture.unknown_object", role=Code(repr(role)), path=Name(node.path), kind=Name(kind))
        )

    def stage_activation(
        self,
        phase: str,
        node: Node,
        call: int,
        role: str,
        tensor: Any,
        *,
        step: int,
        meta: dict[str, Any] | None = None,
    ) -> Staged | None:
        """An entry about an input or output of a call, or its gradient, not yet in its place."""
        return self.stage.make(
            Place(phase, step, node.inside, node.root, role, call),
            tensor,
            layer_type=node.type,
            meta=meta,
            form=lambda rank: self.forms.of_activation(node, role, rank),
        )

    def stage_parameter(
        self, phase: str, slot: Slot, value: Any, *, role: str = "", meta: dict[str, Any] | None = None
    ) -> Staged | None:
        """An entry about a parameter, not yet in its place."""
        piece = None if self.ranks == 1 or role == "local" else self.tree.piece(slot)
        if piece is not None and tuple(value.shape) == self.framework.tensors.view(slot.tensor)[0].shape:
            # What is kept for a parameter lies as it does; counters do not.
            meta = {**(meta or {}), SHARD_FACT: piece.to_dict()}
        return self.stage.make(
            Place(phase, self.steps.number, slot.inside, slot.node.root, role),
            value,
            layer_type=slot.node.type,
            meta=meta,
            form=lambda rank: self.forms.of_parameter(slot, rank),
        )


def names_of(thing: Node | Slot) -> tuple[str, ...]:
    """Every name by which a layer or a parameter can be asked for; a parameter also by its layer's."""
    owner = thing.node if isinstance(thing, Slot) else thing
    wish = f"{owner.root.wish}.{thing.inside}".rstrip(".")
    return (thing.path, thing.inside, owner.path, owner.inside, wish, *thing.names)
