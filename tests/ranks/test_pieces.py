"""Parts that know how they are distributed, made by hand: cut in any order, summed, flattened, incomplete."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from made_ranks import numbers, part, ranks_of

from reprod_log import Recording, Status, watch
from reprod_log.errors import RecordingError, UsageError
from reprod_log.ranks import Ranks, compare_ranks, join_ranks
from reprod_log.recording.shards import Shard, counted_through, shard_of


def knowing(recording, shard, key="step0/parameter/w"):
    """The recording, with what an entry knows of its distribution."""
    entries = (
        replace(one, meta={"shard": shard.to_dict()}) if str(one.key) == key else one for one in recording.entries
    )
    return replace(recording, entries=tuple(entries))


def line(pieces, shard):
    """Two or more ranks along dp with a piece each; None for a rank that recorded none."""
    parts = []
    for rank, piece in enumerate(pieces):
        arrays = {"step0/data/x": numbers(2, 3, seed=rank), "step0/lr/o:group0": 0.1}
        if piece is not None:
            arrays = {"step0/data/x": arrays["step0/data/x"], "step0/parameter/w": piece, "step0/lr/o:group0": 0.1}
        places = [one.to_dict() for one in counted_through({"dp": len(pieces)}, rank)]
        parts.append(knowing(part(rank, arrays, size=len(pieces), extra={"mesh": places}), shard))
    return Ranks(tuple(parts), source="run")


def test_pieces_of_any_size_are_put_together_along_the_dim_that_was_cut():
    whole = numbers(3, 4)
    cut = Shard((3, 4), ("dp",), cuts=(("dp", 0),))
    joined = join_ranks(line([whole[:2], whole[2:], whole[3:]], cut))
    np.testing.assert_array_equal(joined["step0/parameter/w"].array(), whole)


@pytest.mark.parametrize(
    ("shard", "found"),
    [
        (Shard((4,), ("dp",), summed=("dp",)), numbers(4) + numbers(4, seed=1)),
        (Shard((4,), ("dp",), averaged=("dp",)), (numbers(4) + numbers(4, seed=1)) / 2),
    ],
)
def test_parts_of_a_sum_or_a_mean_are_reduced(shard, found):
    joined = join_ranks(line([numbers(4), numbers(4, seed=1)], shard))
    np.testing.assert_allclose(joined["step0/parameter/w"].array(), found, rtol=1e-6)


def test_rank_without_a_piece_of_a_flattened_tensor_has_an_empty_one_in_its_place():
    whole = numbers(2, 3)
    flat = Shard((2, 3), ("dp",), cuts=(("dp", 0),), flat=True)
    joined = join_ranks(line([None, whole.reshape(-1)[:4], whole.reshape(-1)[4:]], flat))
    np.testing.assert_array_equal(joined["step0/parameter/w"].array(), whole)
    assert joined.keys == ("step0/data/x", "step0/parameter/w", "step0/lr/o:group0")


@pytest.mark.parametrize("flat", [False, True])
def test_pieces_that_do_not_make_the_whole_are_refused(flat):
    whole = numbers(6)
    shard = Shard((6,), ("dp",), cuts=(("dp", 0),), flat=flat)
    with pytest.raises(
        RecordingError, match=r"do not tile: together they have shape \[5\], but they are pieces along dp"
    ):
        join_ranks(line([whole[:3], whole[4:]], shard))


def test_pieces_distributed_in_two_ways_are_refused():
    ranks = line([numbers(2), numbers(2)], Shard((4,), ("dp",), cuts=(("dp", 0),)))
    other = knowing(ranks.parts[1], Shard((2,), ("dp",)))
    with pytest.raises(RecordingError, match="rank 0 has pieces along dp of dim 0 of .4., rank 1 copies of .2."):
        join_ranks(Ranks((ranks.parts[0], other), source="run"))


def test_pieces_along_an_axis_that_the_run_does_not_have_are_refused():
    own = [{"step0/parameter/w": numbers(2)}] * 2
    parts = [knowing(one, Shard((4,), ("ep",), cuts=(("ep", 0),))) for one in ranks_of(*own).parts]
    with pytest.raises(RecordingError, match=r"distributed along 'ep', which is not an axis of this run \(dp\)"):
        join_ranks(Ranks(tuple(parts), source="run"))


def test_pieces_without_values_are_joined_or_left_out_and_it_is_said():
    from reprod_log.recording.summary import summarise

    def told(recording):
        entries = (
            replace(one, detail="summary", hash="", meta={**one.meta, "summary": summarise(one.array())})
            if one.key.phase == "parameter"
            else one
            for one in recording.entries
        )
        return replace(recording, entries=tuple(entries))

    flat = Shard((2, 3), ("dp",), cuts=(("dp", 0),), flat=True)
    for pieces, left_out in (((3, 3), ()), ((4, 2), ("step0/parameter/w",))):
        cut = np.split(numbers(6), pieces[:1])
        joined = join_ranks(Ranks(tuple(map(told, line(cut, flat).parts)), source="run"))
        assert joined.left_out == left_out
        assert left_out or joined["step0/parameter/w"].shape == (2, 3)
        assert any("skipped" in note for note in map(str, joined.notes)) == bool(left_out)


def test_tensor_cut_twice_along_one_dim_is_put_together_in_the_order_of_its_cuts():
    whole = numbers(8)
    for cuts in ((("tp", 0), ("dp", 0)), (("dp", 0), ("tp", 0))):
        parts = []
        for rank in range(4):
            place = dict(zip(("dp", "tp"), divmod(rank, 2), strict=True))
            start = 4 * place[cuts[0][0]] + 2 * place[cuts[1][0]]
            facts = [one.to_dict() for one in counted_through({"dp": 2, "tp": 2}, rank)]
            recorded = part(rank, {"step0/parameter/w": whole[start : start + 2]}, size=4, extra={"mesh": facts})
            parts.append(knowing(recorded, Shard((8,), ("dp", "tp"), cuts=cuts)))
        joined = join_ranks(Ranks(tuple(parts), source="run"))
        np.testing.assert_array_equal(joined["step0/parameter/w"].array(), whole)


def test_distributed_activations_of_batches_that_differ_in_size_are_put_together():
    whole = numbers(5, 4)
    parts = []
    for rank in range(4):
        dp, tp = divmod(rank, 2)
        rows = slice(0, 3) if dp == 0 else slice(3, 5)
        arrays = {
            "step0/data/x": whole[rows],
            "step0/forward/up#0:output": np.ascontiguousarray(whole[rows, 2 * tp : 2 * tp + 2]),
        }
        facts = [one.to_dict() for one in counted_through({"dp": 2, "tp": 2}, rank)]
        shard = Shard((rows.stop - rows.start, 4), ("tp",), cuts=(("tp", 1),))
        parts.append(knowing(part(rank, arrays, size=4, extra={"mesh": facts}), shard, "step0/forward/up#0:output"))
    ranks = Ranks(tuple(parts), source="run")
    np.testing.assert_array_equal(join_ranks(ranks)["step0/forward/up#0:output"].array(), whole)
    assert compare_ranks(ranks).passed


def test_piece_that_a_rank_lacks_is_missed():
    cut = Shard((4,), ("dp",), cuts=(("dp", 0),))
    found = compare_ranks(line([numbers(2), None], cut))
    assert found.verdict.counts == {Status.PASS: 1, Status.UNMATCHED: 1}
    with pytest.raises(RecordingError, match="do not tile"):
        compare_ranks(line([numbers(2), numbers(1)], cut))


def test_what_a_shard_knows_survives_a_file(tmp_path):
    shard = Shard((4, 3), ("dp", "tp"), cuts=(("tp", 1),), summed=("dp",), flat=False)
    knowing(Recording.from_arrays({"step0/parameter/w": numbers(4, 3)}), shard).save(tmp_path / "one")
    from reprod_log import load

    assert shard_of(load(tmp_path / "one")["step0/parameter/w"].meta) == shard


def test_distribution_that_cannot_be_read_is_refused():
    with pytest.raises(RecordingError, match="cannot read how an entry is distributed"):
        shard_of({"shard": {"whole": [2], "cuts": 3}})
    assert shard_of({}) is None


# what watch is told


@pytest.mark.parametrize(
    ("mesh", "said"),
    [({"dp": 3}, "does not hold the 4 processes"), ({"dp": 4.0}, "does not hold"), ("dp", "must be torch's own mesh")],
)
def test_mesh_that_cannot_be_is_refused(monkeypatch, mesh, said):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(UsageError, match=said), watch(torch.nn.Linear(2, 2), mesh=mesh):
        pass


def test_place_on_a_declared_mesh_is_recorded_without_axes_of_one(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    model = torch.nn.Linear(2, 2)
    with watch(model, mesh={"pp": 1, "dp": 2, "tp": 2}) as run:
        model(torch.ones(1, 2))
    assert run.recording.provenance.extra["mesh"] == [
        {"name": "dp", "size": 2, "batch": True, "index": 1},
        {"name": "tp", "size": 2, "batch": False, "index": 1},
    ]


def test_paddle_meshes_are_read(monkeypatch):
    import paddle
    from paddle.distributed import ProcessMesh
    from paddle.distributed.fleet.base.topology import CommunicateTopology

    from reprod_log.frameworks.paddle import FRAMEWORK

    mesh = FRAMEWORK.eager.mesh
    monkeypatch.setattr(paddle.distributed, "get_rank", lambda: 2)
    for given in (
        ProcessMesh([[0, 1], [2, 3]], dim_names=["dp", "mp"]),
        CommunicateTopology(["data", "model"], [2, 2]),
    ):
        assert [(one.axis.name, one.axis.size, one.axis.batch, one.index) for one in mesh(given, [], [])] == [
            ("dp", 2, True, 1),
            ("mp", 2, False, 0),
        ]
    assert mesh("dp", [], []) is None
    with pytest.raises(UsageError, match="rank 2 is not on the mesh"):
        mesh(ProcessMesh([0, 1], dim_names=["dp"]), [], [])
