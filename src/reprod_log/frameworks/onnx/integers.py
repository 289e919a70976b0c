"""Reads a quantised graph as the float graph that it stands for, whatever way its integers are written in.

rounding between operators on floats        QuantizeLinear, DequantizeLinear
operators on integers                       QLinearConv, QGemm …
products of integers, scaled afterwards     DynamicQuantizeLinear, MatMulInteger, Cast, Mul
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.helper import make_node

from reprod_log.errors import UsageError
from reprod_log.frameworks.onnx.engines import run
from reprod_log.frameworks.onnx.graphs import Graph, label, with_scope
from reprod_log.frameworks.onnx.quantised import Edge, Origin, QuantisedGraph
from reprod_log.frameworks.quantised import Grid
from reprod_log.recording import Array


class _Form(NamedTuple):
    """An operator on integers: what it is on floats, and which of its inputs are what."""

    operator: str
    factors: tuple[tuple[int, int, int], ...]
    """Places of each tensor, its scale and its zero point."""
    gives: tuple[int, int]
    """Places of the scale and zero point of what it gives; without them it gives floats."""
    bias: int | None = None
    plain: tuple[int, ...] = ()
    """Places of inputs that are no integers, which come first."""


_ONE, _TWO = ((0, 1, 2),), ((0, 1, 2), (3, 4, 5))
_FORMS = {
    "QLinearConv": _Form("Conv", _TWO, (6, 7), 8),
    "QLinearMatMul": _Form("MatMul", _TWO, (6, 7)),
    "QGemm": _Form("Gemm", _TWO, (7, 8), 6),
    "QLinearAdd": _Form("Add", _TWO, (6, 7)),
    "QLinearMul": _Form("Mul", _TWO, (6, 7)),
    "QLinearWhere": _Form("Where", ((1, 2, 3), (4, 5, 6)), (7, 8), plain=(0,)),
    "QLinearSigmoid": _Form("Sigmoid", _ONE, (3, 4)),
    "QLinearLeakyRelu": _Form("LeakyRelu", _ONE, (3, 4)),
    "QLinearSoftmax": _Form("Softmax", _ONE, (3, 4)),
    "QLinearAveragePool": _Form("AveragePool", _ONE, (3, 4)),
    "QLinearGlobalAveragePool": _Form("GlobalAveragePool", _ONE, (3, 4)),
}
_CONCAT = "QLinearConcat"
_PRODUCTS = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
"""Products of integers, which are multiplied by the scales afterwards."""
_MOVING = (
    "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split", "Gather", "GatherElements", "Identity",
    "Concat", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "MaxPool", "Resize", "Pad",
)  # fmt: skip
"""Operators that take integers to the same integers at other places."""
_POSITIVE = ("Relu", "Sigmoid", "Softmax", "Exp", "Abs", "Softplus")
_KEEPING = (*_MOVING, "AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum", "ReduceMax", "Add", "Mul")
"""Operators that make positive numbers of positive numbers."""
_UNKNOWN = ("MatMulNBits", "QAttention", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "DynamicQuantizeLSTM")
_MARKS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", _CONCAT, *_FORMS, *_PRODUCTS, *_UNKNOWN)
"""Operators that only quantised graphs have."""
_SUFFIXES = ("_quantized", "_QuantizeLinear_Output", "_quant")
"""What is written behind the names of what is quantised."""
_OWN_SETTINGS = ("opset", "channels_last")
_SIX = 6.0
"""Where the usual activation with an upper end has it."""
_FAR = 0.5
"""Relative distance from which on a weight is not taken for another, rounded."""


class _Value(NamedTuple):
    """What a tensor of the quantised graph is in the float graph: a tensor, and how it is rounded on the way."""

    name: str
    grid: Grid | None = None
    integers: str = ""
    """The tensor that has it as integers."""


def readable(graph: Graph, weights: Mapping[str, Array], known: Mapping[str, Any]) -> QuantisedGraph | None:
    """The float graph that a quantised one stands for, with these weights; None for one without integers.

    `known` are the nodes of the reference by what they give, where that is a graph as well.
    """
    quantised = any(node.op_type in _MARKS for node in graph.nodes)
    return _Reader(graph, weights, known).read() if quantised else None


class _Reader:
    """Goes through a quantised graph and writes the float graph."""

    def __init__(self, graph: Graph, weights: Mapping[str, Array], known: Mapping[str, Any]) -> None:
        self.graph, self.known, self.reference = graph, known, weights
        self.nodes: list[Any] = []
        self.values: dict[str, _Value] = {}
        """By names of the quantised graph."""
        self.tensors: dict[str, Array] = {}
        """What is fixed and not so in the quantised graph."""
        self.grids: dict[str, Grid] = {}
        self.given: dict[str, Grid] = {}
        self.taken: dict[Edge, Grid] = {}
        self.origins: dict[str, Origin] = {}
        self.integers: dict[str, Origin] = {}
        """Integers of tensors that are rounded on the way to their users."""
        self.apart: dict[str, list[Any]] = {}
        """Operators on integers by what they give, as operators on floats between roundings."""
        self.makers = {one: node for node in graph.nodes for one in node.output}
        self.users: dict[str, list[Any]] = {}
        for node in graph.nodes:
            for one in node.input:
                self.users.setdefault(one, []).append(node)
        scales = {node.output[1] for node in graph.nodes if node.op_type == "DynamicQuantizeLinear"}
        self.done = {one.output[0] for one in graph.nodes if one.op_type == "Mul" and scales.intersection(one.input)}
        """Outputs of nodes that are read with others; products of scales to begin with."""

    def read(self) -> QuantisedGraph:
        for node in self.graph.nodes:
            if node.output[0] not in self.done:
                self._read(node)
        self._name_outputs()
        self._round_where_it_is_made()
        self._write_activations()
        self._join_layers()
        self.nodes = self._in_order()
        # An operator stays as it is unless an activation stands between it and its rounding.
        apart = {one: nodes for one, nodes in self.apart.items() if f"{_plain_name(one)}/exact" in _made(self.nodes)}
        parts = [part for node in self.graph.nodes for part in apart.get(node.output[0], [node])]
        return QuantisedGraph(
            self._proto(self.nodes), self.graph.engine, packed=self.graph,
            apart=Graph(self._proto(parts), self.graph.engine), origins=self.origins, taken=self.taken,
            given=self.given, grids=self.grids,
        )  # fmt: skip

    # ---- node by node

    def _read(self, node: Any) -> None:
        integers = [one for one in node.input if self._is_integer(one)]
        if node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear"):
            self._quantise(node)
        elif node.op_type == "DequantizeLinear":
            stored = node.input[0]
            value = self._weight(stored, node.input[1], _at(node, 2), _axis(node)) if self._is_fixed(stored) else None
            self.values[node.output[0]] = value or self.values[stored]
        elif node.op_type in _PRODUCTS:
            self._product(node)
        elif node.op_type in _FORMS or node.op_type == _CONCAT:
            self._integer_operator(node, _FORMS.get(node.op_type) or _concat(node))
        elif node.op_type in _MOVING and integers:
            self._move(node)
        elif integers or node.op_type in _MARKS:
            raise UsageError(
                f"{label(node, 0)} ({node.op_type}) works on integers in a way that is not known here, so what its "
                "precision explains cannot be told. Leave this node in float32, or compare recordings of both graphs "
                'by fixed limits, e.g. limits="rel_l2:0.05"'
            )
        else:
            self._add(node, node.op_type, node.input, node.output)

    def _quantise(self, node: Any) -> None:
        if self._is_fixed(node.input[0]):
            return  # a weight that the graph itself rounds
        before, grid = self._value(node.input[0]), Grid(0, 255)
        if node.op_type == "QuantizeLinear":
            grid = self._grid(node.input[1], _at(node, 2), np.uint8, _axis(node))
        name = before.name
        if before.grid is not None:
            # Rounded twice.
            name = f"{node.output[0]}/values"
            self._add(make_node("Identity", [], []), "Identity", node.input[:1], [name])
        self.values[node.output[0]] = _Value(name, grid, node.output[0])

    def _product(self, node: Any) -> None:
        """A product of integers, the cast of it and its multiplication by both scales."""
        cast = self._only_user(node.output[0], "Cast")
        scaled = None if cast is None else self._only_user(cast.output[0], "Mul")
        given, weight = node.input[:2]
        if cast is None or scaled is None or not self._is_fixed(weight) or given not in self.values:
            raise UsageError(f"{label(node, 0)} ({node.op_type}): no cast and multiplication by scales follow")
        factors = [one for one in scaled.input if one != cast.output[0]]
        factors += [one for name in factors if name in self.makers for one in self.makers[name].input]
        scale = next(one for one in factors if self._is_fixed(one))
        axis = 0 if node.op_type == "ConvInteger" else self._constant(weight).ndim - 1
        self.values[f"{weight}/weight"] = self._weight(weight, scale, _at(node, 3), axis)
        self.done |= {cast.output[0], scaled.output[0]}
        self._add(node, _PRODUCTS[node.op_type], [given, f"{weight}/weight"], scaled.output)

    def _integer_operator(self, node: Any, form: _Form) -> None:
        given = [node.input[place] for place in form.plain]
        parts, apart = list(given), []
        scales = []
        for place, scale, zero in form.factors:
            name, result = node.input[place], f"{node.output[0]}/{place}"
            axis = _axis_of_weight(node, self._constant(name).ndim) if self._is_fixed(name) else 0
            if self._is_fixed(name):
                self.values[f"{name}/weight"] = self._weight(name, node.input[scale], node.input[zero], axis)
            given.append(f"{name}/weight" if self._is_fixed(name) else name)
            scales.append(self._constant(node.input[scale]))
            inputs = [name, node.input[scale], node.input[zero]]
            apart.append(make_node("DequantizeLinear", inputs, [result], axis=axis))
            parts.append(result)
        if form.bias is not None and (name := _at(node, form.bias)):
            self.tensors[f"{name}/scale"] = (scales[0] * scales[1]).astype(np.float32)
            self.values[f"{name}/weight"] = self._weight(name, f"{name}/scale", "", 0)
            given.append(f"{name}/weight")
            parts.append(f"{node.output[0]}/bias")
            apart.append(make_node("DequantizeLinear", [name, f"{name}/scale"], parts[-1:], axis=0))
        output = _plain_name(node.output[0])
        made = self._add(node, form.operator, given, [output])
        out_scale, out_zero = (_at(node, place) for place in form.gives)
        if not out_scale:
            return
        self._gives_integers(node.output[0], output, self._grid(out_scale, out_zero, np.uint8, None))
        exact = make_node(form.operator, parts, [f"{output}/exact"])
        exact.attribute.extend(made.attribute)
        self.apart[node.output[0]] = [
            *apart, exact, make_node("QuantizeLinear", [f"{output}/exact", out_scale, out_zero], node.output),
        ]  # fmt: skip

    def _move(self, node: Any) -> None:
        """A node that has the same integers at other places: the same of what they stand for."""
        for one in node.input:
            if self._is_fixed(one) and self._is_integer(one):
                scale, zero = self._read_by(node.output[0])
                self.values[one] = self._weight(one, scale, zero, None)._replace(integers=one)
        first = next(self.values[one] for one in node.input if one in self.values)
        grid = self.given.get(first.name) or self.grids.get(first.name) or first.grid
        outputs = [_plain_name(one) for one in node.output]
        self._add(node, node.op_type, node.input, outputs)
        for one, name in zip(node.output, outputs, strict=True):
            assert grid is not None
            self._gives_integers(one, name, replace(grid, own=None))

    def _gives_integers(self, integers: str, name: str, grid: Grid) -> None:
        self.values[integers] = _Value(name, None, integers)
        self.given[name], self.origins[name] = grid, Origin(integers, grid)

    def _add(self, node: Any, operator: str, given: Sequence[str], outputs: Sequence[str]) -> Any:
        """Adds a node to the float graph, with the settings of this one; `given` are names of the quantised graph."""
        made = onnx.NodeProto()
        made.CopyFrom(node)
        made.op_type, made.domain = operator, node.domain if operator == node.op_type else ""
        made.name = _plain_name(node.name)
        del made.input[:], made.output[:], made.attribute[:]
        made.attribute.extend(one for one in node.attribute if one.name not in _OWN_SETTINGS)
        made.output.extend(outputs)
        for place, one in enumerate(given):
            value = self._value(one)
            made.input.append(value.name)
            if value.grid is not None:
                self.taken[outputs[0], place] = value.grid
                self.integers.setdefault(value.name, Origin(value.integers, value.grid))
        self._with_notes(made, outputs[0])
        self.nodes.append(made)
        return made

    def _with_notes(self, node: Any, output: str) -> None:
        """Gives a node the reference's notes on its modules, where the quantising lost them."""
        if output in self.known and not node.metadata_props:
            node.metadata_props.extend(self.known[output].metadata_props)

    # ---- the graph as a whole

    def _name_outputs(self) -> None:
        """What the graph gives keeps its names."""
        for name in self.graph.outputs:
            value = self._value(name)
            if value.name == name:
                continue
            if value.name not in _made(self.nodes) or value.name in self.graph.outputs:
                self._add(make_node("Identity", [], [], name=name), "Identity", [name], [name])
                continue
            self._rename(value.name, name)
            if value.grid is not None:
                self.given[name] = value.grid
            self.origins[name] = Origin(name)

    def _rename(self, old: str, new: str) -> None:
        for node in self.nodes:
            for names in (node.input, node.output):
                for place, one in enumerate(names):
                    names[place] = new if one == old else one
        self.taken = {(new if one == old else one, place): grid for (one, place), grid in self.taken.items()}
        self.given = {new if one == old else one: grid for one, grid in self.given.items()}
        self.origins = {new if one == old else one: origin for one, origin in self.origins.items()}

    def _round_where_it_is_made(self) -> None:
        """A tensor that all its users take rounded in one way is rounded by the node that gives it."""
        uses: dict[str, list[Edge]] = {}
        for node in self.nodes:
            for place, one in enumerate(node.input):
                uses.setdefault(one, []).append((node.output[0], place))
        for name in _made(self.nodes).intersection(uses):
            grids = [self.taken.get(edge) for edge in uses[name]]
            if name in self.graph.outputs or name in self.given:
                grids.append(self.given.get(name))
            first = grids[0]
            if first is None or first.scale is None or not all(one is not None and first.equals(one) for one in grids):
                continue
            self.given[name] = first
            for edge in uses[name]:
                self.taken.pop(edge, None)
            if name not in self.graph.outputs:
                self.origins[name] = self.integers[name]

    def _write_activations(self) -> None:
        """Rounding to positive numbers only stands for an activation, unless they are positive already."""
        positive: set[str] = set()
        nodes = []
        for node in self.nodes:
            nodes.append(node)
            values = [one for one in node.input if one and one not in self.tensors and one not in self.graph.fixed]
            if node.op_type in _POSITIVE or (node.op_type in _KEEPING and positive.issuperset(values)):
                positive.update(node.output)
            for place, name in enumerate(node.output):
                if name in self.given and self.given[name].is_positive and name not in positive:
                    positive.add(name)
                    nodes.append(self._activation(node, place))
        self.nodes = nodes

    def _activation(self, node: Any, place: int) -> Any:
        """The activation that is in the rounding of what a node gives."""
        name, exact = node.output[place], f"{node.output[place]}/exact"
        grid, origin = self.given[name], self.origins.get(name, Origin(name))
        node.output[place] = exact
        self.taken = {(exact if one == name else one, at): other for (one, at), other in self.taken.items()}
        if origin.name not in self.apart:
            source = self.makers[origin.name]
            if source.op_type == "DequantizeLinear":
                source = self.makers[source.input[0]]
            self.origins[exact] = Origin(source.input[0])
        before = self.known.get(name)
        title = before.name if before is not None and before.op_type in ("Relu", "Clip") else f"{node.name}_Relu"
        made = make_node("Relu", [exact], [name], name=title)
        if abs(float((grid.high - grid.zero) * grid.scale) - _SIX) < float(grid.scale) / 2:
            self.tensors |= {"/0": np.zeros((), np.float32), "/6": np.full((), _SIX, np.float32)}
            made = make_node("Clip", [exact, "/0", "/6"], [name], name=title)
        self._with_notes(made, name)
        return made

    def _join_layers(self) -> None:
        """A product and its bias are one layer, unless the reference has a tensor between them as well."""
        users: dict[str, list[Any]] = {}
        for node in self.nodes:
            for one in node.input:
                users.setdefault(one, []).append(node)
        for node in self.nodes:
            after = users.get(node.output[0], [])
            if node.op_type not in ("MatMul", "Conv") or node.output[0] in self.known or len(after) != 1:
                continue
            added = after[0]
            if added.op_type == "Add" and any(one in self.tensors or self._is_fixed(one) for one in added.input):
                title = onnx.NodeProto(name=node.name.removesuffix("_MatMul"))
                for one in (node, added):
                    with_scope(one, label(title, self.nodes.index(node)), node.op_type)

    def _in_order(self) -> list[Any]:
        """The nodes as the reference has them: what quantises a graph puts those of several layers among each other."""
        places = {name: place for place, name in enumerate(self.known or self._depth_first())}
        order: dict[str, int] = {}
        for node in reversed(self.nodes):
            own = [places[one] for one in node.output if one in places]
            place = min(own or [order[one] for one in node.output if one in order], default=len(places))
            order |= dict.fromkeys(node.output, place)
            for one in node.input:
                order[one] = min(order.get(one, place), place)
        ordered = sorted(self.nodes, key=lambda one: order[one.output[0]])
        waiting = _made(self.nodes)
        for node in ordered:
            if not waiting.isdisjoint(node.input):
                return self.nodes
            waiting.difference_update(node.output)
        return ordered

    def _depth_first(self) -> list[str]:
        """Tensors in an order in which each comes as late as it can."""
        makers = {one: node for node in self.nodes for one in node.output}
        found: dict[str, None] = {}
        waiting = [(one, False) for one in reversed(self.graph.outputs)]
        while waiting:
            name, ready = waiting.pop()
            if ready:
                found.setdefault(name)
            elif name in makers and name not in found:
                waiting.append((name, True))
                waiting.extend((one, False) for one in reversed(makers[name].input))
        return list(found)

    def _proto(self, nodes: Iterable[Any]) -> Any:
        made = onnx.ModelProto()
        made.CopyFrom(self.graph.proto)
        del made.graph.node[:], made.graph.initializer[:], made.graph.value_info[:]
        made.graph.node.extend(nodes)
        used = {one for node in made.graph.node for one in node.input}
        made.graph.initializer.extend(one for one in self.graph.proto.graph.initializer if one.name in used)
        made.graph.initializer.extend(
            numpy_helper.from_array(one, name) for name, one in self.tensors.items() if name in used
        )
        return made

    # ---- what is fixed

    def _value(self, name: str) -> _Value:
        return self.values.get(name, _Value(name))

    def _only_user(self, name: str, operator: str) -> Any | None:
        users = self.users.get(name, [])
        return users[0] if len(users) == 1 and users[0].op_type == operator else None

    def _is_fixed(self, name: str) -> bool:
        return name in self.graph.fixed

    def _is_integer(self, name: str) -> bool:
        """Whether a tensor has integers that stand for other values."""
        if name in self.values:
            return self.values[name].integers == name
        return name in self.graph.weights and self._constant(name).dtype in (np.int8, np.uint8)

    @cached_property
    def _constants(self) -> dict[str, Array]:
        return {one.name: numpy_helper.to_array(one) for one in self.graph.proto.graph.initializer}

    def _constant(self, name: str) -> Array:
        if name in self.tensors:
            return self.tensors[name]
        if not self._is_fixed(name):
            raise UsageError(
                f"{name!r} is computed: scales, zero points and weights in integers are read if they are fixed"
            )
        if name not in self._constants:
            self._constants.update(run(self.graph.between({}, [name]), {}, None))
        return self._constants[name]

    def _grid(self, scale: str, zero: str, kind: Any, axis: int | None) -> Grid:
        """The grid of integers of a type, unless the zero point is of another."""
        scales, zeros = self._constant(scale), self._constant(zero) if zero else np.zeros((), kind)
        if zeros.dtype not in (np.int8, np.uint8, np.int32):
            raise UsageError(f"{scale!r} is the scale of {zeros.dtype}; int8 and uint8 can be read")
        if scales.size == 1:
            return Grid.of_kind(zeros.dtype, scales.reshape(()), zeros.reshape(-1)[0])
        return Grid.of_kind(zeros.dtype, scales.reshape(-1), np.broadcast_to(zeros.reshape(-1), scales.size), axis)

    def _weight(self, stored: str, scale: str, zero: str, axis: int | None) -> _Value:
        """A weight of the float graph: the reference's, with how it is rounded."""
        integers = self._constant(stored)
        grid = self._grid(scale, zero, integers.dtype, axis)
        maker = self.makers.get(stored)
        source = _plain_name(stored if maker is None else maker.input[0])
        name = f"{source}/weight"
        if name not in self.grids:
            own = grid.values(integers)
            self.grids[name] = replace(grid, own=own)
            self.tensors[name] = _of_reference(source, own, self.reference)
        return _Value(name)

    def _read_by(self, name: str) -> tuple[str, str]:
        """The scale and zero point by which integers are read later on."""
        for node in self.users.get(name, ()):
            if node.op_type == "DequantizeLinear":
                return node.input[1], _at(node, 2)
            for place, scale, zero in _FORMS[node.op_type].factors if node.op_type in _FORMS else ():
                if node.input[place] == name:
                    return node.input[scale], node.input[zero]
            if node.op_type in _MOVING:
                return self._read_by(node.output[0])
        raise UsageError(f"no scale is known for the integers {name!r}")


def _made(nodes: Iterable[Any]) -> set[str]:
    return {one for node in nodes for one in node.output}


def _at(node: Any, place: int) -> str:
    return str(node.input[place]) if place < len(node.input) else ""


def _plain_name(name: str) -> str:
    return name.removesuffix(next((one for one in _SUFFIXES if name.endswith(one)), ""))


def _axis(node: Any) -> int:
    return next((int(one.i) for one in node.attribute if one.name == "axis"), 1)


def _axis_of_weight(node: Any, axes: int) -> int:
    """Along which axis of its weight an operator may have several scales: that of what it gives."""
    turned = any(one.name == "transB" and one.i for one in node.attribute)
    return 0 if turned or node.op_type == "QLinearConv" else max(axes - 1, 0)


def _concat(node: Any) -> _Form:
    return _Form("Concat", tuple((place, place + 1, place + 2) for place in range(2, len(node.input), 3)), (0, 1))


def _of_reference(name: str, own: Array, weights: Mapping[str, Array]) -> Array:
    """The reference's weight that is stored here: of this name, else the nearest; its own where none is near."""

    def distance(array: Array) -> float:
        return float(np.linalg.norm(own - array))

    def layouts(array: Array) -> list[Array]:
        return [one for one in ((array, array.T) if array.ndim == 2 else (array,)) if one.shape == own.shape]

    named = layouts(weights[name]) if name in weights else []
    others = [one for array in weights.values() for one in layouts(array)] if not named else []
    near = named or [one for one in others if distance(one) <= _FAR * np.linalg.norm(own)]
    return np.ascontiguousarray(min(near, key=distance, default=own), np.float32).reshape(own.shape)
