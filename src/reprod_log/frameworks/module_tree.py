"""The tree of a watched model: its modules, parameters and names, whatever wraps them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reprod_log.frameworks.source_lines import made_at, runs_at
from reprod_log.layers.lookup import kind_of, of_the_tables
from reprod_log.messages import Message, Name, message
from reprod_log.recording import ModuleInfo
from reprod_log.recording.shards import Shard

if TYPE_CHECKING:
    from reprod_log.frameworks.contract import Framework, ModuleFacts, OwnTensor


@dataclass(eq=False)
class Root:
    """A model that is watched, and the name before the paths of its modules ('' when it is the only one)."""

    name: str
    module: Any
    wish: str = ""
    """The name it gets when further models are found."""
    counts: bool = True
    """Whether calling it may begin a new step; not so for loss functions."""

    def path(self, inside: str) -> str:
        return f"{self.name}.{inside}" if self.name and inside else self.name or inside


@dataclass(eq=False)
class Node:
    """One module of a model."""

    root: Root
    inside: str
    """Path within the root; '' for the root itself."""
    module: Any
    """The one that is called."""
    content: Any
    """The one that holds the parameters: the same, or what a wrapper around it hides."""
    parent: Node | None
    can_record: bool
    """Whether its calls can be listened to."""
    kind: str
    has_parameters: bool = False
    """Its own, shared ones too."""
    names: list[str] = field(default_factory=list)
    """Further paths of the same module."""
    kept: frozenset[str] = frozenset()
    """Its buffers when it was taken in."""

    @property
    def path(self) -> str:
        return self.root.path(self.inside)

    @property
    def type(self) -> str:
        return type(self.content).__name__

    @property
    def is_list(self) -> bool:
        """Whether it only holds modules or parameters: with only the `forward` that all inherit it cannot be called."""
        return sum("forward" in vars(one) for one in type(self.content).__mro__) == 1


@dataclass(eq=False)
class Slot:
    """One parameter of a module."""

    node: Node
    name: str
    tensor: Any
    names: list[str] = field(default_factory=list)
    """Further paths of the same parameter (tied weights)."""

    @property
    def inside(self) -> str:
        return f"{self.node.inside}.{self.name}" if self.node.inside else self.name

    @property
    def path(self) -> str:
        return self.node.root.path(self.inside)


class Tree:
    """All modules and parameters of the watched models, each once, under the first path that leads to it."""

    def __init__(self, framework: Framework) -> None:
        self._framework = framework
        self._modules = framework.eager
        self.roots: list[Root] = []
        self.nodes: list[Node] = []
        self.slots: list[Slot] = []
        self.notes: list[Message] = []
        self._node_of: dict[int, Node] = {}
        self._slot_of: dict[int, Slot] = {}
        self.wrappers: list[Any] = []
        """Modules that only wrap another one, and so are not nodes."""
        self._pieces: dict[int, Shard] = {}
        self._distributed: set[tuple[Node, str]] = set()

    def add(self, root: Root) -> list[Node]:
        """Take in a model; gives the nodes that were not known before."""
        known = len(self.nodes)
        self.roots.append(root)
        self._visit(root, root.module, "", None, can_record=True)
        return self.nodes[known:]

    def replace_module(self, node: Node, module: Any) -> None:
        """Put another module of the same kind in the place of a node's."""
        self._node_of.pop(id(node.module), None)
        node.module = node.content = module
        self._node_of[id(module)] = node

    def node_of(self, module: Any) -> Node | None:
        return self._node_of.get(id(module))

    def slot_of(self, parameter: Any) -> Slot | None:
        return self._slot_of.get(id(parameter))

    @property
    def has_pieces(self) -> bool:
        """Whether any parameter is distributed over several processes."""
        return bool(self._distributed)

    def piece(self, slot: Slot) -> Shard | None:
        """How this process's piece of a parameter lies, when it is distributed over several."""
        return self._pieces.get(id(slot.tensor))

    def _visit(self, root: Root, module: Any, inside: str, parent: Node | None, *, can_record: bool) -> None:
        known = self._node_of.get(id(module))
        if known is not None:
            known.names.append(root.path(inside))
            return
        self._pieces.update({id(parameter): shard for parameter, shard in self._modules.pieces(module)})
        reason = self._modules.opaque(module)
        content = self._modules.wrapped(module)
        if content is not None and not reason:
            self.wrappers.append(module)
            self._visit(root, content, inside, parent, can_record=can_record)
            return
        content = module if content is None else content
        node = Node(root, inside, module, content, parent, can_record, kind_of_module(self._framework, content))
        node.kept = frozenset(name for name, _ in buffers_of(self._modules.own(content)))
        self.nodes.append(node)
        self._node_of[id(module)] = self._node_of[id(content)] = node
        if reason and can_record:
            self.notes.append(message("note.capture.opaque", path=Name(node.path), type=node.type, why=message(reason)))
        self._take_parameters(node)
        for name, child in self._modules.children(content):
            below = f"{inside}.{name}" if inside else name
            self._visit(root, child, below, node, can_record=can_record and not reason)

    def refresh(self) -> None:
        """Take in parameters that were made since."""
        for node in self.nodes:
            self._take_parameters(node)

    def _take_parameters(self, node: Node) -> None:
        for name, tensor in parameters_of(self._modules.own(node.content)):
            node.has_parameters = True
            if (node, name) in self._distributed:
                # While a wrapper has gathered the whole, it stands in for the piece.
                continue
            slot = Slot(node, name, tensor)
            shard = self._modules.shard(tensor) or self._pieces.get(id(tensor))
            if shard is not None:
                self._pieces[id(tensor)] = shard
                self._distributed.add((node, name))
            known = self._slot_of.setdefault(id(tensor), slot)
            if known is slot:
                self.slots.append(slot)
            elif slot.path != known.path and slot.path not in known.names:
                known.names.append(slot.path)

    def state(self) -> Iterator[tuple[str, Any]]:
        """Every parameter and buffer with its path, as they are now."""
        for slot in self.slots:
            yield slot.path, slot.tensor
        for node, name, tensor in self.buffers():
            yield f"{node.path}.{name}" if node.path else name, tensor

    def buffers(self) -> Iterator[tuple[Node, str, Any]]:
        """Every buffer as it is now; looked up again, because models put new tensors into their place."""
        for node in self.nodes:
            for name, tensor in self._buffers(node):
                yield node, name, tensor

    def _buffers(self, node: Node) -> list[tuple[str, Any]]:
        """A framework may make a buffer of any tensor that a model puts aside while it runs: that is no state."""
        own = self._modules.own(node.content)
        return buffers_of(one for one in own if one.persistent or one.name in node.kept)

    def infos(self) -> tuple[ModuleInfo, ...]:
        return tuple(self.info(node) for node in self.nodes)

    def info(self, node: Node) -> ModuleInfo:
        own = self._modules.own(node.content)
        origin = self._layer_class(node)
        return ModuleInfo(
            path=node.path,
            type=node.type,
            kind=node.kind,
            origin=f"{origin.__module__}.{origin.__qualname__}",
            parameters={
                name: self._whole_shape(tensor) for name, tensor in (*parameters_of(own), *self._buffers(node))
            },
            settings=self._modules.settings(node.content),
            unseen=not node.can_record,
            line=self._line(node),
        )

    def _line(self, node: Node) -> str:
        """Where the user's program makes a layer of the framework, or runs a module of its own."""
        framework = self._framework.name
        found = runs_at(type(node.content), framework)
        names: list[str] = []
        while not found and node.parent is not None:
            names.insert(0, node.inside.removeprefix(node.parent.inside).lstrip("."))
            node = node.parent
            found = made_at(type(node.content), ".".join(names).split("."), framework)
        return found

    def _whole_shape(self, tensor: Any) -> tuple[int, ...]:
        shard = self._pieces.get(id(tensor))
        return tuple(int(size) for size in tensor.shape) if shard is None else shard.whole

    def _layer_class(self, node: Node) -> type:
        """The class; of a layer that was derived from the framework's, the framework's: its layout is known.

        Derived by a user, or on the fly by the framework itself: a parametrized layer of torch has a class of its own,
        and so has one that fully_shard was applied to, which mixes in a class that is not a layer.
        """
        own = type(node.content)
        if not node.kind:
            return own
        frameworks = (one for one in own.__mro__ if one.__module__.partition(".")[0] == self._framework.name)
        layers = (one for one in frameworks if hasattr(one, "forward") and _stands_in_its_module(one))
        return next(layers, own)

    def second_names(self) -> dict[str, dict[str, str]]:
        """Shared modules and tied weights: every further path with the path they are recorded under."""
        return {
            "shared_modules": {name: node.path for node in self.nodes for name in node.names},
            "tied_parameters": {name: slot.path for slot in self.slots for name in slot.names},
        }

    def forget(self) -> None:
        """Release the models; names stay."""
        self._node_of.clear()
        self._slot_of.clear()
        self._pieces.clear()
        self.wrappers.clear()
        for root in self.roots:
            root.module = None
        for node in self.nodes:
            node.module = node.content = None
        for slot in self.slots:
            slot.tensor = None


def kind_of_module(framework: Framework, module: Any) -> str:
    """What a module is in words that all frameworks share (linear, conv2d …); '' when it is none of these."""
    return _kind_of_class(type(module), framework.name)


@of_the_tables
def _kind_of_class(cls: type, framework: str) -> str:
    return kind_of((f"{one.__module__}.{one.__name__}" for one in cls.__mro__), framework)


def info_of(facts: ModuleFacts, framework: str) -> ModuleInfo:
    """A module of a model that is a value, as recordings describe it."""
    kind = kind_of(facts.classes, framework)
    own = (one for one in facts.classes if one.startswith(f"{framework}."))
    return ModuleInfo(
        path=facts.path,
        type=facts.classes[0].rpartition(".")[2],
        kind=kind,
        origin=next(own, facts.classes[0]) if kind else facts.classes[0],
        parameters={name: facts.inside[name].shape or () for name in facts.own},
        settings=facts.settings,
    )


def named_modules(framework: Framework, model: Any) -> Iterator[tuple[str, Any]]:
    """Every module of a model (or of several by name) under each of its paths, without what only wraps it."""
    modules = framework.eager

    def below(module: Any, path: str) -> Iterator[tuple[str, Any]]:
        while (inner := modules.wrapped(module)) is not None:
            module = inner
        yield path, module
        for name, child in modules.children(module):
            yield from below(child, join(path, name))

    roots = model.items() if isinstance(model, Mapping) else [("", model)]
    for name, root in roots:
        yield from below(root, name)


def modules_below(framework: Framework, model: Any) -> list[Any]:
    """The model and every module inside it, each once."""
    found: dict[int, Any] = {}

    def visit(module: Any) -> None:
        if id(module) not in found:
            found[id(module)] = module
            for _, child in framework.eager.children(module):
                visit(child)

    visit(model)
    return list(found.values())


def join(path: str, name: str) -> str:
    """A name below a path; the root's path is empty."""
    return f"{path}.{name}" if path else name


def parameters_of(own: Iterable[OwnTensor]) -> list[tuple[str, Any]]:
    """Those of a module's own tensors that are parameters, the frozen ones too."""
    return [(one.name, one.tensor) for one in own if one.trained and one.has_values]


def buffers_of(own: Iterable[OwnTensor]) -> list[tuple[str, Any]]:
    """Those of a module's own tensors that are recorded as its other state, such as running statistics."""
    return [(one.name, one.tensor) for one in own if not one.trained and one.has_values and not one.counter]


def _stands_in_its_module(one: type) -> bool:
    """Whether the class is written in the module that it names; one made while the program runs is not."""
    return getattr(sys.modules.get(one.__module__), one.__qualname__, None) is one
