"""A third framework costs one file: gear is watched, transferred, aligned and diagnosed, and nothing else knows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import reprod_log
from reprod_log import Status, align_models, transfer_weights, watch

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


def gear_net(gear, *, tiny=1e-5, factor=1.0):
    class GearNet(gear.Module):
        def __init__(self):
            self.out, self.inner = gear.Linear(8, 3, seed=1), gear.Linear(5, 8, seed=2)
            self.ln, self.tanh = gear.LayerNorm(8, tiny), gear.Tanh()

        def forward(self, x):
            return self.out(self.tanh(self.ln(self.inner(x))) * factor)

    return GearNet()


def squares(outputs, targets):
    difference = outputs - targets
    return (difference * difference).mean()


def torch_sgd(model):
    return torch.optim.SGD(model.parameters(), 0.1)


def aligned(gear, candidate, **changes):
    options = {
        "targets": TARGETS, "loss": squares, "optimizer": (torch_sgd, lambda model: gear.SGD(model, 0.1)), "steps": 3,
    }  # fmt: skip
    return align_models(TorchNet(), candidate, (ROWS,), **{**options, **changes})


def test_training_is_watched(gear):
    model = gear_net(gear)
    optimizer = gear.SGD(model, 0.1)
    before = model.inner.kernel.array
    with watch(model, optimizer=optimizer) as run:
        for _ in range(2):
            squares(model(gear.Tensor(ROWS)), gear.Tensor(TARGETS)).backward()
            optimizer.step()
            gear.PARTS.clear(optimizer)
    recording = run.recording
    assert recording.provenance.framework == "gear"
    assert {(one.path, one.kind) for one in recording.modules} == {
        ("", ""), ("out", "linear"), ("inner", "linear"), ("ln", "layernorm"), ("tanh", "tanh"),
    }  # fmt: skip
    phases = {entry.key.phase for entry in recording.entries}
    assert phases == {"data", "forward", "loss", "backward", "gradient", "lr", "update", "parameter"}
    update = recording["step0/update/inner.kernel"].array()
    gradient = recording["step0/gradient/inner.kernel:raw"].array()
    np.testing.assert_allclose(update, -0.1 * gradient, rtol=1e-4, atol=1e-7)
    assert not np.array_equal(before, model.inner.kernel.array)


def test_watching_changes_nothing(gear):
    results = []
    for watched in (False, True):
        model = gear_net(gear)
        if watched:
            with watch(model):
                value = squares(model(gear.Tensor(ROWS)), gear.Tensor(TARGETS))
        else:
            value = squares(model(gear.Tensor(ROWS)), gear.Tensor(TARGETS))
        value.backward()
        results.append((value.array.tobytes(), model.inner.kernel.grad.array.tobytes()))
    assert results[0] == results[1]


@pytest.mark.parametrize("way", ["to gear", "from gear"])
def test_weights_are_transferred_and_verified(gear, way):
    ours, theirs = TorchNet(), gear_net(gear)
    source, target = (ours, theirs) if way == "to gear" else (theirs, ours)
    report = transfer_weights(source, target, inputs=(ROWS,))
    assert {(row.target, row.verified) for row in report.rows if row.verified != "verified"} == set()
    np.testing.assert_array_equal(ours.enter.weight.detach().numpy().T, theirs.inner.kernel.array)
    np.testing.assert_array_equal(ours.norm.bias.detach().numpy(), theirs.ln.shift.array)


def test_right_port_is_aligned(gear):
    found = aligned(gear, gear_net(gear))
    assert found.status is Status.PASS, str(found)
    assert not [one for one in found.findings if one.kind == "cause"]


def test_two_models_of_the_new_framework_are_aligned(gear):
    def sgd(model):
        return gear.SGD(model, 0.1)

    found = align_models(gear_net(gear), gear_net(gear), (ROWS,), targets=TARGETS, loss=squares, optimizer=sgd, steps=2)
    assert found.status is Status.PASS, str(found)


def test_wrong_setting_is_named_and_proven(gear):
    found = aligned(gear, gear_net(gear, tiny=1e-2))
    assert found.status is Status.FAIL
    cause = next(one for one in found.findings if one.kind == "cause")
    assert (cause.rule, cause.confidence) == ("layer_setting", "proven")
    assert "eps" in str(cause.cause)


def test_wrong_rate_is_named(gear):
    found = aligned(gear, gear_net(gear), optimizer=(torch_sgd, lambda model: gear.SGD(model, 0.05)))
    assert found.status is Status.FAIL
    cause = next(one for one in found.findings if one.kind == "cause")
    assert "learning rate" in str(cause.cause)
    assert "0.5 times" in str(cause.cause)


def test_factor_between_layers_is_placed(gear):
    found = aligned(gear, gear_net(gear, factor=1.5))
    assert found.status is Status.FAIL
    assert found.first_divergence is not None
    assert any("1.5" in str(one.cause) for one in found.findings), [str(one.cause) for one in found.findings]


def test_nothing_else_knows_it():
    home = Path(reprod_log.__file__).parent
    named = [path for path in home.rglob("*.py") if "gear" in path.read_text(encoding="utf-8").lower()]
    assert named == []


def test_its_file_is_small_and_imports_no_other_framework():
    text = (Path(__file__).parent / "gear.py").read_text(encoding="utf-8")
    assert text.count("\n") < 320
    program = "import sys, gear; print([one for one in ('torch', 'paddle') if one in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parent
    )
    assert answer.stdout.strip() == "[]"
