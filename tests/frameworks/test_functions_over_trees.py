"""A framework of functions over trees costs one file, too: twig is transferred, aligned and diagnosed without hooks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import reprod_log
from reprod_log import Status, align_models, transfer_weights, watch
from reprod_log.errors import CaptureError, UsageError
from reprod_log.transfer import transfer_gradients

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(6, 5)).astype(np.float32)
TARGETS = RNG.normal(size=(6, 3)).astype(np.float32)


class TorchNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.enter, self.norm = torch.nn.Linear(5, 8), torch.nn.LayerNorm(8)
        self.act, self.leave = torch.nn.Tanh(), torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.leave(self.act(self.norm(self.enter(x))))


def twig_net(twig, *, tiny=1e-5, factor=1.0):
    parts = {
        "inner": twig.Linear(5, 8, seed=2),
        "ln": twig.LayerNorm(8, tiny),
        "tanh": twig.Tanh(),
        "out": twig.Linear(8, 3, seed=1),
    }
    return twig.Chain(parts, {"tanh": factor}).model()


def torch_squares(outputs, targets):
    return ((outputs - targets) ** 2).mean()


def twig_squares(outputs, targets):
    """The loss and its gradient, as a function without hooks has to give them."""
    difference = outputs - targets
    return (difference * difference).mean(), difference * difference.dtype.type(2 / difference.size)


def torch_sgd(model):
    return torch.optim.SGD(model.parameters(), 0.1)


def aligned(twig, candidate, **changes):
    options = {
        "targets": TARGETS,
        "loss": (torch_squares, twig_squares),
        "optimizer": (torch_sgd, lambda model: twig.SGD(0.1)),
        "steps": 3,
    }
    return align_models(TorchNet(), candidate, (ROWS,), **{**options, **changes})


def causes(found):
    return [(one.rule, one.confidence, str(one.cause)) for one in found.findings if one.kind == "cause"]


def test_weights_are_transferred_into_a_new_model_and_verified(twig):
    ours, theirs = TorchNet(), twig_net(twig)
    before = theirs.tree["inner"]["kernel"].copy()
    report = transfer_weights(ours, theirs, inputs=(ROWS,))
    assert {row.verified for row in report.rows} == {"verified"}
    np.testing.assert_array_equal(report.model.tree["inner"]["kernel"], ours.enter.weight.detach().numpy().T)
    np.testing.assert_array_equal(theirs.tree["inner"]["kernel"], before)


def test_weights_are_transferred_from_it(twig):
    ours, theirs = twig_net(twig), TorchNet()
    report = transfer_weights(ours, theirs, inputs=(ROWS,))
    assert {row.verified for row in report.rows} == {"verified"}
    assert report.model is theirs
    np.testing.assert_array_equal(theirs.leave.weight.detach().numpy(), ours.tree["out"]["kernel"].T)


def test_right_port_is_aligned(twig):
    found = aligned(twig, twig_net(twig))
    assert found.status is Status.PASS, str(found)
    assert causes(found) == []
    phases = {one.key.phase for one in found.verdict.judgements}
    assert phases >= {"forward", "loss", "backward", "gradient", "update"}
    assert {one.key.run.partition(".")[0] for one in found.verdict.judgements} >= {"", "isolated", "injected"}


def test_it_is_the_reference_as_well(twig):
    found = align_models(twig_net(twig), TorchNet(), (ROWS,))
    assert found.status is Status.PASS, str(found)


def test_wrong_setting_is_named_and_proven(twig):
    found = aligned(twig, twig_net(twig, tiny=1e-2))
    assert found.status is Status.FAIL
    rule, confidence, cause = causes(found)[0]
    assert (rule, confidence) == ("layer_setting", "proven")
    assert "eps" in cause


def test_wrong_weights_are_named_and_proven(twig):
    ours = TorchNet()
    theirs = transfer_weights(ours, twig_net(twig)).model
    kernel = theirs.tree["ln"]["shift"] + np.float32(0.5)
    theirs = twig.PROGRAMS.with_state(theirs, {"ln.shift": kernel})
    found = align_models(ours, theirs, (ROWS,), transfer=False)
    assert found.status is Status.FAIL
    assert causes(found)[0][:2] == ("weights", "proven")
    assert "norm.bias" in causes(found)[0][2]


def test_factor_between_layers_is_placed(twig):
    found = aligned(twig, twig_net(twig, factor=1.5))
    assert found.status is Status.FAIL
    assert any("1.5" in cause for _, _, cause in causes(found)), causes(found)


def test_wrong_rate_is_named(twig):
    found = aligned(twig, twig_net(twig), optimizer=(torch_sgd, lambda model: twig.SGD(0.05)))
    assert found.status is Status.FAIL
    assert "learning rate" in causes(found)[0][2]


def test_what_has_no_state_to_write_is_refused_with_what_to_do(twig):
    with pytest.raises(UsageError, match="twig does not keep gradients"):
        transfer_gradients(twig_net(twig), TorchNet())
    with pytest.raises(CaptureError, match="models of twig cannot be watched"), watch(twig_net(twig)):
        pass


@pytest.fixture
def graph(twig, entry_points, monkeypatch):
    """The same framework as a graph: forward only, from the five functions that every framework has."""
    five = {name: getattr(twig.Programs, name) for name in ("owns", "layers", "state", "with_state", "begun", "run")}
    programs = type("Graph", (twig.contract.Programs,), five)()
    monkeypatch.setattr(twig, "FRAMEWORK", twig.replace(twig.FRAMEWORK, programs=programs))
    entry_points(twig=twig)
    return twig


def test_graph_without_gradients_is_aligned_and_what_is_missing_is_noted(graph):
    found = align_models(TorchNet().eval(), twig_net(graph), (ROWS,))
    assert found.status is not Status.FAIL, str(found)
    notes = {str(note) for note in (*found.reference.notes, *found.candidate.notes)}
    assert any("cannot be run alone" in note for note in notes), notes
    assert any("cannot be run in float64" in note for note in notes), notes


def test_wrong_graph_fails(graph):
    found = align_models(TorchNet().eval(), twig_net(graph, factor=1.5), (ROWS,))
    assert found.status is Status.FAIL


def test_graph_is_not_trained(graph):
    with pytest.raises(UsageError, match="models of twig have no gradients"):
        align_models(TorchNet(), twig_net(graph), (ROWS,), targets=TARGETS, loss=(torch_squares, twig_squares))


def test_nothing_else_knows_it():
    home = Path(reprod_log.__file__).parent
    assert [path for path in home.rglob("*.py") if "twig" in path.read_text(encoding="utf-8").lower()] == []


def test_its_file_is_small_and_imports_no_other_framework():
    text = (Path(__file__).parent / "twig.py").read_text(encoding="utf-8")
    assert text.count("\n") < 320
    program = "import sys, twig; print([one for one in ('torch', 'paddle') if one in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parent
    )
    assert answer.stdout.strip() == "[]"
