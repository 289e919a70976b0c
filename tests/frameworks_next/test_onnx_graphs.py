"""ONNX graphs: right exports are aligned, wrong ones are placed, two graphs are compared, a graph is recorded."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import onnx
import pytest
import torch
import torch_models as models
from onnx import numpy_helper

from reprod_log import Status, align_models, load
from reprod_log.errors import UsageError

WAYS = ("scopes", "folded", "script")


def exported(model, batch, way="scopes"):
    """A graph with the exporter's scopes, the same with layers folded into each other, or by the older exporter."""
    if way == "script":
        file = io.BytesIO()
        torch.onnx.export(model, (batch,), file, dynamo=False)
        return onnx.load_from_string(file.getvalue())
    program = torch.onnx.export(model, (batch,), dynamo=True, optimize=way == "folded", verbose=False)
    return program.model_proto


def first_layer(found):
    return found.verdict.first_divergence.key.path


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", list(models.INPUTS), ids=lambda kind: kind.__name__)
def test_right_export_is_aligned(kind, way):
    model, batch = models.made(kind), models.batch_for(kind)
    found = align_models(model, exported(model, batch, way), batch)
    assert found.status is Status.PASS, str(found)
    assert [one for one in found.findings if one.kind == "cause"] == []
    paths = {one.key.path for one in found.verdict.judgements}
    leaves = [path for path, one in model.named_modules() if path and not list(one.children())]
    assert len(paths & set(leaves)) >= 0.6 * len(leaves), (paths, leaves)


MISTAKES = [
    (models.Mlp, {"eps": 1e-3}, "norm"),
    (models.Mlp, {"approximate": "tanh"}, "act"),
    (models.ConvNet, {"eps": 1e-2}, "bn1"),
    (models.ConvNet, {"counted": False}, "pool"),
    (models.Stack, {"slope": 0.2}, "blocks.1.act"),
    # What the block adds is wrong: the first tensor behind it is what its activation is given.
    (models.Stack, {"scale": 0.5}, "blocks.1.act"),
    (models.Block, {"scaled": False}, "attn.out"),
    (models.Block, {"eps": 1e-2}, "norm2"),
    (models.Language, {"approximate": "tanh"}, "block.act"),
    (models.Decoder, {"groups": 4}, "norm"),
    (models.Decoder, {"mode": "nearest"}, "up"),
]


@pytest.mark.parametrize(("kind", "setting", "place"), MISTAKES, ids=lambda one: getattr(one, "__name__", str(one)))
def test_wrong_export_is_placed(kind, setting, place):
    # What is folded is as easily placed, and takes as long to export.
    way = "folded" if kind in (models.ConvNet, models.Decoder) else "scopes"
    model, wrong, batch = models.made(kind), models.made(kind, **setting), models.batch_for(kind)
    wrong.load_state_dict(model.state_dict())
    found = align_models(model, exported(wrong, batch, way), batch)
    assert found.status is Status.FAIL, str(found)
    assert first_layer(found) == place, str(found)


@pytest.mark.parametrize("layer", ["conv2", "fc", "bn2"])
def test_wrong_weight_of_a_graph_without_scopes_is_placed(layer):
    model, batch = models.made(models.ConvNet), models.batch_for(models.ConvNet)
    wrong = models.made(models.ConvNet)
    with torch.no_grad():
        wrong.get_submodule(layer).weight *= 1.01
    found = align_models(model, exported(wrong, batch, "script"), batch)
    assert found.status is Status.FAIL
    # The exporter has folded conv2 and bn2 into one node, which cannot tell whose weights they were.
    assert first_layer(found) in {"conv2": ("conv2", "bn2"), "bn2": ("conv2", "bn2"), "fc": ("fc",)}[layer], str(found)


def test_wrong_row_of_a_table_that_the_inputs_do_not_use_leaves_a_pass_unproven():
    torch.manual_seed(0)
    model, ids = torch.nn.Sequential(torch.nn.Embedding(30, 8), torch.nn.Linear(8, 4)).eval(), torch.arange(20)[None]
    graph = exported(model, ids)
    assert align_models(model, graph, ids).status is Status.PASS
    table = next(one for one in graph.graph.initializer if list(one.dims) == [30, 8])
    values = numpy_helper.to_array(table).copy()
    values[25] *= 2
    table.CopyFrom(numpy_helper.from_array(values, table.name))
    for sides in ((model, graph), (graph, model)):
        found = align_models(*sides, ids if sides[0] is model else ids.numpy())
        assert found.status is Status.UNPROVEN, str(found)
        assert [(one.rule, one.cause.arguments["count"]) for one in found.doubts] == [("spoiled_constant", 8)]


def test_two_graphs_and_what_changed_between_them(tmp_path):
    model, batch = models.made(models.Stack), models.batch_for(models.Stack)
    one, other = tmp_path / "one.onnx", tmp_path / "other.onnx"
    onnx.save(exported(model, batch), one)
    onnx.save(exported(model, batch, "folded"), other)
    assert align_models(str(one), other, batch.numpy()).status is Status.PASS
    changed = onnx.load(one)
    weight = next(tensor for tensor in changed.graph.initializer if tensor.name == "blocks.1.conv2.weight")
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.001), weight.name))
    onnx.save(changed, other)
    found = align_models(one, other, batch.numpy())
    assert found.status is Status.FAIL
    assert first_layer(found) == "blocks.1.conv2"


def test_graph_is_the_reference_as_well():
    model, batch = models.made(models.Mlp), models.batch_for(models.Mlp)
    assert align_models(exported(model, batch), model, batch.numpy()).status is Status.PASS
    with torch.no_grad():
        model.leave.bias += 0.01
    graph = exported(models.made(models.Mlp), batch)
    found = align_models(graph, model, batch.numpy())
    assert (found.status, first_layer(found)) == (Status.FAIL, "leave")


def test_what_a_graph_cannot_do_is_noted_or_refused_with_what_to_do(tmp_path):
    model, batch = models.made(models.Mlp), models.batch_for(models.Mlp)
    graph = exported(model, batch)
    notes = [str(note) for note in align_models(model, graph, batch).candidate.notes]
    assert any("onnx has no gradients" in note for note in notes), notes
    assert any("none were transferred" in note for note in notes), notes
    assert not any("changed the bits" in note for note in notes)
    with pytest.raises(UsageError, match="models of onnx have no gradients"):
        align_models(model, graph, batch, loss=lambda outputs: outputs.sum())
    with pytest.raises(UsageError, match="there is no file"):
        align_models(model, tmp_path / "none.onnx", batch)
    with pytest.raises(UsageError, match="the graph takes 1 input"):
        align_models(graph, exported(model, batch), (batch.numpy(), batch.numpy()))


def test_graph_is_recorded_from_the_command_line(tmp_path):
    model, batch = models.made(models.ConvNet), models.batch_for(models.ConvNet)
    onnx.save(exported(model, batch), tmp_path / "net.onnx")
    np.savez(tmp_path / "batch.npz", x=batch.numpy())
    command = [sys.executable, "-m", "reprod_log", "record", "net.onnx", "--inputs", "batch.npz", "-o", "rec"]
    done = subprocess.run([*command, "--float64"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    recording = load(tmp_path / "rec")
    assert set(recording.runs) == {"", "float64"}
    np.testing.assert_allclose(
        recording["step0/forward/#0:output"].array(), model(batch).detach().numpy(), rtol=1e-5, atol=1e-6
    )
    assert "step0/forward/bn2#0:output" in recording
    assert "entries" in done.stdout


@pytest.mark.parametrize("kind", [models.ConvNet, models.Block], ids=lambda kind: kind.__name__)
def test_openvino_is_a_second_engine(kind, tmp_path):
    model, batch = models.made(kind), models.batch_for(kind)
    onnx.save(exported(model, batch), tmp_path / "net.onnx")
    side = (tmp_path / "net.onnx", {"engine": "openvino"})
    found = align_models(tmp_path / "net.onnx", side, batch.numpy())
    assert found.status is Status.PASS, str(found)
    assert found.candidate.provenance.extra["engine"] == "openvino"
    assert align_models(model, side, batch).status is Status.PASS
    wrong = models.made(kind, eps=1e-2)
    wrong.load_state_dict(model.state_dict())
    found = align_models(wrong, side, batch)
    assert (found.status, first_layer(found)) == (Status.FAIL, {"ConvNet": "bn1", "Block": "norm2"}[kind.__name__])


def test_unknown_engine_is_refused():
    model, batch = models.made(models.Mlp), models.batch_for(models.Mlp)
    with pytest.raises(UsageError, match="one of 'onnxruntime' and 'openvino'|onnxruntime"):
        align_models(model, (exported(model, batch), {"engine": "tensorrt"}), batch)
