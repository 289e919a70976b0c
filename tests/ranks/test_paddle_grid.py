"""Real training on 2 × 2 ranks with fleet's hybrid topology and its tensor-parallel layers' own parameters."""

import pytest
import train_paddle_grid
from made_ranks import launched, rules

from reprod_log import Status, align
from reprod_log.ranks import compare_ranks, load_ranks

ACTIVATIONS = {"up": "b h[mp]", "down:input.*": "b h[mp]"}
"""The parameters of fleet's layers say themselves how they are split."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paddle_grid")
    train_paddle_grid.single(folder)
    options = ("--backend", "gloo", "--log_dir", str(folder / "log"))
    program = train_paddle_grid.__file__
    return launched("paddle.distributed.launch", *options, program=program, folder=folder, processes=4)


def both(folder, name):
    yield compare_ranks(load_ranks(folder / name), dims=ACTIVATIONS)
    yield align(folder / "single", folder / name, dims=ACTIVATIONS)


def test_right_training_agrees_along_both_axes_and_with_a_single_process(folder):
    among, against = both(folder, "right")
    assert among.passed
    assert against.passed
    assert not among.findings + against.findings
    mesh = load_ranks(folder / "right").mesh
    assert [mesh.where(rank) for rank in range(4)] == ["dp 0, mp 0", "dp 0, mp 1", "dp 1, mp 0", "dp 1, mp 1"]
    rows = {row.key: row.candidate_shape for row in against.comparison.rows}
    assert rows["step0/gradient/up.weight:raw"] == (5, 6)
    assert rows["step1/parameter/down.weight"] == (6, 3)


def test_sum_for_mean_is_named_with_its_axis(folder):
    for found in both(folder, "sum"):
        assert found.status is Status.FAIL
        assert rules(found, "cause") == ["sum_for_mean"]
        assert "along dp" in str(found.findings[0].cause)


def test_split_layers_agree_with_those_of_another_framework(folder, tmp_path):
    """The weights of the paddle model in torch, trained there in one process."""
    import torch
    from train_paddle import batches

    from reprod_log import transfer_weights, watch

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.up, self.down = torch.nn.Linear(5, 5), torch.nn.Linear(5, 6), torch.nn.Linear(6, 3)

        def forward(self, x):
            return self.down(torch.tanh(self.up(torch.tanh(self.before(x)))))

    model = Whole()
    transfer_weights(train_paddle_grid.Whole(), model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with watch(model, optimizer=optimizer, save=tmp_path / "torch"):
        for inputs, labels in batches(2):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(torch.from_numpy(inputs)), torch.from_numpy(labels))
            loss.backward()
            optimizer.step()
    found = align(tmp_path / "torch", folder / "right", dims=ACTIVATIONS)
    assert found.passed
    rows = {row.key: (row.reference_shape, row.candidate_shape) for row in found.comparison.rows}
    assert rows["step1/gradient/up.weight:raw"] == ((6, 5), (6, 5))
    assert len(rows) == 74
