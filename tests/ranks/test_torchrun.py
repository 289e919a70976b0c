"""Real training under torchrun: two processes, gloo, DistributedDataParallel; right, and with planted mistakes."""

import pytest
import train_torch
from made_ranks import rules

from reprod_log import Status, align
from reprod_log.errors import RecordingError
from reprod_log.messages import words
from reprod_log.ranks import compare_ranks, load_ranks

SPLIT = {
    "up": "b h[tp]",
    "down:input.*": "b h[tp]",
    "up.weight": "h[tp] i",
    "up.bias": "h[tp]",
    "down.weight": "o h[tp]",
}


@pytest.fixture(scope="module")
def ranks(torch_ranks):
    return torch_ranks


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    folder = tmp_path_factory.mktemp("single")
    train_torch.single(folder)
    return folder


def against(single, ranks, dims=None):
    return align(single, ranks, dims=dims)


@pytest.mark.parametrize("name", ["right", "by_hand"])
def test_ranks_of_a_right_training_agree(ranks, name):
    found = compare_ranks(load_ranks(ranks / name))
    assert found.passed
    assert not found.findings
    assert len(found.verdict.judgements) == 63


@pytest.mark.parametrize("name", ["right", "by_hand"])
def test_right_training_agrees_with_a_single_process(single, ranks, name):
    found = against(single / "mlp", ranks / name)
    assert found.passed
    assert not found.findings
    phases = {"data", "forward", "loss", "backward", "gradient", "lr", "update", "parameter", "optimizer"}
    assert {row.key.phase for row in found.comparison.rows} == phases


@pytest.mark.parametrize("name", ["sum", "by_hand_sum"])
def test_sum_for_mean_is_found(single, ranks, name):
    for found in (compare_ranks(load_ranks(ranks / name)), against(single / "mlp", ranks / name)):
        assert found.status is Status.FAIL
        assert rules(found, "cause") == ["sum_for_mean"]


@pytest.mark.parametrize("name", ["missed", "by_hand_copy"])
def test_rank_that_misses_the_all_reduce_is_found(single, ranks, name):
    for found in (compare_ranks(load_ranks(ranks / name)), against(single / "mlp", ranks / name)):
        assert found.status is Status.FAIL
        # One of these runs is shorter than the single process, which is said, too.
        assert [rule for rule in rules(found, "cause") if rule != "other_length"] == ["missed_reduction"]
        assert str(found.findings[0].cause).startswith("rank 1 misses the all-reduce in step 0")


def test_training_without_reduction_is_found(single, ranks):
    for found in (compare_ranks(load_ranks(ranks / "not_reduced")), against(single / "mlp", ranks / "not_reduced")):
        assert found.status is Status.FAIL
        assert str(found.findings[0].cause).startswith("gradients are not reduced in step 0")


def test_rank_fed_the_other_ones_data_is_found(single, ranks):
    found = compare_ranks(load_ranks(ranks / "same_data"))
    assert [str(one.cause) for one in found.findings] == ["ranks 0 and 1 were given the same data in 3 of 3 steps"]
    found = against(single / "mlp", ranks / "same_data")
    assert found.first_divergence.key.phase == "data"
    assert "rank_data" in rules(found)


def test_statistics_given_by_rank_0_are_told_from_those_that_each_rank_keeps(ranks):
    given = compare_ranks(load_ranks(ranks / "batch_norm"))
    assert given.passed
    assert [(one.rule, one.kind, one.confidence) for one in given.findings] == [
        ("rank_statistics", "remark", "explained")
    ]
    kept = compare_ranks(load_ranks(ranks / "own_statistics"))
    assert kept.status is Status.FAIL
    assert all(one.key.phase == "buffer" for one in kept.verdict.judgements if not one.status.passed)
    assert [(one.rule, one.kind, one.confidence) for one in kept.findings] == [
        ("rank_statistics", "cause", "explained")
    ]


def test_batch_norm_over_parts_of_the_batch_is_named_against_a_single_process(single, ranks):
    found = against(single / "batch_norm", ranks / "batch_norm")
    assert found.first_divergence.key == "step0/forward/1#0:output"
    assert "normalises each rank's share of the batch by itself" in str(found.findings[0].cause)
    assert "SyncBatchNorm" in words()(found.findings[0].advice)


def test_synchronised_batch_norm_agrees_with_a_single_process(single, ranks):
    found = against(single / "batch_norm", ranks / "sync_batch_norm")
    assert found.passed
    assert {row.key for row in found.comparison.rows} >= {"step2/buffer/1.running_var", "step2/backward/0#0:output"}
    assert not rules(found, "cause")
    among = compare_ranks(load_ranks(ranks / "sync_batch_norm"))
    assert among.passed
    assert not among.findings


def test_synchronised_batch_norm_that_stays_alone_is_named(single, ranks):
    for found in (
        compare_ranks(load_ranks(ranks / "sync_alone")),
        against(single / "batch_norm", ranks / "sync_alone"),
    ):
        assert found.status is Status.FAIL
        assert str(found.findings[0].cause).startswith(
            "the statistics of 1 differ between ranks, although SyncBatchNorm"
        )


def test_other_initial_weights_are_found(single, ranks):
    assert rules(compare_ranks(load_ranks(ranks / "other_weights"))) == ["rank_weights"]
    with pytest.raises(RecordingError, match="rank 1 started from other weights"):
        against(single / "mlp", ranks / "other_weights")


def test_other_learning_rate_is_found(single, ranks):
    for found in (compare_ranks(load_ranks(ranks / "other_rate")), against(single / "mlp", ranks / "other_rate")):
        assert found.status is Status.FAIL
        assert "rank_rates" in rules(found, "cause")


def test_split_layers_agree_with_a_single_process_when_their_dims_are_declared(single, ranks):
    found = against(single / "tensor_parallel", ranks / "tensor_parallel", SPLIT)
    assert found.passed
    rows = {row.key: row.candidate_shape for row in found.comparison.rows}
    assert rows["step0/gradient/down.weight:raw"] == (3, 6)
    assert rows["step2/optimizer/up.weight:momentum_buffer"] == (6, 5)
    assert rows["step1/forward/up#0:output"] == (8, 6)
    among = compare_ranks(load_ranks(ranks / "tensor_parallel"), dims=SPLIT)
    assert among.passed
    assert not among.findings


def test_split_layer_without_dims_does_not_pass(single, ranks):
    found = against(single / "tensor_parallel", ranks / "tensor_parallel", {"up": "b h[tp]"})
    assert found.status is Status.FAIL
    assert "rank_replicas" in rules(found, "hint")
