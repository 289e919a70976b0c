"""Real training with tensors that paddle distributes (shard_tensor): they know their own placements."""

import pytest
import train_paddle_sharded
from made_ranks import rules

from reprod_log import Status, align
from reprod_log.ranks import compare_ranks, load_ranks


@pytest.fixture(scope="module")
def folder(paddle_ranks):
    """The runs of train_paddle_sharded.py, and the single process."""
    train_paddle_sharded.single(paddle_ranks)
    return paddle_ranks


def both(folder, name):
    yield compare_ranks(load_ranks(folder / name))
    yield align(folder / "single", folder / name)


@pytest.mark.parametrize("name", ["split", "replicas"])
def test_distributed_training_agrees_with_a_single_process_without_dims(folder, name):
    among, against = both(folder, name)
    assert among.passed
    assert against.passed
    assert not among.findings + against.findings
    assert len(against.comparison.rows) == 58


def test_parts_of_a_sum_are_added_up(folder):
    entry = load_ranks(folder / "replicas").parts[0]["step0/gradient/0.weight:raw"]
    assert entry.meta["shard"]["summed"] == ["dp"]


def test_other_learning_rate_on_one_rank_is_found(folder):
    for found in both(folder, "other_rate"):
        assert found.status is Status.FAIL
        assert "rank_rates" in rules(found, "cause")
