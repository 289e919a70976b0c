"""Fake data is made once, read by everyone, and its hash stands in the recordings."""

from pathlib import Path

import numpy as np
import pytest

from reprod_log import Recording
from reprod_log.errors import UnreadableFile, UsageError
from reprod_log.steps.fake_data import fake_data


def images(random: np.random.Generator) -> dict[str, np.ndarray]:
    return {"image": random.standard_normal((2, 3)).astype(np.float32), "label": np.array([0, 1])}


def test_data_is_made_once_and_read_afterwards(tmp_path: Path) -> None:
    made = fake_data(tmp_path / "data.npz", images, seed=3)

    def never(random: np.random.Generator) -> dict[str, np.ndarray]:
        raise AssertionError("made twice")

    again = fake_data(tmp_path / "data.npz", never, seed=3)
    assert again.hash == made.hash
    assert np.array_equal(again["image"], made["image"])
    assert again["label"].dtype == np.int64


def test_another_seed_gives_other_data_and_another_hash(tmp_path: Path) -> None:
    one, two = (fake_data(tmp_path / f"{seed}.npz", images, seed=seed) for seed in (0, 1))
    assert one.hash != two.hash
    assert not np.array_equal(one["image"], two["image"])


def test_data_of_another_seed_is_not_taken(tmp_path: Path) -> None:
    fake_data(tmp_path / "data.npz", images, seed=0)
    with pytest.raises(UsageError, match="made with seed 0, not 1"):
        fake_data(tmp_path / "data.npz", images, seed=1)


def test_data_that_was_changed_since_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    made = fake_data(path, images)
    changed = {**made.arrays, "label": np.array([1, 1])}
    from reprod_log import load

    Recording.from_arrays(changed, provenance=load(path).provenance).save(path)
    with pytest.raises(UnreadableFile, match="has changed since it was made"):
        fake_data(path, images)


def test_hash_goes_into_a_recording(tmp_path: Path) -> None:
    made = fake_data(tmp_path / "data.npz", images)
    stamped = made.stamped(Recording.from_arrays({"x": np.ones(2)}))
    assert stamped.provenance.data_hash == made.hash
    assert stamped.provenance.extra["fake_data"] == made.hash


def test_numpy_alone_can_read_it(tmp_path: Path) -> None:
    made = fake_data(tmp_path / "data.npz", images)
    with np.load(tmp_path / "data.npz") as archive:
        assert np.array_equal(archive["image"], made["image"])


def test_nothing_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no fake data"):
        fake_data(tmp_path / "data.npz", lambda random: {})
    with pytest.raises(UsageError, match="kept as .npz"):
        fake_data(tmp_path / "data.npy", images)
