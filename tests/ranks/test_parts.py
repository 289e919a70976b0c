"""Parts of ranks on disk: found, counted, and refused when they do not belong together."""

import pytest
from made_ranks import numbers, part

from reprod_log import load
from reprod_log.errors import RecordingError, UnreadableFile, UsageError
from reprod_log.ranks import Ranks, has_ranks, load_ranks


def saved(folder, ranks, *, size=2, name="rank{}", **facts):
    for rank in ranks:
        part(rank, {"step0/parameter/w": numbers(2, seed=rank)}, size=size, **facts).save(folder / name.format(rank))
    return folder


def test_ranks_are_opened_in_their_order_when_a_folder_has_them(tmp_path):
    ranks = load_ranks(saved(tmp_path, range(11), size=11))
    assert [one.provenance.extra["rank"] for one in ranks.parts] == list(range(11))
    assert ranks.size == 11
    assert has_ranks(tmp_path)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_ranks_are_found_beside_the_name_when_they_are_files(tmp_path, suffix):
    saved(tmp_path, range(2), name="run.rank{}" + suffix)
    assert load_ranks(tmp_path / f"run{suffix}").size == 2
    assert load_ranks(tmp_path).size == 2
    saved(tmp_path, range(2), name="other.rank{}" + suffix)
    assert load_ranks(tmp_path / f"run{suffix}").size == 2
    with pytest.raises(UsageError, match="several runs: 'other"):
        load_ranks(tmp_path)


def test_ranks_of_a_url_are_opened(tmp_path):
    import fsspec

    saved(tmp_path, range(2))
    fsspec.filesystem("memory").put(str(tmp_path), "/ranks_of_a_url", recursive=True)
    ranks = load_ranks("memory://ranks_of_a_url")
    assert (ranks.parts[1]["step0/parameter/w"].array() == numbers(2, seed=1)).all()
    assert not has_ranks("memory://ranks_of_a_url/rank0")


def test_missing_ranks_are_named(tmp_path):
    with pytest.raises(UnreadableFile, match=r"ranks 1 and 3 of 4 are missing; there are ranks 0 and 2\."):
        load_ranks(saved(tmp_path, (0, 2), size=4))


def test_plain_recording_has_no_ranks(tmp_path):
    part(0, {"x": numbers(2)}).save(tmp_path / "plain")
    part(0, {"x": numbers(2)}).save(tmp_path / "plain.npz")
    (tmp_path / "empty").mkdir()
    for path in ("plain", "plain.npz", "empty", "nothing", "nothing.npz"):
        assert not has_ranks(tmp_path / path)
    with pytest.raises(UnreadableFile, match="does not hold the parts of several ranks"):
        load_ranks(tmp_path / "plain")


def test_load_says_what_to_use_when_a_folder_has_ranks(tmp_path):
    with pytest.raises(UnreadableFile, match="the parts of several ranks .see reprod ranks"):
        load(saved(tmp_path, range(2)))


def test_parts_of_runs_of_other_sizes_are_refused(tmp_path):
    saved(tmp_path, (0, 1))
    saved(tmp_path, (2, 3), size=4)
    with pytest.raises(RecordingError, match=r"different runs.*ranks 0 and 1: 2; ranks 2 and 3: 4"):
        load_ranks(tmp_path)


def test_part_that_another_rank_recorded_is_refused():
    with pytest.raises(RecordingError, match="the part of rank 1 was recorded by rank 0"):
        Ranks((part(0, {}), part(0, {})), source="run")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"framework": "paddle"}, "its framework is 'paddle', that of rank 0 'torch'"),
        ({"command": "other.py"}, "its command is 'other.py'"),
        ({"git_commit": "b"}, "its git commit is 'b'"),
        ({"time": "2026-11-16T14:00:00+00:00", "weights_hash": "v"}, "240 minutes apart, and from other weights"),
    ],
)
def test_parts_of_different_runs_are_refused(facts, said):
    usual = {"command": "train.py", "git_commit": "a", "time": "2026-11-16T10:00:00+00:00"}
    with pytest.raises(RecordingError, match=f"rank 1 is of another run than rank 0: .*{said}"):
        Ranks((part(0, {}, **usual), part(1, {}, **{**usual, **facts})), source="run")


def test_parts_that_began_a_little_apart_belong_together():
    times = ("2026-11-16T10:00:00+00:00", "2026-11-16T10:00:40+00:00")
    assert Ranks(tuple(part(rank, {}, time=time) for rank, time in enumerate(times))).size == 2


def test_processes_with_arguments_of_their_own_belong_together():
    commands = ("run/train.py --local_rank=0", "run/train.py --local_rank=1")
    assert Ranks(tuple(part(rank, {}, command=one) for rank, one in enumerate(commands))).size == 2


def test_many_missing_ranks_are_counted(tmp_path):
    with pytest.raises(UnreadableFile, match=r"ranks 1, 2, .*, 20 and 43 more of 64 are missing; there is rank 0\."):
        load_ranks(saved(tmp_path, (0,), size=64))


def test_one_rank_is_not_enough():
    with pytest.raises(UsageError, match="at least two ranks"):
        Ranks((part(0, {}, size=1),))
