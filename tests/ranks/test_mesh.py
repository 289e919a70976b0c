"""Ranks on several named axes, made by hand: coordinates, what is joined and compared along which axis."""

import numpy as np
import pytest
from made_ranks import numbers, part, ranks_of, rules

from reprod_log import Status
from reprod_log.cli import run
from reprod_log.errors import RecordingError, UnreadableFile, UsageError
from reprod_log.ranks import Ranks, compare_ranks, join_ranks, load_ranks
from reprod_log.ranks.mesh import Mesh
from reprod_log.ranks.opening import read_mesh
from reprod_log.recording.shards import Axis, counted_through, is_batch


def grid_part(rank, arrays, sizes=(("dp", 2), ("tp", 2)), **facts):
    places = [place.to_dict() for place in counted_through(dict(sizes), rank)]
    size = int(np.prod([size for _, size in sizes]))
    # Ranks with other pieces of the weights have other hashes.
    return part(rank, arrays, size=size, extra={"mesh": places}, weights_hash=f"w{rank % 2}", **facts)


def grid(arrays_of, **facts):
    """Four ranks, dp 2 × tp 2; `arrays_of(dp, tp)` gives what each recorded."""
    return Ranks(tuple(grid_part(rank, arrays_of(*divmod(rank, 2)), **facts) for rank in range(4)), source="run")


def test_axes_of_the_batch_are_known_by_their_names():
    assert [name for name in ("dp", "ddp", "dp_shard", "fsdp", "data", "sharding") if not is_batch(name)] == []
    assert [name for name in ("tp", "mp", "model", "sp", "cp", "pp", "axis0") if is_batch(name)] == []


def test_groups_are_the_ranks_that_differ_only_on_the_given_axes():
    mesh = Mesh.ordered([Axis.named("dp", 2), Axis.named("tp", 3)])
    assert mesh.groups(0) == ((0, 3), (1, 4), (2, 5))
    assert mesh.groups(1) == ((0, 1, 2), (3, 4, 5))
    assert mesh.groups(0, 1) == (tuple(range(6)),)
    assert mesh.where(4) == "dp 1, tp 1"


def test_shards_lie_along_one_axis_and_batches_along_the_other():
    weight, batch, hidden = numbers(4, 3), numbers(6, 3, seed=1), numbers(6, 4, seed=2)

    def recorded(dp, tp):
        rows, columns = slice(3 * dp, 3 * dp + 3), slice(2 * tp, 2 * tp + 2)
        return {
            "step0/data/x": batch[rows],
            "step0/forward/up#0:output": hidden[rows, columns],
            "step0/loss/loss": np.float32(dp),
            "step0/backward/up#0:output": hidden[rows, columns],
            "step0/parameter/up.weight": weight[columns],
        }

    joined = join_ranks(grid(recorded), dims={"up": "b h[tp]", "up.weight": "h[tp] i"})
    np.testing.assert_array_equal(joined["step0/data/x"].array(), batch)
    np.testing.assert_array_equal(joined["step0/forward/up#0:output"].array(), hidden)
    np.testing.assert_array_equal(joined["step0/backward/up#0:output"].array(), hidden / 2)
    np.testing.assert_array_equal(joined["step0/parameter/up.weight"].array(), weight)
    assert joined["step0/loss/loss"].array() == 0.5
    assert not joined.differing


def test_both_axes_may_cut_dims_of_one_tensor():
    whole = numbers(4, 6)
    joined = join_ranks(
        grid(lambda dp, tp: {"step0/parameter/w": whole[2 * dp : 2 * dp + 2, 3 * tp : 3 * tp + 3]}),
        dims={"w": "o[dp] i[tp]"},
    )
    np.testing.assert_array_equal(joined["step0/parameter/w"].array(), whole)


def test_replicas_are_compared_only_along_axes_where_they_should_be_equal():
    def recorded(dp, tp):
        return {"step0/parameter/split": numbers(2, seed=tp), "step0/forward/out#0:output": numbers(4, 2, seed=dp)}

    found = compare_ranks(grid(recorded), dims={"split": "o[tp]"})
    assert found.passed
    assert sorted(str(one.key) for one in found.verdict.judgements) == [
        "step0/forward/out#0:output.rank1",
        "step0/forward/out#0:output.rank3",
        "step0/parameter/split:rank2",
        "step0/parameter/split:rank3",
    ]


def test_axis_along_which_replicas_differ_is_named():
    def recorded(dp, tp):
        return {"step0/data/x": numbers(2, 3, seed=dp), "step0/update/w": numbers(2, seed=dp)}

    joined = join_ranks(grid(recorded))
    assert joined.differing == {"step0/update/w": ("dp",)}
    assert [key for key in joined.keys if "rank" in key] == ["step0/update/w:rank2", "step0/update/w:rank3"]


def stepped(dp, tp, *, scale=1.0, own=()):
    """One step: local gradients of a split parameter, reduced along dp."""
    local = [numbers(5, seed=10 * tp + one) for one in range(2)]
    mean = np.mean(local, axis=0, dtype="float64").astype("float32") * np.float32(scale)
    reduced = local[dp] if (dp, tp) in own else mean
    return {
        "step0/data/x": numbers(4, 3, seed=100 + dp),
        "step0/gradient/w:local": local[dp],
        "step0/gradient/w:raw": reduced,
    }


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ({"scale": 2}, "gradients are reduced by a sum over the 2 ranks along dp instead of the mean"),
        ({"scale": 0.5}, "gradients are divided by the 2 ranks along dp twice"),
        ({"own": ((1, 0),)}, "rank 2 misses the all-reduce along dp in step 0: its gradients are those"),
        ({"own": tuple(np.ndindex(2, 2))}, "gradients are not reduced along dp in step 0"),
    ],
)
def test_wrong_reduction_is_named_with_its_axis(how, cause):
    found = compare_ranks(grid(lambda dp, tp: stepped(dp, tp, **how)), dims={"w": "o[tp]"})
    assert found.status is Status.FAIL
    assert [str(one.cause).startswith(cause) for one in found.findings] == [True]


def test_right_reduction_along_one_axis_passes():
    found = compare_ranks(grid(stepped), dims={"w": "o[tp]"})
    assert found.passed
    assert not found.findings


def test_gradients_that_are_summed_along_a_split_axis_too_are_held_against_that_sum():
    """A norm on a split sequence: every rank has all of its parameters, and a part of their gradient."""
    local = [numbers(5, seed=rank) for rank in range(4)]
    total = np.sum(local, axis=0, dtype="float64").astype("float32") / 2

    def recorded(dp, tp, scale=1.0):
        return {
            "step0/data/x": numbers(4, 3, seed=100 + dp),
            "step0/gradient/norm:local": local[2 * dp + tp],
            "step0/gradient/norm:raw": total * np.float32(scale),
        }

    found = compare_ranks(grid(recorded))
    assert found.passed
    assert not found.findings
    doubled = compare_ranks(grid(lambda dp, tp: recorded(dp, tp, scale=2)))
    assert [one.rule for one in doubled.findings] == ["sum_for_mean"]


def test_different_data_along_the_axis_of_a_split_layer_is_named():
    found = compare_ranks(grid(lambda dp, tp: {"step0/data/x": numbers(4, 3, seed=2 * dp + tp)}))
    assert found.status is Status.FAIL
    assert [str(one.cause) for one in found.findings] == ["ranks along tp were given different data"]


def test_same_data_along_the_batch_is_named():
    found = compare_ranks(grid(lambda dp, tp: {**stepped(dp, tp), "step0/data/x": numbers(4, 3)}), dims={"w": "o[tp]"})
    assert [str(one.cause) for one in found.findings] == ["ranks 0 and 2 were given the same data in 1 of 1 step"]


def test_gradient_of_a_whole_parameter_that_differs_along_a_split_axis_is_named():
    found = compare_ranks(grid(lambda dp, tp: {"step0/gradient/norm:raw": numbers(3, seed=tp)}))
    assert str(found.findings[0].cause).startswith("the gradient of norm is not the same on the 2 ranks along tp")


def test_shards_that_do_not_tile_are_refused_with_their_axis():
    def recorded(dp, tp):
        return {"step0/parameter/w": numbers(2, 3 + (dp, tp).count(1) // 2)}

    with pytest.raises(RecordingError, match=r"agree in 'i', but rank 2 has shape \[2, 3\] and rank 3 \[2, 4\]"):
        join_ranks(grid(recorded), dims={"w": "o[tp] i"})
    with pytest.raises(RecordingError, match=r"the parts of the ranks along dp of 'step0/data/x' do not tile"):
        join_ranks(grid(lambda dp, tp: {"step0/data/x": numbers(2, 3 + dp)}))


def test_missing_ranks_are_named_with_their_places(tmp_path):
    for rank in (0, 2, 3):
        grid_part(rank, {"step0/parameter/w": numbers(2)}).save(tmp_path / f"rank{rank}")
    with pytest.raises(UnreadableFile, match=r"rank 1 of 4 \(dp 0, tp 1\) is missing"):
        load_ranks(tmp_path)


def test_ranks_with_other_meshes_or_the_same_place_are_refused():
    arrays = {"step0/parameter/w": numbers(2)}
    others = [grid_part(0, arrays, (("dp", 2),)), grid_part(1, arrays, (("tp", 2),))]
    with pytest.raises(RecordingError, match="rank 1 knows a mesh of tp 2, rank 0 a mesh of dp 2"):
        Ranks(tuple(others), source="run")
    twice = [
        part(rank, arrays, extra={"mesh": [one.to_dict() for one in counted_through({"dp": 2}, 0)]}) for rank in (0, 1)
    ]
    with pytest.raises(RecordingError, match="rank 1 and rank 0 both have the place dp 0"):
        Ranks(tuple(twice), source="run")


def test_dims_that_mark_an_unknown_axis_are_refused():
    ranks = grid(lambda dp, tp: {"step0/parameter/w": numbers(2)})
    with pytest.raises(UsageError, match=r"there is no axis 'sp' in this run; it has 'dp', 'tp'"):
        join_ranks(ranks, dims={"w": "o[sp]"})
    one = Ranks(tuple(grid_part(rank, {"step0/parameter/w": numbers(2)}, (("dp", 2),)) for rank in (0, 1)))
    with pytest.raises(UsageError, match=r"there is no axis 'tp' in this run; it has 'dp'"):
        join_ranks(one, dims={"w": "o[tp]"})


def test_two_marks_need_two_axes():
    own = [{"step0/parameter/w": numbers(2, 3, seed=rank)} for rank in range(2)]
    with pytest.raises(UsageError, match="split 2 dims, but the ranks lie on one axis"):
        join_ranks(ranks_of(*own), dims={"w": "o[dp] i[tp]"})


def test_mesh_may_be_declared_when_ranks_do_not_know_it(tmp_path, capsys):
    for rank in range(4):
        dp, tp = divmod(rank, 2)
        part(rank, stepped(dp, tp, scale=2), size=4).save(tmp_path / "run" / f"rank{rank}")
    assert load_ranks(tmp_path / "run", mesh={"dp": 2, "tp": 2}).mesh.where(2) == "dp 1, tp 0"
    assert run(["ranks", str(tmp_path / "run"), "--mesh", "dp=2,tp=2", "--dims", "w=o[tp]", "--language", "zh"]) == 1
    assert "梯度沿 dp 在 2 个 rank 上按求和归约" in capsys.readouterr().out
    assert run(["ranks", str(tmp_path / "run"), "--mesh", "dp=2,tp=3"]) == 2
    assert "the mesh dp 2 × tp 3 has 6 places, but there are 4 ranks" in capsys.readouterr().err
    for wrong in ("dp", "dp=x", "dp=2,dp=2", "", "2=2"):
        with pytest.raises(UsageError, match="cannot read --mesh"):
            read_mesh(wrong)


def test_causes_of_other_weights_compare_ranks_with_the_same_pieces_only():
    arrays = {"step0/parameter/w": numbers(2)}
    parts = [grid_part(rank, arrays) for rank in range(3)]
    parts.append(part(3, arrays, size=4, weights_hash="other", extra=dict(grid_part(3, arrays).provenance.extra)))
    found = compare_ranks(Ranks(tuple(parts), source="run"))
    assert rules(found) == ["rank_weights"]
    assert str(found.findings[0].cause) == "rank 3 started from different weights than rank 1"


def test_stages_of_a_pipeline_are_refused():
    parts = [grid_part(rank, {"step0/parameter/w": numbers(2)}, (("pp", 2),)) for rank in range(2)]
    with pytest.raises(UsageError, match="the ranks along 'pp' are stages of a pipeline"):
        compare_ranks(Ranks(tuple(parts), source="run"))


def test_place_on_a_mesh_that_cannot_be_read_is_refused():
    parts = [part(rank, {}, extra={"mesh": [{"name": "dp"}]}) for rank in range(2)]
    with pytest.raises(RecordingError, match="cannot read the place of a process"):
        Ranks(tuple(parts), source="run")
