"""Ranks put together: batches, losses, gradients of activations, shards by their dims; what does not tile."""

import numpy as np
import pytest
from made_ranks import batch_norm, numbers, part, ranks_of

from reprod_log import align
from reprod_log.errors import RecordingError, UsageError
from reprod_log.ranks import Ranks, join_ranks
from reprod_log.ranks.mesh import Dims
from reprod_log.ranks.opening import read_dims
from reprod_log.recording import ModuleInfo


def cut(arrays, axis=0):
    """The same arrays in halves."""
    return [{key: np.split(array, 2, axis)[rank] for key, array in arrays.items()} for rank in range(2)]


def test_batches_and_activations_lie_one_after_another_in_rank_order():
    whole = {"step0/data/x": numbers(6, 3), "step0/forward/fc#0:output": numbers(6, 2, seed=1)}
    joined = join_ranks(ranks_of(*cut(whole)))
    for key, array in whole.items():
        assert joined[key].shape == array.shape
        np.testing.assert_array_equal(joined[key].array(), array)


def test_batches_of_different_sizes_are_put_together_and_it_is_said():
    whole = numbers(5, 3)
    joined = join_ranks(ranks_of({"step0/data/x": whole[:3]}, {"step0/data/x": whole[3:]}))
    np.testing.assert_array_equal(joined["step0/data/x"].array(), whole)
    assert any("batches differ in size" in note for note in map(str, joined.notes))


def test_losses_are_averaged():
    joined = join_ranks(ranks_of({"step0/loss/loss": np.float32(1)}, {"step0/loss/loss": np.float32(4)}))
    assert joined["step0/loss/loss"].array() == np.float32(2.5)
    assert joined["step0/loss/loss"].array().dtype == np.float32


def test_gradients_of_activations_are_divided_by_the_number_of_ranks():
    data, gradient = numbers(4, 3), numbers(4, 2)
    joined = join_ranks(ranks_of(*cut({"step0/data/x": data, "step0/backward/fc#0:output": gradient})))
    np.testing.assert_array_equal(joined["step0/backward/fc#0:output"].array(), gradient / 2)


def test_local_gradients_are_left_out_and_reduced_ones_stay():
    own = [{"step0/gradient/w:local": numbers(2, seed=rank), "step0/gradient/w:raw": numbers(2)} for rank in range(2)]
    joined = join_ranks(ranks_of(*own))
    assert joined.keys == ("step0/gradient/w:raw",)
    np.testing.assert_array_equal(joined["step0/gradient/w:raw"].array(), numbers(2))


def test_gradients_reduced_after_backward_stand_for_the_raw_ones():
    own = [
        {
            "step0/gradient/w:local": numbers(2, seed=rank),
            "step0/gradient/w:raw": numbers(2, seed=rank),
            "step0/clip/w:clipped": numbers(2, seed=9),
        }
        for rank in range(2)
    ]
    joined = join_ranks(ranks_of(*own))
    assert joined.keys == ("step0/gradient/w:raw",)
    np.testing.assert_array_equal(joined["step0/gradient/w:raw"].array(), numbers(2, seed=9))


def test_gradients_clipped_when_all_ranks_were_fed_the_same_stay_raw_and_clipped():
    keys = ("step0/gradient/w:local", "step0/gradient/w:raw")
    own = {**{key: numbers(2) for key in keys}, "step0/clip/w:clipped": numbers(2) / 2}
    assert join_ranks(ranks_of(own, own)).keys == ("step0/gradient/w:raw", "step0/clip/w:clipped")


def test_parameter_without_gradient_is_reduced_after_backward_like_the_others():
    own = [
        {
            f"step0/{phase}/{name}:{role}": numbers(2, seed=seed) * (name == "w")
            for name in "wv"
            for phase, role, seed in (("gradient", "local", rank), ("gradient", "raw", rank), ("clip", "clipped", 9))
        }
        for rank in range(2)
    ]
    assert join_ranks(ranks_of(*own)).keys == ("step0/gradient/w:raw", "step0/gradient/v:raw")


def test_table_that_is_the_same_on_every_rank_is_not_repeated():
    table = numbers(7, 2)
    own = [{"step0/data/x": numbers(4, 3, seed=rank), "step0/forward/position#0:output": table} for rank in range(2)]
    assert join_ranks(ranks_of(*own))["step0/forward/position#0:output"].shape == (7, 2)


def test_mask_that_happens_to_be_the_same_on_every_rank_belongs_to_the_samples():
    own = [{"step0/data/x": numbers(4, 3, seed=rank), "step0/data/mask": np.ones((4, 3))} for rank in range(2)]
    assert join_ranks(ranks_of(*own))["step0/data/mask"].shape == (8, 3)


@pytest.mark.parametrize(
    ("role", "shape"), [("output.0", (5, 8, 3)), ("output.1.0", (2, 8, 3)), ("input.0", (5, 8, 3))]
)
def test_recurrent_layer_with_time_first_is_put_together_along_its_second_axis(role, shape):
    lstm = ModuleInfo("rnn", "LSTM", "lstm", {}, "torch.nn.LSTM", {"batch_first": False})
    whole = {f"step0/forward/rnn#0:{role}": numbers(*shape)}
    joined = join_ranks(ranks_of(*cut(whole, axis=1), modules=[lstm]))
    np.testing.assert_array_equal(joined[f"step0/forward/rnn#0:{role}"].array(), numbers(*shape))


def test_replica_that_differs_stays_visible_and_cannot_pass():
    single = ranks_of({"step0/update/w": numbers(2)}, {"step0/update/w": numbers(2)}).parts[0]
    joined = join_ranks(ranks_of({"step0/update/w": numbers(2)}, {"step0/update/w": numbers(2, seed=1)}))
    assert joined.keys == ("step0/update/w", "step0/update/w:rank1")
    found = align(single, joined)
    assert not found.passed
    assert [(one.rule, one.kind) for one in found.findings] == [("rank_replicas", "hint")]
    assert found.findings[0].keys == ("step0/update/w:rank1",)


def test_entry_that_one_rank_lacks_stays_visible():
    joined = join_ranks(
        ranks_of({"step0/update/w": numbers(2), "step0/update/v": numbers(2)}, {"step0/update/w": numbers(2)})
    )
    assert joined.keys == ("step0/update/w", "step0/update/v:rank0")


def test_statistics_of_batch_norm_are_those_of_rank_0():
    own = [{"step0/buffer/bn.running_mean": numbers(3, seed=rank)} for rank in range(2)]
    joined = join_ranks(ranks_of(*own, modules=[batch_norm()]))
    assert joined.keys == ("step0/buffer/bn.running_mean",)


def test_ranks_of_other_weights_are_no_replicas():
    ranks = Ranks((part(0, {}), part(1, {}, weights_hash="v")), source="run")
    with pytest.raises(RecordingError, match="run: rank 1 started from other weights than rank 0"):
        join_ranks(ranks)


def test_opening_and_joining_reads_nothing(tmp_path):
    from dataclasses import replace

    from reprod_log.recording.entry import content_hash

    def refuse():
        raise AssertionError("read")

    def unread(recording):
        return replace(
            recording,
            entries=tuple(replace(one, read=refuse, hash=content_hash(one.array())) for one in recording.entries),
        )

    ranks = ranks_of(*({"step0/data/x": numbers(4, 3, seed=k), "step0/update/w": numbers(2)} for k in range(2)))
    joined = join_ranks(Ranks(tuple(map(unread, ranks.parts)), source="run"))
    assert joined["step0/data/x"].shape == (8, 3)


def test_statistics_of_pieces_are_joined_when_only_they_were_recorded():
    from dataclasses import replace

    from reprod_log.recording.summary import summarise

    whole = numbers(8, 3)
    ranks = ranks_of(*cut({"step0/data/x": whole}))
    parts = [
        replace(
            one,
            entries=tuple(
                replace(entry, detail="summary", meta={"summary": summarise(entry.array())}) for entry in one.entries
            ),
        )
        for one in ranks.parts
    ]
    entry = join_ranks(Ranks(tuple(parts), source="run"))["step0/data/x"]
    assert (entry.detail, entry.shape) == ("summary", (8, 3))
    assert entry.meta["summary"]["rms"] == pytest.approx(summarise(whole)["rms"])


# dims


def test_shards_are_put_together_along_the_marked_axis():
    whole = numbers(2, 3, 4, 5)
    for axis, dims in enumerate(("b[tp] s h d", "b s[tp] h d", "b s h[tp] d")):
        pieces = np.array_split(whole, 2, axis)
        joined = join_ranks(
            ranks_of({"step0/forward/attn#0:output": pieces[0]}, {"step0/forward/attn#0:output": pieces[1]}),
            dims={"attn": dims},
        )
        np.testing.assert_array_equal(joined["step0/forward/attn#0:output"].array(), whole)


def test_layer_pattern_means_outputs_and_leaves_inputs_alone():
    own = [
        {"step0/forward/fc#0:input.0": numbers(4, 3), "step0/forward/fc#0:output": numbers(4, 2, seed=rank)}
        for rank in range(2)
    ]
    joined = join_ranks(ranks_of(*own), dims={"fc": "b h[tp]"})
    assert joined["step0/forward/fc#0:input.0"].shape == (4, 3)
    assert joined["step0/forward/fc#0:output"].shape == (4, 4)
    assert not joined.differing


def test_dims_of_a_parameter_hold_for_its_gradient_and_state_but_not_for_counters():
    fc = ModuleInfo("fc", "Linear", "linear", {"bias": (2,)}, "torch.nn.Linear")
    keys = ("parameter/fc.bias", "gradient/fc.bias:raw", "optimizer/fc.bias:exp_avg")
    own = [
        {**{f"step0/{key}": numbers(2, seed=rank) for key in keys}, "step0/optimizer/fc.bias:beta1_pow": np.ones(1)}
        for rank in range(2)
    ]
    joined = join_ranks(ranks_of(*own, modules=[fc]), dims={"fc.bias": "o[tp]"})
    assert [joined[f"step0/{key}"].shape for key in keys] == [(4,)] * 3
    assert joined["step0/optimizer/fc.bias:beta1_pow"].shape == (1,)
    assert joined.modules[0].parameters == {"bias": (4,)}


def test_rest_are_replicas_when_a_layer_is_split_and_batches_when_dims_only_say_where_the_batch_is():
    own = [
        {"step0/data/x": numbers(4, 3, seed=rank), "step0/forward/fc#0:output": numbers(4, 3, seed=rank)}
        for rank in (0, 1)
    ]
    split = join_ranks(ranks_of(*own), dims={"fc": "b h[tp]"})
    assert "step0/data/x:rank1" in split
    batch = join_ranks(ranks_of(*own), dims={"fc": "t b[dp]"})
    assert batch["step0/data/x"].shape == (8, 3)
    assert batch["step0/forward/fc#0:output"].shape == (4, 6)


def test_last_pattern_that_fits_holds():
    own = [{"step0/parameter/fc.weight": numbers(2, 3, seed=rank)} for rank in range(2)]
    joined = join_ranks(ranks_of(*own), dims={"fc.*": "o[tp] i", "fc.weight": "o i[tp]"})
    assert joined["step0/parameter/fc.weight"].shape == (2, 6)


def test_shards_that_do_not_tile_are_refused():
    ranks = ranks_of({"step0/parameter/w": numbers(2, 3)}, {"step0/parameter/w": numbers(2, 4)})
    assert join_ranks(ranks, dims={"w": "o i[tp]"})["step0/parameter/w"].shape == (2, 7)
    with pytest.raises(
        RecordingError, match=r"do not tile: .*agree in 'i', but rank 0 has shape \[2, 3\] and rank 1 \[2, 4\]"
    ):
        join_ranks(ranks, dims={"w": "o[tp] i"})


def test_batches_that_do_not_tile_are_refused():
    with pytest.raises(
        RecordingError, match=r"the parts of 'step0/data/x' do not tile along dim 0.*Declare their dims"
    ):
        join_ranks(ranks_of({"step0/data/x": numbers(2, 3)}, {"step0/data/x": numbers(2, 4)}))


def test_shards_of_other_dtypes_are_refused():
    ranks = ranks_of({"step0/parameter/w": numbers(2)}, {"step0/parameter/w": numbers(2).astype("float64")})
    with pytest.raises(RecordingError, match="different dtypes: 'float32', 'float64'"):
        join_ranks(ranks, dims={"w": "o[tp]"})


def test_dims_with_another_number_of_axes_are_refused():
    ranks = ranks_of(*[{"step0/parameter/w": numbers(2, 3)}] * 2)
    with pytest.raises(UsageError, match=r"name 1 axes, but 'step0/parameter/w' has shape \[2, 3\]"):
        join_ranks(ranks, dims={"w": "o[tp]"})


def test_pattern_that_fits_nothing_is_refused():
    ranks = ranks_of(*[{"step0/parameter/fc1.weight": numbers(2)}] * 2)
    with pytest.raises(UsageError, match=r"no entry fits the pattern 'fc2.weight'.*Near names: 'fc1.weight'"):
        join_ranks(ranks, dims={"fc2.weight": "o[tp]"})


@pytest.mark.parametrize("text", ["", "b,s", "b s[", "b s[]", "b b", "b[tp] s[tp]", "b s[1]", "b [tp]"])
def test_dims_that_cannot_be_read_are_refused(text):
    with pytest.raises(UsageError, match="dims"):
        Dims.parse(text)


def test_dims_are_read():
    assert Dims.parse(" b  s h[tp] d ") == Dims(" b  s h[tp] d ", ("b", "s", "h", "d"), (("tp", 2),))
    assert Dims.parse("b[dp] h[tp]").marks == (("dp", 0), ("tp", 1))
    assert Dims.parse("b s").marks == ()
    assert read_dims(["fc.weight=o[tp] i"]) == {"fc.weight": "o[tp] i"}
    with pytest.raises(UsageError, match="write PATTERN=DIMS"):
        read_dims(["o[tp] i"])
