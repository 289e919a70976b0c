"""Ranks against each other, on recordings made by hand: what must be equal, what must be a mean, what must differ."""

import numpy as np
import pytest
from made_ranks import batch_norm, numbers, part, ranks_of, rules

from reprod_log import Alignment, Status, align
from reprod_log.cli import run
from reprod_log.errors import UsageError
from reprod_log.messages import words
from reprod_log.ranks import Ranks, compare_ranks, explained, join_ranks


def stepped(rank, *, size=2, scale=None, own=(), shift=0.0):
    """One step of a rank: local gradients, and what the ranks made of them (the mean, unless told otherwise)."""
    arrays = {"step0/data/x": numbers(4, 3, seed=100 + rank)}
    for place, name in enumerate(("w", "b")):
        local = [numbers(5, seed=10 * place + one) for one in range(size)]
        reduced = np.mean(local, axis=0, dtype="float64").astype("float32") * np.float32(scale or 1)
        arrays[f"step0/gradient/{name}:local"] = local[rank]
        arrays[f"step0/gradient/{name}:raw"] = local[rank] if rank in own else reduced
        arrays[f"step0/update/{name}"] = arrays[f"step0/gradient/{name}:raw"] + np.float32(shift if rank else 0)
    return arrays


def test_equal_replicas_and_a_mean_pass():
    found = compare_ranks(ranks_of(*(stepped(rank) for rank in range(2))))
    assert found.passed
    assert not found.findings
    keys = [one.key for one in found.verdict.judgements]
    assert "step0/gradient/w:raw.rank1" in keys
    assert "step0/gradient/w:raw.mean" in keys
    assert not any(key.phase == "data" for key in keys)


def test_every_rank_is_compared_when_there_are_many():
    ranks = ranks_of(
        *(stepped(rank, size=4) for rank in range(3)), {**stepped(3, size=4), "step0/update/w": numbers(5)}
    )
    found = compare_ranks(ranks)
    assert [one.key for one in found.verdict.judgements if not one.status.passed] == ["step0/update/w:rank3"]
    assert found.candidate.source == "made, ranks 1 to 3"


def test_smallest_difference_of_a_replica_fails():
    near = {"step0/parameter/w": np.nextafter(numbers(3), np.float32(9))}
    found = compare_ranks(ranks_of({"step0/parameter/w": numbers(3)}, near))
    assert found.status is Status.FAIL
    assert compare_ranks(ranks_of({"step0/parameter/w": numbers(3)}, near), limits=["max_abs:1e-6"]).passed
    loss = {"step0/loss/loss": 1.0}
    ranks = ranks_of({"step0/parameter/w": numbers(3), **loss}, {**near, **loss})
    assert compare_ranks(ranks, accept=["*/parameter/*"]).passed


def test_replica_that_is_missing_fails():
    found = compare_ranks(
        ranks_of({"step0/update/w": numbers(2), "step0/lr/o:group0": 1.0}, {"step0/lr/o:group0": 1.0})
    )
    assert found.verdict.counts == {Status.PASS: 1, Status.UNMATCHED: 1}


def test_nan_in_replicas_never_passes():
    bad = {"step0/parameter/w": np.array([np.nan, 1])}
    assert not compare_ranks(ranks_of(bad, bad)).passed


def test_nothing_is_compared_when_there_are_no_replicas():
    own = [{"step0/forward/fc#0:output": numbers(2, seed=rank)} for rank in range(2)]
    assert compare_ranks(ranks_of(*own)).status is Status.NOTHING


@pytest.mark.parametrize("size", [2, 4])
def test_sum_for_mean_is_named(size):
    found = compare_ranks(ranks_of(*(stepped(rank, size=size, scale=size) for rank in range(size))))
    assert found.status is Status.FAIL
    assert rules(found) == ["sum_for_mean"]
    assert str(found.findings[0].cause) == f"gradients are reduced by a sum over the {size} ranks instead of the mean"


def test_dividing_twice_is_named():
    found = compare_ranks(ranks_of(*(stepped(rank, scale=0.5) for rank in range(2))))
    assert [str(one.cause) for one in found.findings] == ["gradients are divided by the 2 ranks twice"]


def test_rank_that_misses_the_reduction_is_named():
    found = compare_ranks(ranks_of(*(stepped(rank, size=3, own=(2,)) for rank in range(3))))
    assert rules(found) == ["missed_reduction"]
    assert str(found.findings[0].cause).startswith("rank 2 misses the all-reduce in step 0: its gradients are")


def test_parameter_that_is_not_reduced_on_one_rank_is_named():
    right, wrong = stepped(0), {**stepped(1), "step0/gradient/b:raw": stepped(1)["step0/gradient/b:local"]}
    found = compare_ranks(ranks_of(right, wrong))
    assert "of 1 of 2 parameters" in str(found.findings[0].cause)
    assert "b" in words()(found.findings[0].evidence)


def test_parameter_that_no_rank_reduces_is_named_once():
    parts = [stepped(rank) for rank in range(2)]
    for arrays in parts:
        arrays["step0/gradient/b:raw"] = arrays["step0/gradient/b:local"]
    found = compare_ranks(ranks_of(*parts))
    assert found.status is Status.FAIL
    assert [str(one.cause) for one in found.findings] == [
        "the gradients of b are not reduced in step 0: every rank trains them on its own data alone"
    ]
    assert "ignored_params" in words()(found.findings[0].advice)


def test_rank_that_took_fewer_steps_is_named():
    arrays = {"step0/update/w": numbers(2), "step1/update/w": numbers(2)}
    found = compare_ranks(ranks_of(arrays, {"step0/update/w": numbers(2)}))
    assert found.status is Status.FAIL
    assert str(found.findings[0].cause) == "rank 1 took 1 step, rank 0 took 2"


def test_nothing_reduced_is_named_once():
    found = compare_ranks(ranks_of(*(stepped(rank, own=(0, 1)) for rank in range(2))))
    assert [str(one.cause) for one in found.findings] == [
        "gradients are not reduced in step 0: every rank trains on its own data alone"
    ]


def test_accumulated_contributions_are_added_before_they_are_held_against_the_mean():
    parts = [stepped(rank) for rank in range(2)]
    for name in ("w", "b"):
        for rank, arrays in enumerate(parts):
            arrays[f"step0/gradient/{name}#1:local"] = numbers(5, seed=50 + rank)
        total = sum(
            arrays[f"step0/gradient/{name}:local"] + arrays[f"step0/gradient/{name}#1:local"] for arrays in parts
        )
        for arrays in parts:
            arrays[f"step0/gradient/{name}:raw"] = total / 2
    assert compare_ranks(ranks_of(*parts)).passed


def test_gradients_clipped_after_a_reduction_by_hand_are_no_mistake():
    parts = [stepped(rank, own=(0, 1)) for rank in range(2)]
    for arrays in parts:
        for name in ("w", "b"):
            mean = np.mean([one[f"step0/gradient/{name}:local"] for one in parts], axis=0)
            arrays[f"step0/clip/{name}:clipped"] = (mean * 0.3).astype("float32")
            arrays[f"step0/update/{name}"] = numbers(5)
    found = compare_ranks(ranks_of(*parts))
    assert found.passed
    assert not found.findings


def test_other_learning_rate_is_named():
    found = compare_ranks(ranks_of({"step3/lr/o:group0": 0.1}, {"step3/lr/o:group0": 0.01}))
    assert str(found.findings[0].cause) == "rank 1 has the learning rate 0.01 in step 3, rank 0 has 0.1"


def test_other_optimizer_setting_is_named():
    parts = [
        part(rank, stepped(rank), extra={"optimizers": {"o": {"weight_decay": 0.1 * rank, "lr": rank}}})
        for rank in range(2)
    ]
    found = compare_ranks(Ranks(tuple(parts)))
    assert str(found.findings[0].cause) == "the optimizer setting o.weight_decay is 0.1 on rank 1 and 0.0 on rank 0"


def test_other_initial_weights_are_named():
    parts = (
        part(0, {"step0/parameter/w": numbers(2)}),
        part(1, {"step0/parameter/w": numbers(2, seed=1)}, weights_hash="v"),
    )
    found = compare_ranks(Ranks(parts))
    assert rules(found) == ["rank_weights"]
    assert "step0/parameter/w" in words()(found.findings[0].evidence)


def test_same_data_on_some_ranks_is_named():
    arrays = [stepped(rank, size=3) for rank in range(3)]
    arrays[2]["step0/data/x"] = arrays[1]["step0/data/x"]
    found = compare_ranks(ranks_of(*arrays))
    assert [str(one.cause) for one in found.findings] == ["ranks 1 and 2 were given the same data in 1 of 1 step"]
    assert found.findings[0].kind == "doubt"
    assert found.status is Status.UNPROVEN


def statistics(rank, *, broadcast, steps=3, share=0.1):
    """Running means of two ranks whose batches differ: kept by each, or rank 0's given to both before each step."""
    arrays, kept = {}, [np.zeros(3), np.zeros(3)]
    for step in range(steps):
        for one in range(2):
            batch = numbers(4, 3, seed=10 * step + one).astype("float64")
            before = kept[0] if broadcast and one == 0 else kept[one]
            kept[one] = (1 - share) * before + share * batch.mean(0)
            if one == rank:
                arrays[f"step{step}/forward/bn#0:input.0"] = batch
                arrays[f"step{step}/forward/bn#0:output"] = batch - batch.mean(0)
        if broadcast and step < steps - 1:
            kept[1] = kept[0]
        arrays[f"step{step}/buffer/bn.running_mean"] = kept[rank].copy()
    return {**arrays, "step0/update/w": numbers(2)}


def test_statistics_that_each_rank_keeps_fail_and_are_named():
    found = compare_ranks(ranks_of(*(statistics(rank, broadcast=False) for rank in range(2)), modules=[batch_norm()]))
    assert found.status is Status.FAIL
    assert [(one.rule, one.kind, one.confidence) for one in found.findings] == [
        ("rank_statistics", "cause", "explained")
    ]
    assert "each rank keeps those of its own data" in str(found.findings[0].cause)


def test_statistics_that_rank_0_gives_to_all_pass_with_a_remark():
    found = compare_ranks(ranks_of(*(statistics(rank, broadcast=True) for rank in range(2)), modules=[batch_norm()]))
    assert found.passed
    assert [(one.rule, one.kind) for one in found.findings] == [("rank_statistics", "remark")]
    assert "rank 0's are given to all before the next forward pass" in str(found.findings[0].cause)


@pytest.mark.parametrize(("framework", "status"), [("torch", Status.PASS), ("paddle", Status.FAIL)])
def test_statistics_of_one_step_are_judged_by_what_the_framework_does(framework, status):
    arrays = [statistics(rank, broadcast=False, steps=1) for rank in range(2)]
    found = compare_ranks(ranks_of(*arrays, modules=[batch_norm()], framework=framework))
    assert found.status is status
    assert found.findings[0].confidence == "hint"
    assert found.findings[0].kind == ("remark" if framework == "torch" else "hint")


@pytest.mark.parametrize(("steps", "confidence"), [(1, "hint"), (3, "explained")])
def test_statistics_that_each_rank_keeps_are_a_doubt_where_those_of_rank_0_match(steps, confidence):
    """Of the statistics only rank 0's are compared, so that they match says nothing about the other ranks."""
    arrays = [statistics(rank, broadcast=False, steps=steps) for rank in range(2)]
    joined = join_ranks(ranks_of(*arrays, modules=[batch_norm()], framework="paddle"))
    whole = {str(key): joined[key].array() for key in joined.keys}
    found = align(part(0, whole, modules=[batch_norm()], framework="paddle"), joined)
    assert found.status is Status.UNPROVEN
    assert ("rank_statistics", "doubt", confidence) in [(one.rule, one.kind, one.confidence) for one in found.findings]


def test_gradients_that_match_are_not_the_cause_of_what_fails_but_stay_a_doubt():
    joined = join_ranks(ranks_of(*(stepped(rank, scale=2) for rank in range(2))))
    whole = {str(key): joined[key].array() for key in joined.keys}
    found = align(part(0, {**whole, "step0/update/w": numbers(5, seed=9)}), joined)
    assert found.status is Status.FAIL
    assert "sum_for_mean" in rules(found, "doubt")
    assert "sum_for_mean" not in rules(found, "cause")


def test_rank_that_keeps_its_own_gradients_is_the_cause_although_those_of_rank_0_match():
    joined = join_ranks(ranks_of(*(stepped(rank, own=(1,)) for rank in range(2))))
    whole = {str(key): joined[key].array() for key in joined.keys if "rank1" not in str(key)}
    found = align(part(0, whole), joined)
    assert [(one.rule, one.kind) for one in found.findings] == [("missed_reduction", "cause")]
    assert found.findings[0].keys == ("step0/gradient/w:raw.rank1", "step0/gradient/b:raw.rank1")


def test_split_parameters_are_no_replicas_and_everything_else_is():
    own = [
        {"step0/parameter/up.weight": numbers(2, 3, seed=rank), "step0/forward/out#0:output": numbers(4)}
        for rank in (0, 1)
    ]
    found = compare_ranks(ranks_of(*own), dims={"up.weight": "o[tp] i"})
    assert [one.key for one in found.verdict.judgements] == ["step0/forward/out#0:output.rank1"]
    with pytest.raises(UsageError, match="no entry fits"):
        compare_ranks(ranks_of(*own), dims={"nothing": "o[tp] i"})


def test_sum_for_mean_is_named_against_a_single_process_when_local_gradients_were_not_recorded():
    right = {f"step0/gradient/{name}:raw": numbers(5, seed=place) for place, name in enumerate("ab")}
    single = part(0, right, size=1)
    doubled = ranks_of(*[{key: 2 * array for key, array in right.items()}] * 2)
    joined = join_ranks(doubled)
    found = align(single, joined)
    assert rules(found, "cause") == ["sum_for_mean"]
    assert "times that of the single process" in words()(found.findings[0].evidence)
    turned = align(joined, single)
    assert rules(turned, "cause") == ["sum_for_mean"]


def test_causes_name_their_side_when_both_are_ranks():
    wrong = join_ranks(ranks_of(*(stepped(rank, scale=2) for rank in range(2))))
    right = join_ranks(ranks_of(*(stepped(rank) for rank in range(2))))
    found = align(right, wrong)
    assert any(str(one.cause).startswith("candidate: gradients are reduced by a sum") for one in found.findings)


def test_alignment_of_plain_recordings_is_left_as_it_is():
    recording = part(0, {"x": numbers(2)}, size=1)
    found = align(recording, recording)
    assert explained(found, recording, recording).findings == found.findings


# the commands


@pytest.fixture
def folders(tmp_path):
    for name, options in (("right", {}), ("sum", {"scale": 2})):
        for rank in range(2):
            part(rank, stepped(rank, **options)).save(tmp_path / name / f"rank{rank}")
    whole = {key: array for key, array in stepped(0).items() if not key.endswith(":local")}
    whole["step0/data/x"] = np.concatenate([stepped(rank)["step0/data/x"] for rank in range(2)])
    part(0, whole, size=1).save(tmp_path / "single")
    return tmp_path


def test_ranks_command_leaves_with_the_code_of_its_verdict(folders, capsys):
    assert run(["ranks", str(folders / "right")]) == 0
    assert "ALIGNED" in capsys.readouterr().out
    assert run(["ranks", str(folders / "sum"), "--json", str(folders / "saved.json")]) == 1
    assert "a sum over the 2 ranks instead of the mean" in capsys.readouterr().out
    assert rules(Alignment.load(folders / "saved.json")) == ["sum_for_mean"]
    assert run(["ranks", str(folders / "single")]) == 2
    assert "does not hold the parts of several ranks" in capsys.readouterr().err
    assert (
        run(["ranks", str(folders / "right"), "--report", str(folders / "r.html"), "--report", str(folders / "r.md")])
        == 0
    )
    assert (folders / "r.html").stat().st_size > 1000


def test_compare_command_puts_ranks_together(folders, capsys):
    assert run(["compare", str(folders / "single"), str(folders / "right")]) == 0
    assert "joined from 2 ranks" in capsys.readouterr().out
    assert run(["compare", str(folders / "single"), str(folders / "sum")]) == 1
    assert "a sum over the 2 ranks instead of the mean" in capsys.readouterr().out


def test_compare_command_takes_dims(folders, capsys):
    for rank in range(2):
        part(rank, {"step0/parameter/w": numbers(4, 3)[2 * rank : 2 * rank + 2]}).save(
            folders / "split" / f"rank{rank}"
        )
    part(0, {"step0/parameter/w": numbers(4, 3)}, size=1).save(folders / "whole")
    pair = [str(folders / "whole"), str(folders / "split")]
    assert run(["compare", *pair, "--dims", "w=o[tp] i"]) == 0
    assert run(["compare", *pair]) == 1
    capsys.readouterr()
    assert run(["compare", *pair, "--dims", "w=o i[tp]"]) == 1
    assert run(["compare", *pair, "--dims", "w=o[tp]"]) == 2
    assert "name 1 axes" in capsys.readouterr().err
    assert run(["compare", str(folders / "whole"), str(folders / "whole"), "--dims", "w=o[tp] i"]) == 2


def test_joined_ranks_are_measured_by_processes(folders):
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert align(folders / "single", folders / "right", executor=pool).passed


def test_findings_about_ranks_are_said_in_chinese(folders, capsys):
    for rank in range(2):
        part(rank, stepped(rank, own=(1,)), weights_hash=f"w{rank}").save(folders / "missed" / f"rank{rank}")
    assert run(["ranks", str(folders / "missed"), "--language", "zh"]) == 1
    shown = capsys.readouterr().out
    assert "rank 1 在第 0 步没有参与 all-reduce：它的梯度是自己算出的" in shown
    assert "rank 1 的初始权重与 rank 0 不同" in shown
