"""Forms: the order in which a model's tensors are sketched, so that another layout of them gives the same sketch."""

from __future__ import annotations

from reprod_log.frameworks.module_tree import Node, Slot, Tree
from reprod_log.layers.arrangement import canonical_axes
from reprod_log.layers.layouts import stored_transform
from reprod_log.recording import ModuleInfo
from reprod_log.recording.sketch import SketchOrder


class Forms:
    """Knows each layer's canonical form: by the table of layers for parameters, by its settings for activations."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._infos: dict[Node, ModuleInfo] = {}
        self._forms: dict[tuple[Node, str, int], SketchOrder] = {}

    def of_parameter(self, slot: Slot, rank: int) -> SketchOrder:
        """The form of a parameter, its gradient, its update or its optimizer state."""
        place = (slot.node, f"parameter {slot.name}", rank)
        form = self._forms.get(place)
        if form is None:
            info = self._info(slot.node)
            stored = stored_transform(info.origin, slot.name, tuple(info.parameters))
            form = SketchOrder(stored.axes, stored.parts)
            form = self._forms[place] = form if form.axes is None or len(form.axes) == rank else SketchOrder()
        return form

    def of_activation(self, node: Node, role: str, rank: int) -> SketchOrder:
        """The form of an input, an output or its gradient."""
        place = (node, role, rank)
        form = self._forms.get(place)
        if form is None:
            form = self._forms[place] = SketchOrder(canonical_axes(self._info(node), role, rank))
        return form

    def _info(self, node: Node) -> ModuleInfo:
        if node not in self._infos:
            self._infos[node] = self._tree.info(node)
        return self._infos[node]
