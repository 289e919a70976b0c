"""Pictures of a pair: true elements of both sides, the worst always among them, and the error along every axis."""

import numpy as np
import pytest

from reprod_log import Alignment, Recording, align
from reprod_log.measure.picture import Picture, picture_of
from reprod_log.pairing import Pair

KEY = "step0/forward/conv#0:output"


def pair(ours: np.ndarray, theirs: np.ndarray) -> Pair:
    return Pair(Recording.from_arrays({KEY: ours})[KEY], Recording.from_arrays({KEY: theirs})[KEY])


def picture(ours: np.ndarray, theirs: np.ndarray, **options: object) -> Picture:
    found = picture_of(pair(ours, theirs), **options)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_small_tensor_is_shown_whole() -> None:
    ours = np.arange(24.0).reshape(2, 3, 4)
    found = picture(ours, ours + 1)
    assert found.places == ((0, 1), (0, 1, 2), (0, 1, 2, 3))
    assert (found.reference == ours).all()
    assert (found.difference == 1).all()


@pytest.mark.parametrize("shape", [(3, 1000, 7), (100_000,), (64, 64, 64), (2, 2, 2, 5000), (1, 1, 9000)])
def test_large_tensor_is_cut_to_true_elements_with_the_worst_among_them(shape: tuple[int, ...]) -> None:
    ours = np.random.default_rng(0).normal(size=shape)
    theirs = ours.copy()
    worst = tuple(length // 3 for length in shape)
    theirs[worst] += 100
    found = picture(ours, theirs, worst=worst)
    assert found.reference.size <= 4096
    assert all(at in places for at, places in zip(worst, found.places, strict=True))
    assert np.array_equal(found.candidate, theirs[np.ix_(*found.places)].astype(np.float32))
    assert found.difference.max() == 100


def test_what_is_not_finite_stays_so_and_equal_infinities_do_not_differ() -> None:
    ours = np.array([1.0, np.nan, np.inf, np.inf, 0.0])
    theirs = np.array([np.nan, np.nan, np.inf, -np.inf, 0.0])
    found = picture(ours, theirs)
    assert np.array_equal(found.difference, [np.nan, np.nan, 0, -np.inf, 0], equal_nan=True)
    assert np.isnan(found.profiles[0].difference[0])


def test_small_difference_of_wide_numbers_is_not_lost_in_float32() -> None:
    ours = np.full((2, 2), 1.0)
    assert picture(ours, ours + 1e-12).difference == pytest.approx(1e-12, rel=1e-3)


def test_profile_names_the_channel_that_is_wrong() -> None:
    ours = np.ones((4, 8, 5))
    theirs = ours.copy()
    theirs[:, 3] += 0.5
    profile = picture(ours, theirs).profiles[1]
    assert profile.places == tuple(range(8))
    assert profile.difference == (0, 0, 0, 0.5, 0, 0, 0, 0)
    assert profile.reference == (1,) * 8


def test_long_profile_keeps_its_peak() -> None:
    ours, theirs = np.zeros(10_000), np.zeros(10_000)
    theirs[7_777] = 2.0
    profile = picture(ours, theirs, worst=(7_777,)).profiles[0]
    assert len(profile.difference) <= 256
    assert max(profile.difference) == 2.0


@pytest.mark.parametrize("ours", [np.array(1.0), np.array(["a", "b"]), np.array([1j, 2j]), np.zeros((0, 3))])
def test_what_has_nothing_to_look_at_has_no_picture(ours: np.ndarray) -> None:
    assert picture_of(pair(ours, ours)) is None


def test_alignment_has_pictures_of_what_differs_and_does_not_save_them() -> None:
    ours = {f"step0/forward/layer{at}#0:output": np.ones((4, 4)) for at in range(50)}
    theirs = {key: value + (at > 9) for at, (key, value) in enumerate(ours.items())}
    found = align(Recording.from_arrays(ours), Recording.from_arrays(theirs))
    assert next(iter(found.pictures)) == "step0/forward/layer10#0:output"
    assert 0 < len(found.pictures) <= 32
    assert not Alignment.from_dict(found.to_dict()).pictures
    assert not align(Recording.from_arrays(ours), Recording.from_arrays(ours)).pictures
