"""Real training under paddle.distributed.launch: two processes, gloo, DataParallel; right, and with mistakes."""

import pytest
import train_paddle
from made_ranks import rules

from reprod_log import Status, align
from reprod_log.messages import words
from reprod_log.ranks import compare_ranks, load_ranks


@pytest.fixture(scope="module")
def ranks(paddle_ranks):
    return paddle_ranks


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    folder = tmp_path_factory.mktemp("single")
    train_paddle.single(folder)
    return folder


def against(single, ranks):
    return align(single, ranks)


def test_ranks_of_a_right_training_agree(ranks):
    found = compare_ranks(load_ranks(ranks / "right"))
    assert found.passed
    assert not found.findings
    assert len(found.verdict.judgements) == 63


def test_right_training_agrees_with_a_single_process(single, ranks):
    found = against(single / "mlp", ranks / "right")
    assert found.passed
    assert not found.findings
    assert len(found.comparison.rows) == 85


def test_sum_for_mean_is_found(single, ranks):
    for found in (compare_ranks(load_ranks(ranks / "sum")), against(single / "mlp", ranks / "sum")):
        assert found.status is Status.FAIL
        assert rules(found, "cause") == ["sum_for_mean"]


def test_rank_that_misses_the_all_reduce_is_found(single, ranks):
    for found in (compare_ranks(load_ranks(ranks / "missed")), against(single / "mlp", ranks / "missed")):
        assert found.status is Status.FAIL
        assert rules(found, "cause") == ["missed_reduction"]
        assert str(found.findings[0].cause).startswith("rank 1 misses the all-reduce in step 0")


def test_rank_fed_the_other_ones_data_is_found(single, ranks):
    assert rules(compare_ranks(load_ranks(ranks / "same_data"))) == ["rank_data"]
    assert against(single / "mlp", ranks / "same_data").first_divergence.key.phase == "data"


def test_statistics_that_each_rank_keeps_are_found(ranks):
    found = compare_ranks(load_ranks(ranks / "batch_norm"))
    assert found.status is Status.FAIL
    failed = [one.key for one in found.verdict.judgements if not one.status.passed]
    assert all(key.phase == "buffer" for key in failed)
    assert [(one.rule, one.kind, one.confidence) for one in found.findings] == [
        ("rank_statistics", "cause", "explained")
    ]
    assert compare_ranks(load_ranks(ranks / "batch_norm"), accept=["*/buffer/*"]).passed


def test_batch_norm_over_parts_of_the_batch_is_named_against_a_single_process(single, ranks):
    found = against(single / "batch_norm", ranks / "batch_norm")
    assert found.status is Status.FAIL
    named = [one for one in found.findings if "normalises each rank's share of the batch by itself" in str(one.cause)]
    assert "SyncBatchNorm" in words()(named[0].advice)


def test_synchronised_batch_norm_agrees_with_a_single_process(single, ranks):
    found = against(single / "batch_norm", ranks / "sync_batch_norm")
    assert found.passed
    assert {row.key for row in found.comparison.rows} >= {"step2/buffer/1._variance", "step2/backward/0#0:output"}
    assert not rules(found, "cause")
    assert compare_ranks(load_ranks(ranks / "sync_batch_norm")).passed
