"""Summaries instead of values, and a budget that turns one into the other."""

import ml_dtypes
import numpy as np
import pytest

from reprod_log.capture import watch
from reprod_log.errors import RecordingError
from reprod_log.recording.entry import content_hash
from reprod_log.recording.summary import summarise


@pytest.mark.parametrize("size", [1, 7, 40_000, 100_001])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "complex64", ml_dtypes.bfloat16])
def test_summary_has_the_statistics_of_numpy(size, dtype):
    array = (np.random.default_rng(0).standard_normal(size) * 10 + 3).astype(dtype)
    wide = np.abs(array) if array.dtype.kind == "c" else array
    wide = wide.astype(np.float64)
    found = summarise(array)
    expected = {
        "min": wide.min(),
        "max": wide.max(),
        "mean": wide.mean(),
        "std": wide.std(),
        "rms": np.sqrt((wide**2).mean()),
        "abs_max": np.abs(wide).max(),
        "nan": 0,
        "inf": 0,
    }
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-12, abs=1e-12), name


def test_summary_counts_what_is_not_finite_and_leaves_it_out():
    found = summarise(np.array([[1.0, np.nan], [np.inf, -np.inf], [3.0, np.nan]], "float32"))
    assert (found["nan"], found["inf"], found["min"], found["max"], found["mean"]) == (2, 2, 1.0, 3.0, 2.0)


def test_summary_of_nothing_finite_is_nan_and_not_zero():
    for array in (np.zeros(0), np.full(3, np.nan)):
        found = summarise(array)
        assert all(np.isnan(found[name]) for name in ("min", "max", "mean", "std", "rms", "abs_max"))


def test_spread_of_a_large_offset_is_not_lost():
    array = 1e8 + np.random.default_rng(0).standard_normal(100_000)
    assert summarise(array)["std"] == pytest.approx(array.std(), rel=1e-9)


def test_huge_values_do_not_become_infinite_counts():
    found = summarise(np.array([1e200, -1e200]))
    assert (found["inf"], found["nan"], found["abs_max"]) == (0, 0, 1e200)


def test_summary_keeps_statistics_and_hash_but_no_values(lab):
    recordings = []
    for detail in ("full", "summary"):
        lab.seed(0)
        model = lab.models.Mlp()
        with watch(model, detail=detail) as run:
            model(lab.tensor(2, 3)).sum().backward()
        recordings.append(run.recording)
    full, summary = recordings
    assert full.keys == summary.keys
    for one, two in zip(full, summary, strict=True):
        assert (one.hash, one.shape, one.dtype) == (two.hash, two.shape, two.dtype)
        if one.array().size > 1:
            assert two.detail == "summary"
            assert two.meta["summary"] == summarise(one.array())
            assert one.hash == content_hash(one.array())
            with pytest.raises(RecordingError, match="recorded as 'summary' only"):
                two.array()
        else:
            assert two.array() == one.array()


def test_detail_can_differ_by_phase(lab):
    model = lab.models.Mlp()
    with watch(model, detail={"forward": "summary"}) as run:
        model(lab.tensor(2, 3)).sum().backward()
    details = {(entry.key.phase, entry.detail) for entry in run.recording if entry.shape}
    assert ("forward", "summary") in details
    assert ("gradient", "full") in details
    assert ("forward", "full") not in details


def test_budget_degrades_to_summaries_and_says_so(lab, trained, tmp_path):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer, budget=300, save=tmp_path / "rec") as run:
        trained(lab, model, optimizer, steps=4)
    recording = run.recording
    stored = {entry.hash: entry.nbytes for entry in recording if entry.detail == "full" and entry.shape}
    assert 0 < sum(stored.values()) <= 300
    summaries = [entry for entry in recording if entry.detail == "summary"]
    assert summaries
    assert all("summary" in entry.meta for entry in summaries)
    assert "the budget of 300 bytes was used up at step0/" in str(recording.notes[0])
    assert f"{len(summaries)} entries are sketches or summaries because of the budget" in str(recording.notes[1])
    assert all(entry.detail == "full" for entry in recording if entry.key.phase in ("loss", "lr"))


def test_equal_tensors_share_their_memory(lab):
    model = lab.models.Mlp()
    with watch(model) as run:
        model(lab.tensor(2, 3))
        model(lab.tensor(2, 3))
    recording = run.recording
    assert recording["step0/forward/fc2#0:output"].array() is recording["step0/forward/#0:output"].array()
    assert recording["step0/parameter/fc1.weight"].array() is recording["step1/parameter/fc1.weight"].array()
