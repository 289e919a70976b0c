"""A quantised graph, run as it is, and as the float graph that it stands for, with or without the rounding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.helper import make_node

from reprod_log.frameworks.contract import Rounding, Scheme
from reprod_log.frameworks.onnx.engines import marked, run
from reprod_log.frameworks.onnx.graphs import Graph, Region
from reprod_log.frameworks.quantised import Grid
from reprod_log.recording import Array

Edge = tuple[str, int]
"""The first output of a node, and the place of one of its inputs."""


class Origin(NamedTuple):
    """Where the quantised graph has a tensor of the float graph; with the grid where it has integers."""

    name: str
    grid: Grid | None = None

    def read(self, found: Mapping[str, Array]) -> Array:
        values = found[self.name]
        return values if self.grid is None else self.grid.values(values)

    def written(self, values: Array) -> Array:
        if self.grid is None:
            return values
        return self.grid.integers(values).astype(np.uint8 if self.grid.low == 0 else np.int8)


@dataclass(frozen=True, eq=False)
class QuantisedGraph(Graph):
    """The float graph that a quantised one stands for, with the reference's weights."""

    packed: Graph = field(kw_only=True)
    """As it is."""
    apart: Graph = field(kw_only=True)
    """The same with the operators apart that also stand for an activation."""
    origins: Mapping[str, Origin] = field(kw_only=True)
    taken: Mapping[Edge, Grid] = field(kw_only=True)
    """How what nodes take is rounded."""
    given: Mapping[str, Grid] = field(kw_only=True)
    """How what nodes give is rounded."""
    grids: Mapping[str, Grid] = field(kw_only=True)
    """How weights are rounded."""
    rounding: Rounding = "packed"

    def values(self, names: Iterable[str], given: Mapping[str, Array], dtype: str | None) -> dict[str, Array]:
        wanted = tuple(dict.fromkeys((*names, *self.outputs)))
        if self.rounding != "packed":
            return run(marked(self._rounding(self.proto, given), wanted), given, dtype, self.engine)
        origins = {name: self._origin(name) for name in wanted}
        names = {one.name for one in origins.values()}
        lacking = sorted(names - self.packed.made)
        found = {**given, **(self.apart.values(lacking, given, None) if lacking else {})}
        found |= self.packed.values(sorted(names & self.packed.made), given, None)
        return {name: one.read(found) for name, one in origins.items()}

    def values_alone(self, region: Region, given: Mapping[str, Array], dtype: str | None) -> dict[str, Array]:
        if self.rounding == "packed":
            return self._packed_alone(region, given)
        if self.rounding != "none":
            # The range of what it is given is another layer's to choose.
            given = {name: self.given[name](one) if name in self.given else one for name, one in given.items()}
        return run(self._rounding(self.part(region, given), given), given, dtype, self.engine)

    def _packed_alone(self, region: Region, given: Mapping[str, Array]) -> dict[str, Array]:
        outputs = {name: self._origin(name) for name in region.outputs}
        taken = {self._origin(name).name: self._origin(name).written(one) for name, one in given.items()}
        ends = [one.name for one in outputs.values()]
        graph = self.packed if self.packed.made.issuperset((*taken, *ends)) else self.apart
        found = run(graph.between(taken, ends), taken, None, self.engine)
        return {name: one.read(found) for name, one in outputs.items()}

    def _origin(self, name: str) -> Origin:
        return self.origins.get(name, Origin(name))

    def _rounding(self, proto: Any, given: Mapping[str, Array]) -> Any:
        """The float graph or a part of it, which rounds as is asked for."""
        if self.rounding == "none":
            return proto
        if self.rounding == "declared":
            return _rounded(proto, self.grids, self.given, self.taken)
        edges = {(node.output[0], place): one for node in proto.graph.node for place, one in enumerate(node.input)}
        taken = {edge: grid for edge, grid in self.taken.items() if edge in edges}
        made = {one for node in proto.graph.node for one in node.output}
        inside = made.intersection((*self.given, *(edges[edge] for edge in taken)))
        seen = {**given, **run(marked(proto, sorted(inside)), given, None, self.engine)}
        weights = {one.name: one for one in proto.graph.initializer}
        return _rounded(
            proto,
            {n: one.fitted(numpy_helper.to_array(weights[n])) for n, one in self.grids.items() if n in weights},
            {name: one.fitted(seen[name]) for name, one in self.given.items() if name in made},
            {edge: one if one.scale is None else one.fitted(seen[edges[edge]]) for edge, one in taken.items()},
        )

    @cached_property
    def schemes(self) -> dict[str, Scheme]:
        """How the layers with quantised weights are quantised, by path."""
        found: dict[str, Scheme] = {}
        for region in self.regions[:-1]:
            nodes = [self.nodes[place] for place in region.nodes]
            weights = [self.grids[one] for node in nodes for one in node.input if one in self.grids]
            if not weights or any(other.path.startswith(f"{region.path}.") for other in self.regions):
                continue
            edges = [(node.output[0], place) for node in nodes for place in range(len(node.input))]
            around = [one for node in nodes for one in (*node.input, *node.output)]
            scales = [self.taken[one].scale for one in edges if one in self.taken]
            scales += [self.given[one].scale for one in around if one in self.given]
            fixed = any(one is not None for one in scales)
            found[region.path] = Scheme(weights[0].kind, "static" if fixed else "dynamic" if scales else "")
        return found


def _rounded(proto: Any, weights: Mapping[str, Grid], given: Mapping[str, Grid], taken: Mapping[Edge, Grid]) -> Any:
    """The graph with rounding of its weights, and where nodes give or take what is rounded."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    for tensor in made.graph.initializer:
        if tensor.name in weights:
            values = weights[tensor.name](numpy_helper.to_array(tensor))
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    nodes: list[Any] = []
    for node in made.graph.node:
        first = node.output[0]
        for place, name in enumerate(node.input):
            if (grid := taken.get((first, place))) is not None:
                node.input[place] = f"{first}/taken{place}"
                nodes += _rounding_nodes(made, name, node.input[place], grid)
        nodes.append(node)
        for place, name in enumerate(node.output):
            if name in given:
                node.output[place] = f"{name}/unrounded"
                nodes += _rounding_nodes(made, node.output[place], name, given[name])
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


def _rounding_nodes(proto: Any, before: str, after: str, grid: Grid) -> list[Any]:
    """The nodes that round one tensor to another; what is fixed for them is added to the graph."""
    if grid.scale is None:
        parts = [f"{after}/{one}" for one in ("integers", "scale", "zero")]
        return [make_node("DynamicQuantizeLinear", [before], parts), make_node("DequantizeLinear", parts, [after])]
    fixed = {"scale": grid.scale, "zero": grid.zero, "low": grid.low, "high": grid.high}
    for name, value in fixed.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(value, np.float32), f"{after}/{name}"))
    steps = ("Div scale", "Round", "Add zero", "Clip low high", "Sub zero", "Mul scale")
    results = [*(f"{after}/{place}" for place in range(len(steps) - 1)), after]
    nodes = []
    for step, result in zip(steps, results, strict=True):
        operator, *others = step.split()
        nodes.append(make_node(operator, [before, *(f"{after}/{one}" for one in others)], [result]))
        before = result
    return nodes
