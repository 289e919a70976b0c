"""Real training on 2 × 2 ranks under torchrun: data-parallel × tensor-parallel; right, and with planted mistakes."""

import pytest
import train_grid
from made_ranks import launched, rules

from reprod_log import Status, align
from reprod_log.ranks import compare_ranks, load_ranks

SPLIT = {
    "up": "b h[tp]",
    "down:input.*": "b h[tp]",
    "up.weight": "h[tp] i",
    "up.bias": "h[tp]",
    "down.weight": "o h[tp]",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All runs of train_grid.py, in one launch, and the single process."""
    folder = tmp_path_factory.mktemp("grid")
    train_grid.single(folder)
    return launched("torch.distributed.run", "--standalone", program=train_grid.__file__, folder=folder, processes=4)


def both(folder, name, mesh=None):
    """The ranks against each other, and against the single process."""
    yield compare_ranks(load_ranks(folder / name, mesh=mesh), dims=SPLIT)
    yield align(folder / "single", folder / name, dims=SPLIT, mesh=mesh)


@pytest.mark.parametrize(("name", "mesh"), [("right", None), ("undeclared", {"dp": 2, "tp": 2})])
def test_right_training_agrees_along_both_axes_and_with_a_single_process(folder, name, mesh):
    among, against = both(folder, name, mesh)
    assert among.passed
    assert against.passed
    assert not among.findings + against.findings
    rows = {row.key: row.candidate_shape for row in against.comparison.rows}
    assert rows["step1/forward/up#0:output"] == (8, 6)
    assert rows["step1/optimizer/down.weight:momentum_buffer"] == (3, 6)
    assert str(among.candidate.notes[0]).startswith(
        "the ranks lie on dp 2 × tp 2 (rank 0: dp 0, tp 0; rank 1: dp 0, tp 1"
    )
    # 12 entries a step are replicas on all four ranks, the others along one axis only.
    assert len(among.verdict.judgements) == 188


@pytest.mark.parametrize(
    ("single", "name", "entries"),
    [("plain", "sharded_and_split", 58), ("plain", "hybrid_sharded", 58), ("words", "split_words", 108)],
)
def test_what_torch_distributes_over_two_axes_needs_no_dims(folder, single, name, entries):
    found = align(folder / single, folder / name)
    assert found.passed
    assert not found.findings
    assert len(found.comparison.rows) == entries
    among = compare_ranks(load_ranks(folder / name))
    assert among.passed
    assert not among.findings
    keys = [one.key for one in among.verdict.judgements]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("sum", "gradients are reduced by a sum over the 2 ranks along dp instead of the mean"),
        ("missed", "rank 2 misses the all-reduce along dp in step 0"),
        ("over_all", "gradients are reduced over all 4 ranks instead of the 2 along dp"),
        ("no_sum_forward", "the output of down is not summed over the 2 ranks along tp"),
        ("no_sum_backward", "the gradient of before's output is not summed over the 2 ranks along tp"),
        ("other_rate", "rank 3 has the learning rate 0.2 in step 0, rank 0 has 0.1"),
    ],
)
def test_mistake_on_one_axis_is_named_with_it(folder, name, cause):
    for found in both(folder, name):
        assert found.status is Status.FAIL
        assert str(found.findings[0].cause).startswith(cause)
        assert found.findings[0].confidence == "explained"


def test_rank_that_is_missing_is_named(folder, tmp_path):
    from reprod_log.errors import UnreadableFile

    for rank in (0, 1, 3):
        (tmp_path / f"rank{rank}").symlink_to(folder / "right" / f"rank{rank}")
    with pytest.raises(UnreadableFile, match=r"rank 2 of 4 \(dp 1, tp 0\) is missing"):
        load_ranks(tmp_path)


def test_grid_without_its_mesh_does_not_pass(folder):
    found = compare_ranks(load_ranks(folder / "undeclared"), dims=SPLIT)
    assert found.status is Status.FAIL
    assert "model_reduction" in rules(found)
