"""Session: what the listeners of one run share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as np

from reprod_log.capture.earshot import Earshot
from reprod_log.capture.forms import Forms
from reprod_log.capture.passes import Passes
from reprod_log.capture.selection import Selection
from reprod_log.capture.stage import Stage, Staged
from reprod_log.capture.steps import Steps
from reprod_log.frameworks.contract import Framework
from reprod_log.frameworks.module_tree import Node, Slot, Tree
from reprod_log.frameworks.nests import flatten
from reprod_log.recording.shards import SHARD_FACT


class Session:
    """The framework, the selection, the tree, the stage, and what is going on now."""

    def __init__(
        self, framework: Framework, selection: Selection, *, tree: Tree, stage: Stage, steps: Steps, ranks: int = 1
    ) -> None:
        self.framework = framework
        self.modules, self.hooks = framework.eager.modules, framework.eager.hooks
        self.optimizers = framework.eager.optimizers
        self.is_tensor = framework.tensors.is_tensor
        self.selection = selection
        self.tree = tree
        self.stage = stage
        self.steps = steps
        self.ranks = ranks
        self.on_hold = False
        """Whether the user wants nothing recorded now."""
        self.over = False
        """Nothing more will be recorded."""
        self.passes = Passes()
        # The models may be called, and gradients come, in several threads at once.
        self.lock = threading.RLock()
        self.forms = Forms(tree)
        self._earshot = Earshot()
        self._strangers: set[str] = set()
        self._chosen: dict[Node | Slot, bool] = {}

    @property
    def paused(self) -> bool:
        """Whether what happens now is to be left out: the user says so, or it is our own doing."""
        return self.on_hold or not self._earshot.reaches

    @property
    def listening(self) -> bool:
        """Whether this step is one to record."""
        return not (self.over or self.paused) and self.selection.has_step(self.steps.number)

    def one_at_a_time(self, call: Callable[..., None]) -> Callable[..., None]:
        """`call`, made while no other thread is being heard."""

        @wraps(call)
        def alone(*args: Any) -> None:
            with self.lock:
                call(*args)

        return alone

    def wants(self, phase: str) -> bool:
        return phase in self.selection.phases and self.listening

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
                self._note_stranger(role, leaf, node)

    def _note_stranger(self, role: str, leaf: object, node: Node) -> None:
        kind = f"{type(leaf).__module__}.{type(leaf).__qualname__}"
        if type(leaf).__module__.partition(".")[0] == "builtins" or kind in self._strangers or callable(leaf):
            return
        self._strangers.add(kind)
        self.stage.recorder.note(
            f"{role!r} of {node.path!r} is a {kind}; tensors inside such objects are not recorded (log them by hand)"
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
            phase,
            value,
            step=self.steps.number,
            root=slot.node.root,
            inside=slot.inside,
            role=role,
            layer_type=slot.node.type,
            meta=meta,
            form=lambda rank: self.forms.of_parameter(slot, rank),
        )


def names_of(thing: Node | Slot) -> tuple[str, ...]:
    """Every name by which a layer or a parameter can be asked for; a parameter also by its layer's."""
    owner = thing.node if isinstance(thing, Slot) else thing
    wish = f"{owner.root.wish}.{thing.inside}".rstrip(".")
    return (thing.path, thing.inside, owner.path, owner.inside, wish, *thing.names)
