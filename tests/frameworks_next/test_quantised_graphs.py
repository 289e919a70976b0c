"""Quantised graphs: right ones pass at their precision, and a mistake is found in its layer."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import quantised_graphs as graphs
import torch
from onnx import helper

from reprod_log import Status, align_models
from reprod_log.errors import UsageError


@pytest.mark.parametrize("way", graphs.WAYS)
@pytest.mark.parametrize("kind", [graphs.Mlp, graphs.Cnn, graphs.Transformer], ids=lambda kind: kind.__name__)
def test_right_graph_passes_and_the_report_has_its_cost(kind, way):
    _, reference = graphs.exported(kind, 11)
    found = align_models(reference, graphs.quantised(reference, kind, way), graphs.batch(kind, 12))
    assert found.status is Status.PASS, str(found)
    assert [one for one in found.findings if one.kind in ("cause", "hint", "doubt")] == []
    note = next(one for one in found.candidate.notes if one.id == "note.experiments.quantised")
    assert note.arguments["held"] == note.arguments["count"] >= 4


@pytest.mark.parametrize("way", ["dynamic", "rounding, channels", "operators"])
def test_layers_are_those_that_the_exporter_noted(way):
    _, reference = graphs.exported(graphs.Transformer, 13, scopes=True)
    candidate = graphs.quantised(reference, graphs.Transformer, way)
    found = align_models(reference, candidate, graphs.batch(graphs.Transformer, 14))
    assert found.status is Status.PASS, str(found)
    held = {one.key.path for one in found.floor.evidence if one.declared is not None and one.mode == "isolated"}
    assert {"first", "second", "third", "out", "up", "down", "head"} <= held


@pytest.mark.parametrize("way", ["dynamic", "rounding", "operators"])
def test_model_that_the_graph_was_exported_from_is_a_reference_too(way):
    model, graph = graphs.exported(graphs.Mlp, 15)
    inputs = torch.from_numpy(graphs.batch(graphs.Mlp, 16))
    assert align_models(model, graphs.quantised(graph, graphs.Mlp, way), inputs).status is Status.PASS


@pytest.mark.parametrize("name", graphs.MISTAKES)
@pytest.mark.parametrize("way", ["dynamic, channels", "rounding", "operators"])
def test_mistake_is_found_in_its_layer(way, name):
    if way.startswith("dynamic") and name in graphs.STATIC:
        name = "scale"
    _, reference = graphs.exported(graphs.Mlp, 17)
    candidate = graphs.quantised(reference, graphs.Mlp, way)
    place = graphs.MISTAKES[name](candidate)
    found = align_models(reference, candidate, graphs.batch(graphs.Mlp, 18))
    assert not found.passed
    assert any(one in str(found.verdict.first_divergence.key) for one in place.split("|")), str(found)


def test_integers_that_are_not_known_are_refused():
    weight = helper.make_tensor("w", onnx.TensorProto.UINT8, [4, 1, 8], bytes(32), raw=True)
    scales = helper.make_tensor("s", onnx.TensorProto.FLOAT, [4], [1.0] * 4)
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], "few_bits", domain="com.microsoft", K=16, N=4, bits=4, block_size=16
    )
    values = [
        helper.make_tensor_value_info(one, onnx.TensorProto.FLOAT, [2, size]) for one, size in (("x", 16), ("y", 4))
    ]
    graph = helper.make_graph([node], "net", values[:1], values[1:], [weight, scales])
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    candidate = helper.make_model(graph, opset_imports=versions)
    with pytest.raises(UsageError, match=r"few_bits \(MatMulNBits\) works on integers in a way that is not known"):
        align_models(candidate, candidate, np.ones((2, 16), np.float32))
