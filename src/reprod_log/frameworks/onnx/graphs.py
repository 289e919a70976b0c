"""A graph as layers: which nodes belong to which module of the program that it was exported from, call by call."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from reprod_log.errors import UsageError, counted, listed
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.onnx.engines import ENGINES, RUNTIME, marked, run
from reprod_log.frameworks.values import fits
from reprod_log.recording import Array

SUFFIX = ".onnx"
_SCOPES, _CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
"""What the exporter of torch writes on every node: the modules around it, outermost first, and their classes."""
_SIZES = ("Shape", "Size")
_KERNELS = ("Conv", "ConvTranspose")
_RANDOM = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial")
_NOT_IN_A_PATH = re.compile(r"[:#]+")
Names = tuple[str, ...]


@dataclass(frozen=True)
class Region:
    """One call of a module, or a single node: what enters it from outside, and what others use of it."""

    path: str
    call: int
    type: str
    """Dotted name of the class, where the exporter wrote it down, or the operator."""
    nodes: tuple[int, ...]
    inputs: Names
    outputs: Names


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph with its nodes in order."""

    proto: Any
    engine: str = RUNTIME
    """What runs it, in its own precision."""

    @cached_property
    def nodes(self) -> Sequence[Any]:
        return list(self.proto.graph.node)

    @cached_property
    def weights(self) -> frozenset[str]:
        return frozenset(one.name for one in self.proto.graph.initializer)

    @cached_property
    def inputs(self) -> Names:
        """What the graph is given; old graphs list their weights there as well."""
        return tuple(one.name for one in self.proto.graph.input if one.name not in self.weights)

    @property
    def constants(self) -> dict[str, Array]:
        """The floating tensors that it has inside."""
        found = {one.name: onnx.numpy_helper.to_array(one) for one in self.proto.graph.initializer}
        for node in self.nodes:
            if node.op_type == "Constant" and node.attribute[0].HasField("t"):
                found[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
        return {name: one for name, one in found.items() if one.dtype.kind == "f"}

    @cached_property
    def outputs(self) -> Names:
        return tuple(one.name for one in self.proto.graph.output)

    @cached_property
    def fixed(self) -> frozenset[str]:
        """Tensors that do not depend on what the graph is given: weights, constants and what is computed of them."""
        known = set(self.weights)
        for node in self.nodes:
            if (
                node.op_type not in _RANDOM
                and not _has_graph(node)
                and all(not one or one in known for one in node.input)
            ):
                known.update(node.output)
        return frozenset(known)

    @cached_property
    def sizes(self) -> frozenset[str]:
        """Tensors that depend on the shapes of what the graph is given only."""
        known: set[str] = set()
        for node in self.nodes:
            told = all(not one or one in known or one in self.fixed for one in node.input)
            if node.op_type in _SIZES or (told and not self.fixed.issuperset(node.output)):
                known.update(node.output)
        return frozenset(known)

    @cached_property
    def _has_channels_last(self) -> bool:
        """Whether it has its images with the channels last, and moves them to the front for its kernels."""
        return next(filter(None, map(_channels_moved, self.nodes)), "") == "first"

    @cached_property
    def _with_channels_first(self) -> frozenset[str]:
        """Tensors of such a graph that come from where channels were moved to the front, and not back yet."""
        found: set[str] = set()
        for node in self.nodes:
            moved = _channels_moved(node)
            if moved == "first" or (not moved and not found.isdisjoint(node.input)):
                found.update(node.output)
        return frozenset(found)

    @cached_property
    def _shapes(self) -> Mapping[str, tuple[int | None, ...]]:
        known = onnx.shape_inference.infer_shapes(self.proto).graph
        return {
            one.name: tuple(dim.dim_value or None for dim in one.type.tensor_type.shape.dim)
            for one in (*known.input, *known.value_info, *known.output)
            if one.type.tensor_type.HasField("shape")
        }

    def _is_last(self, name: str, array: Array) -> bool:
        return array.ndim >= 4 and self._has_channels_last and name not in self._with_channels_first

    def arranged(self, name: str, array: Array) -> Array:
        """An image with its channels where this graph has them for a tensor; frameworks exchange them first."""
        if not self._is_last(name, array):
            return array
        moved, wanted = np.moveaxis(array, 1, -1), self._shapes.get(name)
        return moved if wanted is None or fits(moved.shape, wanted) else array

    def exchanged(self, name: str, array: Array) -> Array:
        """An image of this graph as the frameworks exchange it."""
        return np.moveaxis(array, -1, 1) if self._is_last(name, array) else array

    def is_value(self, name: str) -> bool:
        """Whether a tensor carries values of the data through the graph."""
        return bool(name) and name not in self.fixed and name not in self.sizes

    @cached_property
    def computing(self) -> tuple[int, ...]:
        """The places of the nodes that compute values of the data."""
        return tuple(place for place, node in enumerate(self.nodes) if any(self.is_value(one) for one in node.output))

    @cached_property
    def has_scopes(self) -> bool:
        """Whether the exporter wrote down which module each node comes from."""
        return any(_scopes(self.nodes[place])[0] for place in self.computing)

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """Every call of every module in the order in which they end, and every node that is in no leaf of them."""
        if not self.has_scopes:
            found = [self._node_region(place, "") for place in self.computing]
        else:
            calls = self._calls()
            paths = {path for path, _, _ in calls}
            containers = {path for path in paths if any(other.startswith(f"{path}.") for other in paths)} | {""}
            found = [self._region(*call) for call in calls]
            found += [self._node_region(place, home) for place, home in self._homes().items() if home in containers]
        whole = Region("", 0, self.proto.graph.name or "Graph", self.computing, self.inputs, self.outputs)
        # A module ends with its last node, the inner ones before those around them.
        return (*sorted(found, key=lambda one: (one.nodes[-1], -len(one.path))), whole)

    def _homes(self) -> dict[int, str]:
        """The innermost module of each computing node."""
        return {place: next(iter(_scopes(self.nodes[place])[0][::-1]), "") for place in self.computing}

    def _calls(self) -> list[tuple[str, str, list[int]]]:
        """Unbroken runs of computing nodes of each module: a module that is called twice has two of them."""
        runs: dict[str, list[tuple[str, list[int]]]] = {}
        before: tuple[str, ...] = ()
        for place in self.computing:
            paths, classes = _scopes(self.nodes[place])
            for path, type_name in zip(paths, classes, strict=True):
                if path not in before:
                    runs.setdefault(path, []).append((type_name, []))
                runs[path][-1][1].append(place)
            before = paths
        return [(path, type_name, places) for path, found in runs.items() for type_name, places in found]

    @cached_property
    def _counts(self) -> dict[str, int]:
        return {}

    def _region(self, path: str, type_name: str, places: Sequence[int]) -> Region:
        call = self._counts[path] = self._counts.get(path, -1) + 1
        return Region(path, call, type_name, tuple(places), self._entering(places), self._leaving(places))

    def _node_region(self, place: int, home: str) -> Region:
        node = self.nodes[place]
        outputs = tuple(one for one in node.output if self.is_value(one))
        return Region(
            join(home, label(node, place)), 0, self._operator(node), (place,), self._entering([place]), outputs
        )

    def _operator(self, node: Any) -> str:
        """The operator, with the number of dimensions that it works in where it takes any."""
        shape = next((list(one.ints) for one in node.attribute if one.name == "kernel_shape"), None)
        if shape is None and node.op_type in _KERNELS:
            weight = next((one for one in self.proto.graph.initializer if one.name == node.input[1]), None)
            shape = [] if weight is None else list(weight.dims)[2:]
        return f"{node.op_type}{len(shape)}d" if shape else str(node.op_type)

    def _entering(self, places: Iterable[int]) -> Names:
        made = {one for place in places for one in self.nodes[place].output}
        used = (one for place in places for one in self.nodes[place].input)
        return tuple(dict.fromkeys(one for one in used if self.is_value(one) and one not in made))

    def _leaving(self, places: Sequence[int]) -> Names:
        inside = set(places)
        made = [one for place in places for one in self.nodes[place].output if self.is_value(one)]
        return tuple(one for one in made if one in self.outputs or self._users.get(one, set()) - inside)

    @cached_property
    def _users(self) -> Mapping[str, set[int]]:
        users: dict[str, set[int]] = {}
        for place, node in enumerate(self.nodes):
            for one in (*node.input, *_outer_names(node)):
                users.setdefault(one, set()).add(place)
        return users

    @cached_property
    def made(self) -> frozenset[str]:
        """Every tensor that it is given or computes."""
        return frozenset((*self.inputs, *(one for node in self.nodes for one in node.output)))

    def values(self, names: Iterable[str], given: Mapping[str, Array], dtype: str | None) -> dict[str, Array]:
        """These tensors and its outputs, in one run."""
        wanted = (one for one in dict.fromkeys(names) if one not in self.inputs)
        return run(marked(self.proto, wanted), given, dtype, self.engine)

    def values_alone(self, region: Region, given: Mapping[str, Array], dtype: str | None) -> dict[str, Array]:
        """What one region makes of these inputs by itself."""
        return run(self.part(region, given), given, dtype, self.engine)

    def part(self, region: Region, given: Mapping[str, Array]) -> Any:
        """A model of the nodes of one region alone, with what is fixed around them."""
        lacking = self._sizes_from_outside(region)
        if lacking:
            raise UsageError(f"it needs sizes that are computed outside of it: {listed(lacking)}")
        inside = set(region.nodes)
        kept = [
            node
            for place, node in enumerate(self.nodes)
            if place in inside or self.fixed.issuperset(node.output) or self.sizes.issuperset(node.output)
        ]
        known = {*self.fixed, *region.inputs}
        nodes = []
        for node in kept:
            if all(not one or one in known for one in (*node.input, *_outer_names(node))):
                nodes.append(node)
                known.update(node.output)
        return self._model(nodes, given, region.outputs)

    def between(self, given: Mapping[str, Array], outputs: Sequence[str]) -> Any:
        """A model of the nodes that make these outputs of what is given."""
        wanted, kept = set(outputs) - set(given), []
        for node in reversed(self.nodes):
            if not wanted.isdisjoint(node.output):
                kept.append(node)
                wanted.update(one for one in (*node.input, *_outer_names(node)) if one and one not in given)
        lacking = wanted.intersection(self.inputs)
        if lacking:
            raise UsageError(f"it needs what is computed outside of it: {listed(sorted(lacking))}")
        return self._model(kept[::-1], given, outputs)

    def _model(self, nodes: Iterable[Any], given: Mapping[str, Array], outputs: Sequence[str]) -> Any:
        # Not a copy of the whole, which has all weights.
        made = onnx.ModelProto(ir_version=self.proto.ir_version)
        made.opset_import.extend(self.proto.opset_import)
        made.functions.extend(self.proto.functions)
        made.graph.name = self.proto.graph.name
        made.graph.node.extend(nodes)
        used = {*outputs, *(one for node in made.graph.node for one in (*node.input, *_outer_names(node)))}
        made.graph.initializer.extend(one for one in self.proto.graph.initializer if one.name in used)
        made.graph.sparse_initializer.extend(self.proto.graph.sparse_initializer)
        kinds = {name: onnx.helper.np_dtype_to_tensor_dtype(one.dtype) for name, one in given.items()}
        made.graph.input.extend(onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items())
        made.graph.output.extend(onnx.helper.make_empty_tensor_value_info(one) for one in outputs)
        return made

    def _sizes_from_outside(self, region: Region) -> list[str]:
        known = {*self.fixed, *region.inputs}
        inside = set(region.nodes)
        for place, node in enumerate(self.nodes):
            if all(not one or one in known for one in node.input) and (
                place in inside or node.op_type in _SIZES or self.sizes.issuperset(node.output)
            ):
                known.update(node.output)
        return sorted({one for place in inside for one in self.nodes[place].input if one and one not in known})


def _channels_moved(node: Any) -> str:
    """Where a node moves channels to: "first", "last", or nowhere."""
    perm = next((list(one.ints) for one in node.attribute if node.op_type == "Transpose"), [])
    if len(perm) < 4 or perm[0] != 0:
        return ""
    rest = list(range(1, len(perm)))
    return {(rest[-1], *rest[:-1]): "first", (*rest[1:], rest[0]): "last"}.get(tuple(perm[1:]), "")


def _has_graph(node: Any) -> bool:
    return any(one.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for one in node.attribute)


def _outer_names(node: Any) -> list[str]:
    """What the graphs inside a node (branches, loop bodies) use of the one around them."""
    found: list[str] = []
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            made = {one for inner in graph.node for one in inner.output} | {one.name for one in graph.initializer}
            used = [one for inner in graph.node for one in (*inner.input, *_outer_names(inner))]
            found += [one for one in (*used, *(one.name for one in graph.output)) if one and one not in made]
    return found


def _scopes(node: Any) -> tuple[Names, Names]:
    """The paths of the modules around a node, outermost first, without the whole model, and their classes."""
    notes = {one.key: one.value for one in node.metadata_props}
    try:
        paths, classes = (ast.literal_eval(notes.get(key, "[]")) for key in (_SCOPES, _CLASSES))
    except (ValueError, SyntaxError):
        return (), ()
    if not isinstance(paths, list) or not isinstance(classes, list) or len(paths) != len(classes):
        return (), ()
    # The last of both is the node itself.
    found = [(path, name) for path, name in zip(paths[:-1], classes[:-1], strict=True) if path]
    return tuple(path for path, _ in found), tuple(name for _, name in found)


def with_scope(node: Any, path: str, operator: str) -> None:
    """Note on a node that it belongs to a module, where it has no such note."""
    if not _scopes(node)[0]:
        notes = ((_SCOPES, [path, node.name]), (_CLASSES, [f"onnx.{operator}", operator]))
        node.metadata_props.extend(onnx.StringStringEntryProto(key=key, value=repr(value)) for key, value in notes)


def label(node: Any, place: int) -> str:
    """A name for a node that a path may have: its own, or its operator and place."""
    name = _NOT_IN_A_PATH.sub("_", node.name).strip("/").replace("/", ".")
    return name or f"{node.op_type}_{place}"


def is_graph(model: object) -> bool:
    """Whether it is a graph, a file of one, or what an exporter returns; beside it may stand {"engine": name}."""
    if isinstance(model, tuple):
        graph, options = model if len(model) == 2 else (None, None)
        return isinstance(options, Mapping) and is_graph(graph)
    if isinstance(model, (str, Path)):
        return str(model).lower().endswith(SUFFIX)
    return isinstance(model, (Graph, onnx.ModelProto)) or type(model).__name__ == "ONNXProgram"


def graph_of(model: Any) -> Graph:
    """The graph behind a path, a ModelProto or an exporter's program, and the engine that runs it."""
    if isinstance(model, tuple):
        engine = model[1].get("engine", RUNTIME)
        if set(model[1]) - {"engine"} or engine not in ENGINES:
            raise UsageError(f"pass the engine of a graph as {{'engine': name}}, one of {listed(ENGINES)}")
        return replace(graph_of(model[0]), engine=engine)
    if isinstance(model, (str, Path)):
        path = Path(model)
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
        return _read(path, path.stat().st_mtime_ns)
    if isinstance(model, Graph):
        return model
    return Graph(model if isinstance(model, onnx.ModelProto) else model.model_proto)


@lru_cache(maxsize=4)
def _read(path: Path, changed: int) -> Graph:
    try:
        return Graph(onnx.load(path))
    except Exception as error:  # protobuf raises classes of its own
        raise UsageError(f"{path} cannot be read as an ONNX graph: {error}") from error


def fed(graph: Graph, given: Any) -> dict[str, Any]:
    """What a batch gives to each of the graph's inputs: by name where the names are the graph's, else in order."""
    if isinstance(given, Mapping) and set(graph.inputs) <= set(given):
        return {name: given[name] for name in graph.inputs}
    values = list(given.values()) if isinstance(given, Mapping) else list(given)
    if len(values) != len(graph.inputs):
        raise UsageError(
            f"the graph takes {counted(len(graph.inputs), 'input')} ({listed(graph.inputs)}), "
            f"and was given {len(values)}"
        )
    return dict(zip(graph.inputs, values, strict=True))
