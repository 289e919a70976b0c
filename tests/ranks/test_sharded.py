"""Real training with parameters that torch distributes: fully_shard, FullyShardedDataParallel, DTensor layers."""

import numpy as np
import pytest
import train_sharded
from made_ranks import rules

from reprod_log import Status, align
from reprod_log.ranks import compare_ranks, join_ranks, load_ranks


@pytest.fixture(scope="module")
def folder(torch_ranks):
    """The runs of train_sharded.py, and the single process."""
    train_sharded.single(torch_ranks / "distributed")
    return torch_ranks / "distributed"


def against(folder, single, name, dims=None):
    # Adam's second moments are small: only a relative limit says anything about them.
    return align(folder / single, folder / name, dims=dims, limits=["rel_l2:1e-4"])


@pytest.mark.parametrize("name", ["sharded", "named", "first"])
def test_sharded_training_agrees_with_a_single_process(folder, name):
    found = against(folder, "mlp", name)
    assert found.passed
    assert not found.findings
    assert len(found.comparison.rows) == 66
    phases = {"data", "forward", "loss", "backward", "gradient", "lr", "update", "parameter", "optimizer"}
    assert {row.key.phase for row in found.comparison.rows} == phases
    among = compare_ranks(load_ranks(folder / name))
    assert among.passed
    assert not among.findings
    # The reduced gradients of two steps against the mean of what both ranks contributed, and the learning rates.
    assert len(among.verdict.judgements) == 10


@pytest.mark.parametrize("name", ["sharded", "first"])
def test_pieces_of_different_sizes_are_put_together(folder, name):
    ranks = load_ranks(folder / name)
    key = "step1/parameter/0.weight"
    sizes = [entry.shape for entry in ranks.entries(key)]
    assert sizes == {"sharded": [(4, 5), (3, 5)], "first": [(35,), (0,)]}[name]
    whole = join_ranks(ranks)[key]
    assert whole.shape == (7, 5)
    assert "shard" not in whole.meta
    parts = [entry.array().reshape(-1) for entry in ranks.entries(key)]
    np.testing.assert_array_equal(whole.array(), np.concatenate(parts).reshape(7, 5))


def test_sum_for_mean_is_found(folder):
    for found in (compare_ranks(load_ranks(folder / "sum")), against(folder, "mlp", "sum")):
        assert found.status is Status.FAIL
        assert rules(found, "cause") == ["sum_for_mean"]


def test_other_learning_rate_on_one_rank_is_found(folder):
    for found in (compare_ranks(load_ranks(folder / "other_rate")), against(folder, "mlp", "other_rate")):
        assert found.status is Status.FAIL
        assert "rank_rates" in rules(found, "cause")


def test_rank_fed_the_other_ones_data_is_found(folder):
    assert rules(compare_ranks(load_ranks(folder / "same_data"))) == ["rank_data"]
    assert against(folder, "mlp", "same_data").status is Status.FAIL


def test_parameters_that_were_not_recorded_are_named_as_such(folder):
    found = against(folder, "mlp", "flat")
    assert found.status is Status.FAIL
    assert rules(found, "cause") == ["rank_parameters"]
    assert any("use_orig_params=True" in note for note in map(str, found.candidate.notes))
    assert not any("_flat_param" in row.key.path for row in found.comparison.rows)


def test_tensor_parallel_layers_agree_with_a_single_process_without_dims(folder):
    found = against(folder, "even", "tensor_parallel")
    assert found.passed
    rows = {row.key: row.candidate_shape for row in found.comparison.rows}
    assert rows["step0/forward/1#0:output"] == (8, 6)
    assert rows["step1/gradient/2.weight:raw"] == (3, 6)
    assert len(rows) == 66
    assert compare_ranks(load_ranks(folder / "tensor_parallel")).passed


def test_local_outputs_of_tensor_parallel_layers_need_dims(folder):
    dims = {"0": "b h[tp]", "1": "b h[tp]", "1:input.0": "b h[tp]"}
    assert against(folder, "even", "local_output", dims).passed
    assert compare_ranks(load_ranks(folder / "local_output"), dims=dims).passed
    among = compare_ranks(load_ranks(folder / "local_output"))
    assert among.status is Status.FAIL
    assert rules(among, "cause") == ["undeclared_pieces"]
    assert "undeclared_pieces" in rules(against(folder, "even", "local_output"))
