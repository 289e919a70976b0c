"""ONNX graphs as programs: layers from the exporter's scopes, every value of a run, one layer alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from reprod_log.errors import CaptureError, UsageError, counted
from reprod_log.frameworks.contract import (
    Call,
    Capability,
    Cotangent,
    Evaluated,
    ModuleFacts,
    Programs,
    Rounding,
    Scheme,
    TensorFacts,
)
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.nests import flatten
from reprod_log.frameworks.onnx.graphs import Graph, Region, fed, graph_of, is_graph
from reprod_log.frameworks.onnx.integers import readable
from reprod_log.frameworks.onnx.quantised import QuantisedGraph
from reprod_log.frameworks.side import Batch, Scope, Side, as_mapping
from reprod_log.frameworks.tensors import cast_floating
from reprod_log.frameworks.values import Put, parent_of
from reprod_log.layers.lookup import kind_of
from reprod_log.messages import message
from reprod_log.progress import each
from reprod_log.recording import Array, ModuleInfo, Recording, current_provenance
from reprod_log.recording.recorder import Recorder


class OnnxTensors:
    """Graphs take and give numpy's own arrays."""

    def is_tensor(self, value: object) -> bool:
        return isinstance(value, onnx.TensorProto)

    def view(self, tensor: Any) -> tuple[Array, bool]:
        return onnx.numpy_helper.to_array(tensor), True

    def tensor(self, array: Array, *, like: Any = None, dtype: str | None = None, gradient: bool = False) -> Any:
        return array if dtype is None else array.astype(dtype)

    def facts(self, tensor: Any) -> TensorFacts:
        array = self.view(tensor)[0]
        return TensorFacts(array.shape, array.dtype.name, "cpu")


class OnnxPrograms(Programs):
    """Graphs: their weights are part of them, folded and rearranged as the exporter liked, so no state is offered."""

    can: frozenset[Capability] = frozenset(("float64", "isolate"))

    def owns(self, model: object) -> bool:
        return is_graph(model)

    def layers(self, model: Any) -> tuple[ModuleFacts, ...]:
        infos = _infos(graph_of(model))
        paths = {one.path for one in infos}
        return tuple(ModuleFacts(one.path, parent_of(one.path, paths), (one.origin,), {}, (), {}, {}) for one in infos)

    def state(self, model: Any) -> Mapping[str, Array]:
        return {}

    def with_state(self, model: Any, arrays: Mapping[str, Array]) -> Any:
        if arrays:
            raise CaptureError("the weights of an ONNX graph are part of it and cannot be replaced; export it again")
        return model

    def constants(self, model: Any) -> Mapping[str, Array]:
        return graph_of(model).constants

    def readable(self, model: Any, reference: Side) -> Any | None:
        graph = graph_of(model)
        if not is_graph(reference.model):
            return readable(graph, reference.weights, {})
        other = graph_of(reference.model)
        return readable(graph, other.constants, {one: node for node in other.nodes for one in node.output})

    def schemes(self, model: Any) -> dict[str, Scheme]:
        graph = graph_of(model)
        return graph.schemes if isinstance(graph, QuantisedGraph) else {}

    def rounding(self, model: Any, way: Rounding) -> Any:
        assert isinstance(model, QuantisedGraph)
        return replace(model, rounding=way)

    def run(self, side: Side, batches: Sequence[Batch], scope: Scope) -> Recording:
        recorder = Recorder(spool=scope.spool)
        infos: list[ModuleInfo] = []
        dtype = scope.dtype or ""
        for name, model in as_mapping(side.model).items():
            graph = graph_of(model)
            infos += [_named(one, name) for one in _infos(graph)]
            wanted = tuple(one for region in graph.regions for one in (*region.outputs, *region.inputs))
            for step, batch in enumerate(each("progress.steps", batches)):
                given = _feeds(graph, batch, scope.dtype)
                found = {**given, **graph.values(wanted, given, scope.dtype)}
                dtype = dtype or next((one.dtype.name for one in found.values() if one.dtype.kind == "f"), "")
                if step == 0 and not scope.run and scope.dtype is None:
                    _note_if_changed(recorder, graph, given, found)
                put = Put(recorder, scope, step, np.array)
                for role, array in _roles(graph.inputs, given, "input"):
                    put("data", name, array, role, 0)
                for region in graph.regions:
                    _put_region(put, region, name, found)
        engines = {graph_of(model).engine for model in as_mapping(side.model).values()}
        fixed = {"fixed_weights": True, "engine": ", ".join(sorted(engines))}
        made = current_provenance(
            framework="onnx", framework_version=onnx.__version__, device="cpu", dtype=dtype, extra=fixed
        )
        recorder.describe(made, infos)
        return recorder.close()

    def calls(self, side: Side, batch: Batch) -> list[Call]:
        graph = graph_of(side.model)
        given = _feeds(graph, batch, None)
        wanted = [one for region in graph.regions for one in (*region.outputs, *region.inputs) if one not in given]
        found = {**given, **graph.values(wanted, given, None)}
        return [
            Call(
                region.path,
                tuple(graph.exchanged(one, found[one]) if region.path else found[one] for one in region.inputs),
                {},
                {
                    role: array.shape
                    for role, array in _roles(region.outputs, found, "output")
                    if array.dtype.kind == "f"
                },
            )
            for region in graph.regions
            if region.call == 0
        ]

    def call(self, side: Side, path: str, call: Call, scope: Scope, cotangent: Cotangent) -> Evaluated:
        graph = graph_of(side.model)
        region = next((one for one in graph.regions if one.path == path and one.call == 0), None)
        if region is None:
            raise CaptureError("the graph has no nodes of it")
        arrays = [leaf for _, leaf in flatten((call.args, dict(call.kwargs))) if isinstance(leaf, np.ndarray)]
        if len(arrays) != len(region.inputs):
            raise CaptureError(f"its nodes take {counted(len(region.inputs), 'tensor')}, and its partner {len(arrays)}")
        given = {
            name: cast_floating(graph.arranged(name, one), scope.dtype)
            for name, one in zip(region.inputs, arrays, strict=True)
        }
        found = graph.values_alone(region, given, scope.dtype)
        return Evaluated(dict(_roles(region.outputs, found, "output")), layer_type=_type(region))


def _feeds(graph: Graph, batch: Batch, dtype: str | None) -> dict[str, Array]:
    given: dict[str, Array] = {}
    for name, value in fed(graph, batch[0]).items():
        if not isinstance(value, (np.ndarray, np.generic, bool, int, float)):
            raise UsageError(f"the graph's input {name!r} is an array, not a {type(value).__name__}")
        given[name] = cast_floating(np.asarray(value), dtype)
    return given


def _roles(names: Sequence[str], values: Mapping[str, Array], word: str) -> list[tuple[str, Array]]:
    """The role of each tensor: a lone output needs no number."""
    if word == "output" and len(names) == 1:
        return [(word, values[names[0]])]
    return [(f"{word}.{place}", values[name]) for place, name in enumerate(names)]


def _put_region(put: Put, region: Region, root: str, found: Mapping[str, Array]) -> None:
    path = join(root, region.path) if region.path else root
    # A module that is given several tensors takes them in an order that the nodes do not tell.
    inputs = region.inputs if len(region.inputs) == 1 or not region.path else ()
    for role, array in (*_roles(inputs, found, "input"), *_roles(region.outputs, found, "output")):
        put("forward", path, array, role, region.call, _type(region))


def _note_if_changed(recorder: Recorder, graph: Graph, given: Mapping[str, Array], found: Mapping[str, Array]) -> None:
    """A graph whose every value is returned must give the very bits that it gives by itself."""
    alone = graph.values((), given, None)
    changed = [name for name, array in alone.items() if array.tobytes() != found[name].tobytes()]
    if changed:
        recorder.note(message("note.capture.marked", names=tuple(changed)))


def _type(region: Region) -> str:
    return region.type.rpartition(".")[2]


def _infos(graph: Graph) -> list[ModuleInfo]:
    """Every module once, one before those inside it."""
    first = {region.path: region for region in graph.regions if region.call == 0}
    return [_info(region) for region in sorted(first.values(), key=lambda one: (one.nodes[:1], len(one.path)))]


def _info(region: Region) -> ModuleInfo:
    # A module keeps the class that it was exported from; a node has its operator's.
    origin = region.type if "." in region.type else f"onnx.{region.type}"
    kind = kind_of((origin,), origin.partition(".")[0])
    return ModuleInfo(region.path, _type(region), kind, origin=origin)


def _named(info: ModuleInfo, root: str) -> ModuleInfo:
    if not root:
        return info
    return ModuleInfo(join(root, info.path) if info.path else root, info.type, info.kind, origin=info.origin)
